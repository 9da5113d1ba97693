//! Conditions of rules: `create`, `change`, `regenerated`, `type=Localhost`, `!secretRef`, `some(rules)`,
//! `true(suspend)`, `completions>0`, `differs(ready)`, `is(Complete)` and `was(Complete|Failed)` for status conditions.
//!
//! `starts(uri,https://)`, `has(actions,Deny)`, `minus(limit)`, `plus(value)`, `same(a,b)`, `less(a,b)` test strings,
//! lists, quantities and integers.
//! `none(a|b)`, `one(a|b)`, `many(a|b)` count set fields, `any(a|b)` requires one that is not empty.
//! Paths start at the struct, with `/` at the root, with `../` one level up; `old:` reads the old object.

use super::{
    FieldCursor,
    block_fields::{BlockFields, FieldValues},
};
use crate::{Value, render};

static NULL: Value = Value::Null;

/// A condition.
pub(super) struct RuleCondition {
    path: ConditionPath,
    kind: ConditionKind,
    not: bool,
}

/// The kinds of conditions; their words are documented in `docs/validation-rules.md`.
enum ConditionKind {
    Changing,
    Regenerated,
    Different,
    Condition(Vec<&'static str>),
    There,
    Some,
    Any(Vec<&'static str>),
    Count(Vec<&'static str>, std::ops::RangeInclusive<usize>),
    Blank,
    String,
    Object,
    List,
    Bool(bool),
    Text(Vec<&'static str>),
    Greater(i64),
    Starts(&'static str),
    Has(&'static str),
    Sign(i32),
    Same(ConditionPath),
    Less(ConditionPath),
}

/// The path from a struct to a value.
struct ConditionPath {
    old: bool,
    from_top: bool,
    up: usize,
    steps: Vec<&'static str>,
    /// The position of the first step among the block's fields.
    first: Option<usize>,
}

impl RuleCondition {
    /// Parses a condition.
    pub fn parse(text: &'static str) -> Self {
        let (not, bare) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
        let called = bare.strip_suffix(')').and_then(|text| text.split_once('('));
        let (path, is, negated) = match (bare, called) {
            ("change", _) => ("", ConditionKind::Changing, false),
            ("create", _) => ("", ConditionKind::Changing, true),
            ("regenerated", _) => ("", ConditionKind::Regenerated, false),
            (_, Some((name, argument))) => {
                let (path, is) =
                    parse_condition_call(name, argument).unwrap_or_else(|| panic!("there is no condition {text}"));
                (path, is, false)
            }
            _ => parse_comparison(bare),
        };
        RuleCondition { path: ConditionPath::parse(path), kind: is, not: not != negated }
    }

    /// The first field of its path, if it starts with one.
    pub fn first_field(&self) -> Option<&'static str> {
        let own = !self.path.old && !self.path.from_top && self.path.up == 0;
        self.path.steps.first().copied().filter(|_| own)
    }

    /// Resolves the position of the first field.
    pub fn resolve_fields(&mut self, fields: &BlockFields) {
        self.path.first = self.first_field().and_then(|name| fields.field_position(name));
    }

    /// Whether the condition is met for a struct with these values.
    pub fn is_met(&self, at: &FieldCursor, values: &FieldValues) -> bool {
        let value = || self.path.current_value(at, values);
        let holds = match &self.kind {
            ConditionKind::Changing => at.is_update(),
            ConditionKind::Regenerated => {
                let whole = at.root();
                !at.is_update() || whole.get("metadata").get("generation").is_changed()
            }
            ConditionKind::Different => !render::semantically_equal(value(), self.path.old_value(at)),
            ConditionKind::Condition(types) => {
                let list = value().as_array().into_iter().flatten();
                let is = |condition: &Value, kind: &&str| condition["type"] == **kind && condition["status"] == "True";
                list.into_iter().any(|condition| types.iter().any(|kind| is(condition, kind)))
            }
            ConditionKind::There => !value().is_null(),
            ConditionKind::Count(fields, range) => {
                range.contains(&fields.iter().filter(|field| at.value.get(field).is_some()).count())
            }
            ConditionKind::Blank => value().as_str().is_some_and(|text| !text.is_empty() && text.trim().is_empty()),
            ConditionKind::String => value().is_string(),
            ConditionKind::Object => value().is_object(),
            ConditionKind::List => value().is_array(),
            ConditionKind::Some => is_nonempty(value()),
            ConditionKind::Any(fields) => fields.iter().any(|field| at.value.get(field).is_some_and(is_nonempty)),
            ConditionKind::Bool(wanted) => value() == &Value::Bool(*wanted),
            ConditionKind::Text(texts) => texts.contains(&value().as_str().unwrap_or_default()),
            ConditionKind::Starts(prefix) => value().as_str().unwrap_or_default().starts_with(prefix),
            ConditionKind::Has(text) => value().as_array().is_some_and(|list| list.iter().any(|item| item == *text)),
            ConditionKind::Sign(sign) => FieldCursor::for_create(value()).quantity_sign() == *sign,
            ConditionKind::Same(other) => value() == other.current_value(at, values),
            ConditionKind::Less(other) => {
                value().as_i64().unwrap_or_default() < other.current_value(at, values).as_i64().unwrap_or_default()
            }
            ConditionKind::Greater(number) => value().as_i64().unwrap_or_default() > *number,
        };
        holds != self.not
    }
}

/// Parses `name(argument)` into path and kind.
fn parse_condition_call(name: &str, argument: &'static str) -> Option<(&'static str, ConditionKind)> {
    let list = || argument.split('|').collect::<Vec<_>>();
    let (path, other) = argument.split_once(',').unwrap_or((argument, ""));
    Some(match name {
        "any" => ("", ConditionKind::Any(list())),
        "none" => ("", ConditionKind::Count(list(), 0..=0)),
        "one" => ("", ConditionKind::Count(list(), 1..=1)),
        "many" => ("", ConditionKind::Count(list(), 2..=usize::MAX)),
        "is" => ("/status.conditions", ConditionKind::Condition(list())),
        "was" => ("old:/status.conditions", ConditionKind::Condition(list())),
        "starts" => (path, ConditionKind::Starts(other)),
        "has" => (path, ConditionKind::Has(other)),
        "same" => (path, ConditionKind::Same(ConditionPath::parse(other))),
        "less" => (path, ConditionKind::Less(ConditionPath::parse(other))),
        "some" => (argument, ConditionKind::Some),
        "minus" => (argument, ConditionKind::Sign(-1)),
        "plus" => (argument, ConditionKind::Sign(1)),
        "blank" => (argument, ConditionKind::Blank),
        "object" => (argument, ConditionKind::Object),
        "list" => (argument, ConditionKind::List),
        "text" => (argument, ConditionKind::String),
        "differs" => (argument, ConditionKind::Different),
        "true" => (argument, ConditionKind::Bool(true)),
        "false" => (argument, ConditionKind::Bool(false)),
        _ => return None,
    })
}

/// Parses `type=A|B`, `type!=A`, `count>0`, or presence; the last part is whether it is negated.
fn parse_comparison(text: &'static str) -> (&'static str, ConditionKind, bool) {
    match (text.split_once("!="), text.split_once('='), text.split_once('>')) {
        (Some((path, texts)), ..) => (path, ConditionKind::Text(texts.split('|').collect()), true),
        (_, Some((path, texts)), _) => (path, ConditionKind::Text(texts.split('|').collect()), false),
        (_, _, Some((path, number))) => {
            (path, ConditionKind::Greater(number.parse().expect("a number after >")), false)
        }
        _ => (text, ConditionKind::There, false),
    }
}

/// Whether a value is present and not empty.
fn is_nonempty(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Number(number) => number.as_i64() != Some(0),
        Value::Bool(_) => true,
    }
}

impl ConditionPath {
    fn parse(text: &'static str) -> Self {
        let (old, text) = text.strip_prefix("old:").map_or((false, text), |rest| (true, rest));
        let (from_top, mut text) = text.strip_prefix('/').map_or((false, text), |rest| (true, rest));
        let mut up = 0;
        while let Some(rest) = text.strip_prefix("../") {
            (up, text) = (up + 1, rest);
        }
        Self { old, from_top, up, steps: text.split('.').filter(|step| !step.is_empty()).collect(), first: None }
    }

    /// The old value.
    fn old_value<'v>(&self, at: &FieldCursor<'v, '_>) -> &'v Value {
        self.steps.iter().fold(at.ancestor(self.up).old, |value, step| value.get(step).unwrap_or(&NULL))
    }

    fn current_value<'v>(&self, at: &FieldCursor<'v, '_>, values: &FieldValues<'v>) -> &'v Value {
        let follow = |value: &'v Value, step: &&str| value.get(*step).unwrap_or(&NULL);
        if let Some(first) = self.first {
            return self.steps[1..].iter().fold(values[first], follow);
        }
        let start = if self.from_top { at.root() } else { at.ancestor(self.up) };
        let value = if self.old { start.old } else { start.value };
        self.steps.iter().fold(value, follow)
    }
}
