//! The rules in memory, parsed once from `schema/rules/*.txt`: what must hold for the fields of each shape of struct.
//!
//! [`printer_for`] finds the rules of a kind or of one of its parts, and [`Block::run`] checks a place by them, in the order in which
//! they are written: it is upstream's. What relates several fields in a way that the tables cannot say is a function,
//! called there by its name.

mod check;
mod choice;
mod fields;
mod parse;
mod place;
mod shown;
mod test;

use std::{collections::HashMap, sync::LazyLock};

use self::{
    check::Check,
    fields::{Fields, Values},
    place::Place,
    test::Test,
};
use super::{Errors, at::At, metadata::Scheme, names};
use crate::schema::{Resource, ResourceScope};

/// A check that is written in Rust.
pub(super) type Function = fn(&At, &mut Errors);
/// A check that is written in Rust, with an argument from the table.
pub(super) type WithArgument = fn(&At, &str, &mut Errors);

/// All rules.
pub(super) struct Rules {
    blocks: Vec<Block>,
    by_name: HashMap<&'static str, usize>,
    kinds: HashMap<(&'static str, &'static str), Kind>,
}

/// A kind of objects, and where its rules are.
pub(super) struct Kind {
    /// The form of names.
    name: names::Form,
    /// Whether objects are stored: what is only asked has no metadata to speak of.
    pub stored: bool,
    main: usize,
    parts: HashMap<&'static str, usize>,
}

/// The rules for structs of one shape.
#[derive(Default)]
struct Block {
    fields: Fields,
    rules: Vec<Rule>,
}

/// One line: where it holds, what is looked at, and what must be.
struct Rule {
    when: Vec<Test>,
    targets: Vec<Target>,
    checks: Vec<Check>,
}

/// What a rule looks at.
struct Target {
    place: Place,
    /// Where its first field is among the block's.
    first: Option<usize>,
    /// Without that field there is nothing to tell.
    optional: bool,
}

static RULES: LazyLock<Rules> = LazyLock::new(parse::load);

/// The kind of a resource's objects, if it has rules.
pub(super) fn kind(resource: &Resource) -> Option<&'static Kind> {
    RULES.kinds.get(&(resource.group, resource.kind))
}

impl Kind {
    /// Checks an object by the rules of its kind.
    pub fn check(&self, resource: &Resource, at: &At, e: &mut Errors) {
        RULES.blocks[self.main].run(at, &self.scheme(resource), e);
    }

    /// Checks an object by the rules of a part of it; `false` where it has none.
    pub fn check_part(&self, part: &str, resource: &Resource, at: &At, e: &mut Errors) -> bool {
        let rules = self.parts.get(part).map(|block| &RULES.blocks[*block]);
        if let Some(rules) = rules {
            rules.run(at, &self.scheme(resource), e);
        }
        rules.is_some()
    }

    fn scheme(&self, resource: &Resource) -> Scheme {
        Scheme { name: self.name, ..scheme(resource) }
    }
}

/// How metadata of any resource is seen.
pub(super) fn scheme(resource: &Resource) -> Scheme {
    // Groups of their own have finalizers of their own.
    const OWN: [&str; 5] = [
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "admissionregistration.k8s.io",
        "coordination.k8s.io",
        "node.k8s.io",
    ];
    Scheme {
        name: names::subdomain,
        namespaced: resource.scope == ResourceScope::Namespaced,
        known_finalizers: !OWN.contains(&resource.group) && resource.custom.is_none(),
    }
}

/// Checks a place by a block of rules, for functions that decide when.
pub(super) fn check(block: &str, at: &At, e: &mut Errors) {
    let Some(index) = RULES.by_name.get(block) else { unreachable!("there are no rules {block}") };
    let scheme = Scheme { name: names::subdomain, namespaced: false, known_finalizers: true };
    RULES.blocks[*index].run(at, &scheme, e);
}

/// Whether a place has faults by a block of rules.
pub(super) fn is_faulty(block: &str, at: &At) -> bool {
    let mut e = Vec::new();
    check(block, at, &mut e);
    !e.is_empty()
}

impl Block {
    fn run(&self, at: &At, scheme: &Scheme, e: &mut Errors) {
        self.fields.find(at, |values| self.rules.iter().for_each(|rule| rule.run(at, values, scheme, e)));
    }
}

impl Rule {
    fn run(&self, at: &At, values: &Values, scheme: &Scheme, e: &mut Errors) {
        if !self.when.iter().all(|test| test.holds(at, values)) {
            return;
        }
        for target in &self.targets {
            let absent = target.first.is_some_and(|first| values[first].is_null());
            if !(absent && target.optional) {
                target.place.visit(at, target.first, values, &mut |at| self.check(at, scheme, e));
            }
        }
    }

    fn check(&self, at: &At, scheme: &Scheme, e: &mut Errors) {
        for check in &self.checks {
            if check.run(at, scheme, e).is_break() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::schema;

    #[test]
    fn the_tables_parse_and_every_stored_kind_has_rules() {
        for resource in schema().resources().iter().filter(|resource| resource.verbs.contains(&"update")) {
            let kind = kind(resource);
            assert!(kind.is_some(), "{} {} has no rules", resource.group, resource.kind);
            let parts = kind.map(|kind| kind.parts.keys().copied().collect::<Vec<_>>()).unwrap_or_default();
            for part in parts.into_iter().filter(|part| *part != "warnings") {
                assert!(resource.subresource(part).is_some(), "{} has no {part}", resource.kind);
            }
        }
    }
}
