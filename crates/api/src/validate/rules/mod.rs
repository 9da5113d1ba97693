//! Validation rules, parsed once from `schema/rules/*.txt`.
//!
//! [`kind_rules`] finds the rules of a kind, and [`RuleBlock::run_block`] checks a value by them in the order of the table, which is
//! upstream's. Relations that the tables cannot express are functions, called by name. The words are documented in
//! `docs/validation-rules.md`.

mod bad_value;
mod block_fields;
mod condition;
mod parse;
mod rule_check;
mod target_path;
mod union_choice;

use std::{collections::HashMap, sync::LazyLock};

use self::{
    block_fields::{BlockFields, FieldValues},
    condition::RuleCondition,
    rule_check::RuleCheck,
    target_path::TargetPath,
};
use super::{ErrorList, field_cursor::FieldCursor, metadata::MetadataRules, names};
use crate::schema::{Resource, ResourceScope};

/// All rules.
pub(super) struct RuleSet {
    blocks: Vec<RuleBlock>,
    by_name: HashMap<&'static str, usize>,
    kinds: HashMap<(&'static str, &'static str), KindRules>,
}

/// The rules of a kind.
pub(super) struct KindRules {
    /// The name format.
    name: names::NameRule,
    /// Whether objects are stored: reviews have no metadata.
    pub stored: bool,
    main: usize,
    subresources: HashMap<&'static str, usize>,
}

/// The rules of a struct.
#[derive(Default)]
struct RuleBlock {
    fields: BlockFields,
    rules: Vec<FieldRule>,
}

/// One line: conditions, targets and checks.
struct FieldRule {
    when: Vec<RuleCondition>,
    targets: Vec<RuleTarget>,
    checks: Vec<RuleCheck>,
}

/// A target of a rule.
struct RuleTarget {
    path: TargetPath,
    /// The position of its first field among the block's.
    first: Option<usize>,
    /// Whether an absent first field passes.
    optional: bool,
}

static RULES: LazyLock<RuleSet> = LazyLock::new(parse::parse_rules);

/// Returns the rules of a resource's kind.
pub(super) fn kind_rules(resource: &Resource) -> Option<&'static KindRules> {
    RULES.kinds.get(&(resource.group, resource.kind))
}

impl KindRules {
    /// Checks an object.
    pub fn check_object(&self, resource: &Resource, at: &FieldCursor, e: &mut ErrorList) {
        RULES.blocks[self.main].run_block(at, &self.metadata_rules(resource), e);
    }

    /// Checks an object by the rules of a subresource; `false` without rules.
    pub fn check_subresource(&self, part: &str, resource: &Resource, at: &FieldCursor, e: &mut ErrorList) -> bool {
        let rules = self.subresources.get(part).map(|block| &RULES.blocks[*block]);
        if let Some(rules) = rules {
            rules.run_block(at, &self.metadata_rules(resource), e);
        }
        rules.is_some()
    }

    fn metadata_rules(&self, resource: &Resource) -> MetadataRules {
        MetadataRules { name: self.name, ..metadata_rules(resource) }
    }
}

/// The metadata rules of a resource.
pub(super) fn metadata_rules(resource: &Resource) -> MetadataRules {
    // These groups allow any finalizer.
    const ANY_FINALIZER: &str = "apiextensions.k8s.io apiregistration.k8s.io admissionregistration.k8s.io \
        coordination.k8s.io node.k8s.io";
    MetadataRules {
        name: names::check_dns_subdomain,
        namespaced: resource.scope == ResourceScope::Namespaced,
        known_finalizers: !names::is_listed(ANY_FINALIZER, resource.group) && resource.custom_schema.is_none(),
    }
}

/// Checks a value by a block of rules, for functions.
pub(super) fn check_block(block: &str, at: &FieldCursor, e: &mut ErrorList) {
    let Some(index) = RULES.by_name.get(block) else { unreachable!("there are no rules {block}") };
    let scheme = MetadataRules { name: names::check_dns_subdomain, namespaced: false, known_finalizers: true };
    RULES.blocks[*index].run_block(at, &scheme, e);
}

