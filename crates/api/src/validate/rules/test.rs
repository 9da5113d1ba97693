//! When a rule holds: `create`, `change`, `regenerated`, `type=Localhost`, `!secretRef`, `some(rules)`, `true(suspend)`, `completions>0`,
//! `differs(ready)`, `is(Complete)` and `was(Complete|Failed)` for conditions of the status.
//!
//! Paths begin at the struct, with `/` at the whole object, with `../` a step above; `old:` means what was there before.

use super::{
    At,
    fields::{Fields, Values},
};
use crate::{Value, validate::render};

static NOTHING: Value = Value::Null;

/// One condition.
pub(super) struct Test {
    path: Path,
    is: Is,
    not: bool,
}

/// What a value must be.
enum Is {
    /// The object changes.
    Changing,
    /// The object is new, or its specification changed.
    Regenerated,
    /// It is not what it was.
    Different,
    /// A condition of one of these types is true.
    Condition(Vec<&'static str>),
    /// Something is there.
    There,
    /// Something with something in it is there.
    Some,
    /// It is this.
    Bool(bool),
    /// It is one of these texts.
    Text(Vec<&'static str>),
    /// It is greater than this number.
    Greater(i64),
}

/// The way from a struct to a value.
struct Path {
    old: bool,
    from_top: bool,
    up: usize,
    steps: Vec<&'static str>,
    /// Where the first step is among the fields of the block.
    first: Option<usize>,
}

impl Test {
    /// Reads a condition.
    pub fn parse(text: &'static str) -> Self {
        let test = |path: &'static str, is: Is, not: bool| Test { path: Path::parse(path), is, not };
        let (not, bare) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
        let inside = |name: &str| bare.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
        if bare == "change" || bare == "create" {
            return test("", Is::Changing, not != (bare == "create"));
        }
        if bare == "regenerated" {
            return test("", Is::Regenerated, not);
        }
        if let Some(path) = inside("some") {
            return test(path, Is::Some, not);
        }
        if let Some(path) = inside("differs") {
            return test(path, Is::Different, not);
        }
        if let Some(types) = inside("is") {
            return test("/status.conditions", Is::Condition(types.split('|').collect()), not);
        }
        if let Some(types) = inside("was") {
            return test("old:/status.conditions", Is::Condition(types.split('|').collect()), not);
        }
        if let Some((path, wanted)) = inside("true").map(|p| (p, true)).or(inside("false").map(|p| (p, false))) {
            return test(path, Is::Bool(wanted), not);
        }
        if let Some((path, texts)) = bare.split_once("!=") {
            return test(path, Is::Text(texts.split('|').collect()), !not);
        }
        if let Some((path, texts)) = bare.split_once('=') {
            return test(path, Is::Text(texts.split('|').collect()), not);
        }
        if let Some((path, number)) = bare.split_once('>') {
            return test(path, Is::Greater(number.parse().expect("a number after >")), not);
        }
        test(bare, Is::There, not)
    }

    /// The field of the struct that its path begins with, if it does so.
    pub fn first(&self) -> Option<&'static str> {
        let own = !self.path.old && !self.path.from_top && self.path.up == 0;
        self.path.steps.first().copied().filter(|_| own)
    }

    /// Remembers where the first field is.
    pub fn resolve(&mut self, fields: &Fields) {
        self.path.first = self.first().and_then(|name| fields.position(name));
    }

    /// Whether it holds at a struct with these values.
    pub fn holds(&self, at: &At, values: &Values) -> bool {
        let value = || self.path.value(at, values);
        let holds = match &self.is {
            Is::Changing => at.is_change(),
            Is::Regenerated => {
                let whole = at.whole();
                !at.is_change() || whole.get("metadata").get("generation").differs()
            }
            Is::Different => !render::same(value(), self.path.before(at)),
            Is::Condition(types) => {
                let list = value().as_array().into_iter().flatten();
                let is = |condition: &Value, kind: &&str| condition["type"] == **kind && condition["status"] == "True";
                list.into_iter().any(|condition| types.iter().any(|kind| is(condition, kind)))
            }
            Is::There => !value().is_null(),
            Is::Some => match value() {
                Value::Null => false,
                Value::String(text) => !text.is_empty(),
                Value::Array(list) => !list.is_empty(),
                Value::Object(map) => !map.is_empty(),
                Value::Number(number) => number.as_i64() != Some(0),
                Value::Bool(_) => true,
            },
            Is::Bool(wanted) => value() == &Value::Bool(*wanted),
            Is::Text(texts) => texts.contains(&value().as_str().unwrap_or_default()),
            Is::Greater(number) => value().as_i64().unwrap_or_default() > *number,
        };
        holds != self.not
    }
}

impl Path {
    fn parse(text: &'static str) -> Self {
        let (old, text) = text.strip_prefix("old:").map_or((false, text), |rest| (true, rest));
        let (from_top, mut text) = text.strip_prefix('/').map_or((false, text), |rest| (true, rest));
        let mut up = 0;
        while let Some(rest) = text.strip_prefix("../") {
            (up, text) = (up + 1, rest);
        }
        Self { old, from_top, up, steps: text.split('.').filter(|step| !step.is_empty()).collect(), first: None }
    }

    /// What was there.
    fn before<'v>(&self, at: &At<'v, '_>) -> &'v Value {
        self.steps.iter().fold(at.up(self.up).old, |value, step| value.get(step).unwrap_or(&NOTHING))
    }

    fn value<'v>(&self, at: &At<'v, '_>, values: &Values<'v>) -> &'v Value {
        let follow = |value: &'v Value, step: &&str| value.get(*step).unwrap_or(&NOTHING);
        if let Some(first) = self.first {
            return self.steps[1..].iter().fold(values[first], follow);
        }
        let start = if self.from_top { at.whole() } else { at.up(self.up) };
        let value = if self.old { start.old } else { start.value };
        self.steps.iter().fold(value, follow)
    }
}
