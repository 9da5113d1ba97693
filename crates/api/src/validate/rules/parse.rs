//! Parses the tables in `schema/rules`.
//!
//! `Container:` begins a block, the rules of a struct. `  name: required label` is a rule: targets, then checks from
//! left to right; a check may end the line. `type=Localhost ? path: required "why"` applies under conditions, joined by
//! ` & `. A quoted text is the message of the check before it. A capitalized word is another block, a word with `@` a
//! function. A block with `of(group)` is a kind, `names(…)` its name format, `unstored` marks reviews; `Pod/status:`
//! has the rules of a subresource. The words are documented in `docs/validation-rules.md`.

use std::collections::HashMap;

use super::{BlockFields, FieldRule, KindRules, RuleBlock, RuleCheck, RuleCondition, RuleSet, RuleTarget, TargetPath};
use crate::validate::{name_formats, names, rule_functions};

/// A block whose rules are not parsed yet.
struct BlockHeader {
    name: &'static str,
    flags: &'static str,
    lines: Vec<&'static str>,
}

/// Parses all tables.
pub(super) fn parse_rules() -> RuleSet {
    let heads = split_blocks(rule_functions::rule_tables());
    let by_name: HashMap<&str, usize> = heads.iter().enumerate().map(|(at, head)| (head.name, at)).collect();
    assert_eq!(by_name.len(), heads.len(), "a block of rules is there twice");
    let blocks = heads.iter().map(|head| parse_block(&head.lines, &by_name));
    RuleSet { blocks: blocks.collect(), kinds: collect_kinds(&heads, &by_name), by_name }
}

fn split_blocks(table: &'static str) -> Vec<BlockHeader> {
    let mut heads: Vec<BlockHeader> = Vec::new();
    for line in table.lines().filter(|line| !line.trim().is_empty() && !line.starts_with(['#', '@'])) {
        match (line.strip_prefix("  "), heads.last_mut()) {
            (Some(rule), Some(head)) => head.lines.push(rule.trim_end()),
            _ => {
                let (name, flags) = line.split_once(':').expect("a block has a name");
                heads.push(BlockHeader { name, flags, lines: Vec::new() });
            }
        }
    }
    heads
}

fn collect_kinds(
    heads: &[BlockHeader],
    by_name: &HashMap<&'static str, usize>,
) -> HashMap<(&'static str, &'static str), KindRules> {
    let flag = |head: &BlockHeader, name: &str| -> Option<&'static str> {
        let flags = head.flags.split_whitespace();
        flags.filter_map(|flag| flag.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')).next()
    };
    let mut kinds = HashMap::new();
    for head in heads {
        let Some(group) = flag(head, "of") else { continue };
        let prefix = format!("{}/", head.name);
        let parts = by_name.iter().filter_map(|(name, at)| Some((name.strip_prefix(prefix.as_str())?, *at)));
        let kind = KindRules {
            name: flag(head, "names")
                .map_or(names::check_dns_subdomain, |form| name_formats::find_format(form).expect("a form of names")),
            stored: !head.flags.contains("unstored"),
            main: by_name[head.name],
            subresources: parts.collect(),
        };
        kinds.insert((group, flag(head, "kind").unwrap_or(head.name)), kind);
    }
    kinds
}

fn parse_block(lines: &[&'static str], blocks: &HashMap<&'static str, usize>) -> RuleBlock {
    let mut rules: Vec<FieldRule> = lines.iter().map(|line| parse_rule(line, blocks)).collect();
    let places = rules.iter().flat_map(|rule| rule.targets.iter().filter_map(|target| target.path.first_field()));
    let tests = rules.iter().flat_map(|rule| rule.when.iter().filter_map(RuleCondition::first_field));
    let fields = BlockFields::new(places.chain(tests));
    for rule in &mut rules {
        for target in &mut rule.targets {
            target.first = target.path.first_field().and_then(|name| fields.field_position(name));
        }
        rule.when.iter_mut().for_each(|test| test.resolve_fields(&fields));
    }
    RuleBlock { fields, rules }
}

fn parse_rule(line: &'static str, blocks: &HashMap<&'static str, usize>) -> FieldRule {
    let (head, rest) = line.split_once(": ").unwrap_or_else(|| panic!("a rule has a place and checks: {line}"));
    let (when, places) = head.split_once(" ? ").unwrap_or(("", head));
    let mut checks = Vec::new();
    let mut rest = rest.trim();
    while !rest.is_empty() {
        let end = word_end(rest);
        let (word, after) = rest.split_at(end);
        let (message, after) = parse_message(after.trim_start());
        checks.push(RuleCheck::parse(word, message, blocks));
        rest = after.trim_start();
    }
    let quiet =
        checks.first().is_some_and(RuleCheck::ends_line_if_absent) || checks.iter().all(RuleCheck::ignores_absent);
    let target = |text: &'static str| {
        let place = TargetPath::parse(text);
        RuleTarget { optional: quiet || place.is_inside_collection(), path: place, first: None }
    };
    FieldRule {
        when: when.split(" & ").filter(|test| !test.is_empty()).map(RuleCondition::parse).collect(),
        targets: places.split(", ").map(target).collect(),
        checks,
    }
}

/// The end of a word; blanks in parentheses are part of it.
fn word_end(text: &str) -> usize {
    let end = text.find([' ', '(']).unwrap_or(text.len());
    if text[end..].starts_with('(') { text.find(')').expect("a parenthesis ends") + 1 } else { end }
}

/// Splits a leading quoted message from the rest.
fn parse_message(text: &'static str) -> (Option<String>, &'static str) {
    let Some(quoted) = text.strip_prefix('"') else { return (None, text) };
    let mut end = quoted.find('"').expect("a quotation ends");
    while quoted[..end].ends_with('\\') {
        end += 1 + quoted[end + 1..].find('"').expect("a quotation ends");
    }
    (Some(quoted[..end].replace("\\\"", "\"")), &quoted[end + 1..])
}
