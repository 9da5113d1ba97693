//! Reads the tables in `schema/rules`.
//!
//! `Container:` begins the rules for structs of a shape. `  name: required label` is a rule: places, then checks from left to
//! right; a check that needs something to be there ends the line where nothing is. `type=Localhost ? path: required "why"`
//! holds only under conditions, joined by ` & `. A text in quotes is the message of the check before it. A word with a
//! capital is another block, one with an `@` a function. A block with `of(group)` is a kind, `names(…)` the form of its
//! objects' names, `unstored` means that they are only asked; `Pod/status:` are the rules for changes of a part.

use std::collections::HashMap;

use super::{Block, Check, Fields, Kind, Place, Rule, Rules, Target, Test};
use crate::validate::{names, tables};

/// A block before its rules are read.
struct Head {
    name: &'static str,
    flags: &'static str,
    lines: Vec<&'static str>,
}

/// Reads all tables.
pub(super) fn load() -> Rules {
    let heads = split(tables::rules());
    let by_name: HashMap<&str, usize> = heads.iter().enumerate().map(|(at, head)| (head.name, at)).collect();
    assert_eq!(by_name.len(), heads.len(), "a block of rules is there twice");
    let blocks = heads.iter().map(|head| block(&head.lines, &by_name));
    Rules { blocks: blocks.collect(), kinds: kinds(&heads, &by_name), by_name }
}

fn split(table: &'static str) -> Vec<Head> {
    let mut heads: Vec<Head> = Vec::new();
    for line in table.lines().filter(|line| !line.trim().is_empty() && !line.starts_with(['#', '@'])) {
        match (line.strip_prefix("  "), heads.last_mut()) {
            (Some(rule), Some(head)) => head.lines.push(rule.trim_end()),
            _ => {
                let (name, flags) = line.split_once(':').expect("a block has a name");
                heads.push(Head { name, flags, lines: Vec::new() });
            }
        }
    }
    heads
}

fn kinds(heads: &[Head], by_name: &HashMap<&'static str, usize>) -> HashMap<(&'static str, &'static str), Kind> {
    let flag = |head: &Head, name: &str| -> Option<&'static str> {
        let flags = head.flags.split_whitespace();
        flags.filter_map(|flag| flag.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')).next()
    };
    let mut kinds = HashMap::new();
    for head in heads {
        let Some(group) = flag(head, "of") else { continue };
        let prefix = format!("{}/", head.name);
        let parts = by_name.iter().filter_map(|(name, at)| Some((name.strip_prefix(prefix.as_str())?, *at)));
        let kind = Kind {
            name: flag(head, "names").map_or(names::subdomain, |form| names::form(form).expect("a form of names")),
            stored: !head.flags.contains("unstored"),
            main: by_name[head.name],
            parts: parts.collect(),
        };
        kinds.insert((group, flag(head, "kind").unwrap_or(head.name)), kind);
    }
    kinds
}

fn block(lines: &[&'static str], blocks: &HashMap<&'static str, usize>) -> Block {
    let mut rules: Vec<Rule> = lines.iter().map(|line| rule(line, blocks)).collect();
    let places = rules.iter().flat_map(|rule| rule.targets.iter().filter_map(|target| target.place.first()));
    let tests = rules.iter().flat_map(|rule| rule.when.iter().filter_map(Test::first));
    let fields = Fields::new(places.chain(tests));
    for rule in &mut rules {
        for target in &mut rule.targets {
            target.first = target.place.first().and_then(|name| fields.position(name));
        }
        rule.when.iter_mut().for_each(|test| test.resolve(&fields));
    }
    Block { fields, rules }
}

fn rule(line: &'static str, blocks: &HashMap<&'static str, usize>) -> Rule {
    let (head, rest) = line.split_once(": ").unwrap_or_else(|| panic!("a rule has a place and checks: {line}"));
    let (when, places) = head.split_once(" ? ").unwrap_or(("", head));
    let mut checks = Vec::new();
    let mut rest = rest.trim();
    while !rest.is_empty() {
        let end = word_end(rest);
        let (word, after) = rest.split_at(end);
        let (message, after) = message(after.trim_start());
        checks.push(Check::parse(word, message, blocks));
        rest = after.trim_start();
    }
    let quiet = checks.first().is_some_and(Check::ends_at_nothing) || checks.iter().all(Check::is_quiet_at_nothing);
    let target = |text: &'static str| {
        let place = Place::parse(text);
        Target { optional: quiet || place.is_within(), place, first: None }
    };
    Rule {
        when: when.split(" & ").filter(|test| !test.is_empty()).map(Test::parse).collect(),
        targets: places.split(", ").map(target).collect(),
        checks,
    }
}

/// Where a word ends; blanks in parentheses are part of it.
fn word_end(text: &str) -> usize {
    let end = text.find([' ', '(']).unwrap_or(text.len());
    if text[end..].starts_with('(') { text.find(')').expect("a parenthesis ends") + 1 } else { end }
}

/// The text in quotes that a rest begins with, and what follows it.
fn message(text: &'static str) -> (Option<String>, &'static str) {
    let Some(quoted) = text.strip_prefix('"') else { return (None, text) };
    let mut end = quoted.find('"').expect("a quotation ends");
    while quoted[..end].ends_with('\\') {
        end += 1 + quoted[end + 1..].find('"').expect("a quotation ends");
    }
    (Some(quoted[..end].replace("\\\"", "\"")), &quoted[end + 1..])
}
