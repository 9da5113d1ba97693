//! When a rule holds: `create`, `change`, `regenerated`, `type=Localhost`, `!secretRef`, `some(rules)`, `true(suspend)`, `completions>0`,
//! `differs(ready)`, `is(Complete)` and `was(Complete|Failed)` for conditions of the status.
//!
//! `starts(uri,https://)`, `has(actions,Deny)`, `minus(limit)`, `plus(value)`, `same(a,b)`, `less(a,b)` look at texts, lists, amounts
//! and numbers.
//! `none(a|b)`, `one(a|b)`, `many(a|b)` count fields that are set, `any(a|b)` asks for one that is not empty.
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
    /// One of these fields has something in it.
    Any(Vec<&'static str>),
    /// Of these fields so many are set.
    Count(Vec<&'static str>, std::ops::RangeInclusive<usize>),
    /// It is a text of blanks.
    Blank,
    /// It is a text.
    String,
    /// It is a struct or a map.
    Object,
    /// It is a list.
    List,
    /// It is this.
    Bool(bool),
    /// It is one of these texts.
    Text(Vec<&'static str>),
    /// It is greater than this number.
    Greater(i64),
    /// It is a text that begins so.
    Starts(&'static str),
    /// It is a list with this text.
    Has(&'static str),
    /// It is an amount of this sign.
    Sign(i32),
    /// It is the same as another value.
    Same(Path),
    /// It is a number, 0 if there is none, less than another.
    Less(Path),
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
        let (not, bare) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
        let called = bare.strip_suffix(')').and_then(|text| text.split_once('('));
        let (path, is, negated) = match (bare, called) {
            ("change", _) => ("", Is::Changing, false),
            ("create", _) => ("", Is::Changing, true),
            ("regenerated", _) => ("", Is::Regenerated, false),
            (_, Some((name, argument))) => {
                let (path, is) = word(name, argument).unwrap_or_else(|| panic!("there is no condition {text}"));
                (path, is, false)
            }
            _ => compared(bare),
        };
        Test { path: Path::parse(path), is, not: not != negated }
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
            Is::Count(fields, range) => {
                range.contains(&fields.iter().filter(|field| at.value.get(field).is_some()).count())
            }
            Is::Blank => value().as_str().is_some_and(|text| !text.is_empty() && text.trim().is_empty()),
            Is::String => value().is_string(),
            Is::Object => value().is_object(),
            Is::List => value().is_array(),
            Is::Some => is_some(value()),
            Is::Any(fields) => fields.iter().any(|field| at.value.get(field).is_some_and(is_some)),
            Is::Bool(wanted) => value() == &Value::Bool(*wanted),
            Is::Text(texts) => texts.contains(&value().as_str().unwrap_or_default()),
            Is::Starts(prefix) => value().as_str().unwrap_or_default().starts_with(prefix),
            Is::Has(text) => value().as_array().is_some_and(|list| list.iter().any(|item| item == *text)),
            Is::Sign(sign) => At::top(value()).sign() == *sign,
            Is::Same(other) => value() == other.value(at, values),
            Is::Less(other) => {
                value().as_i64().unwrap_or_default() < other.value(at, values).as_i64().unwrap_or_default()
            }
            Is::Greater(number) => value().as_i64().unwrap_or_default() > *number,
        };
        holds != self.not
    }
}

/// `name(argument)`: where it looks, and what must be there.
fn word(name: &str, argument: &'static str) -> Option<(&'static str, Is)> {
    let list = || argument.split('|').collect::<Vec<_>>();
    let (path, other) = argument.split_once(',').unwrap_or((argument, ""));
    Some(match name {
        "any" => ("", Is::Any(list())),
        "none" => ("", Is::Count(list(), 0..=0)),
        "one" => ("", Is::Count(list(), 1..=1)),
        "many" => ("", Is::Count(list(), 2..=usize::MAX)),
        "is" => ("/status.conditions", Is::Condition(list())),
        "was" => ("old:/status.conditions", Is::Condition(list())),
        "starts" => (path, Is::Starts(other)),
        "has" => (path, Is::Has(other)),
        "same" => (path, Is::Same(Path::parse(other))),
        "less" => (path, Is::Less(Path::parse(other))),
        "some" => (argument, Is::Some),
        "minus" => (argument, Is::Sign(-1)),
        "plus" => (argument, Is::Sign(1)),
        "blank" => (argument, Is::Blank),
        "object" => (argument, Is::Object),
        "list" => (argument, Is::List),
        "text" => (argument, Is::String),
        "differs" => (argument, Is::Different),
        "true" => (argument, Is::Bool(true)),
        "false" => (argument, Is::Bool(false)),
        _ => return None,
    })
}

/// `type=A|B`, `type!=A`, `count>0`, or only that something is there; the last part says whether it must not be so.
fn compared(text: &'static str) -> (&'static str, Is, bool) {
    match (text.split_once("!="), text.split_once('='), text.split_once('>')) {
        (Some((path, texts)), ..) => (path, Is::Text(texts.split('|').collect()), true),
        (_, Some((path, texts)), _) => (path, Is::Text(texts.split('|').collect()), false),
        (_, _, Some((path, number))) => (path, Is::Greater(number.parse().expect("a number after >")), false),
        _ => (text, Is::There, false),
    }
}

/// Whether a value is there that is not empty.
fn is_some(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Number(number) => number.as_i64() != Some(0),
        Value::Bool(_) => true,
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