impl RuleBlock {
    fn run_block(&self, at: &FieldCursor, scheme: &MetadataRules, e: &mut ErrorList) {
        self.fields.with_values(at, |values| self.rules.iter().for_each(|rule| rule.run_rule(at, values, scheme, e)));
    }
}

impl FieldRule {
    fn run_rule(&self, at: &FieldCursor, values: &FieldValues, scheme: &MetadataRules, e: &mut ErrorList) {
        if !self.when.iter().all(|test| test.is_met(at, values)) {
            return;
        }
        for target in &self.targets {
            let absent = target.first.is_some_and(|first| values[first].is_null());
            if !(absent && target.optional) {
                target.path.visit_targets(at, target.first, values, &mut |at| self.run_checks(at, scheme, e));
            }
        }
    }

    fn run_checks(&self, at: &FieldCursor, scheme: &MetadataRules, e: &mut ErrorList) {
        for check in &self.checks {
            if check.run_check(at, scheme, e).is_break() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        schema::schema,
        validate::{name_formats, rule_functions},
    };

    #[test]
    fn every_stored_kind_has_rules() {
        for resource in schema().resources().iter().filter(|resource| resource.verbs.contains(&"update")) {
            let kind = kind_rules(resource);
            assert!(kind.is_some(), "{} {} has no rules", resource.group, resource.kind);
            let parts = kind.map(|kind| kind.subresources.keys().copied().collect::<Vec<_>>()).unwrap_or_default();
            for part in parts.into_iter().filter(|part| *part != "warnings") {
                assert!(resource.subresource(part).is_some(), "{} has no {part}", resource.kind);
            }
        }
    }

    const PAGE: &str = include_str!("../../../../../docs/validation-rules.md");

    /// The section of the page under a heading, up to the next heading of the same level.
    fn section(heading: &str) -> &'static str {
        let (_, rest) = PAGE.split_once(&format!("\n## {heading}\n")).expect("the page has the section");
        rest.split("\n## ").next().unwrap_or_default()
    }

    /// The words that the parser in a source file matches: `"word" =>`, `"word" | "word" =>`, `("word", _) =>`.
    fn matched_words(source: &'static str) -> Vec<&'static str> {
        let arms = source.lines().filter_map(|line| line.split_once(" => ")).map(|(pattern, _)| pattern.trim());
        let words = arms.filter(|pattern| pattern.starts_with(['"', '('])).flat_map(|pattern| pattern.split('"'));
        words.filter(|word| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')).collect()
    }

    #[test]
    fn every_word_of_the_rules_is_documented() {
        let functions = rule_functions::RULE_FUNCTIONS.iter().copied().flatten().map(|(name, _)| *name);
        let with_argument = rule_functions::RULE_FUNCTIONS_WITH_ARGUMENT.iter().copied().flatten();
        let functions = functions.chain(with_argument.map(|(name, _)| *name)).map(rule_functions::function_word);
        let words = [
            ("Checks", matched_words(include_str!("rule_check.rs"))),
            ("Conditions", matched_words(include_str!("condition.rs"))),
            ("Checks", matched_words(include_str!("bad_value.rs"))),
            ("Name formats", name_formats::format_words().collect()),
            ("Functions", functions.collect()),
        ];
        for (heading, words) in words {
            assert!(words.len() > 3, "the parser of {heading} has words");
            let (text, sign) = (section(heading), if heading == "Functions" { "@" } else { "" });
            let is_documented = |word: &str| ["`", "("].iter().any(|end| text.contains(&format!("`{sign}{word}{end}")));
            let missing: Vec<&str> = words
                .into_iter()
                .filter(|word| !is_documented(word) && !text.contains(&format!("`{word} \"")))
                .collect();
            assert!(missing.is_empty(), "docs/validation-rules.md lacks under {heading}: {missing:?}");
        }
    }
}
