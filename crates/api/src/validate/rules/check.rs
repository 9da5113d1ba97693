//! What a rule can demand of a value, in upstream's words.

use std::{collections::HashMap, ops::ControlFlow};

use super::{At, Errors, Function, RULES, Scheme, WithArgument, choice::Choices, shown::Shown};
use crate::{
    Value,
    validate::{
        at::IMMUTABLE,
        error::{Fault, FieldError},
        metadata, names, tables,
    },
};

/// A check and its message, where it is not the usual one.
pub(super) struct Check {
    demand: Demand,
    message: Option<String>,
}

/// What is demanded.
enum Demand {
    /// `Container`: what another block says.
    Block(usize),
    /// `@selector`: what a function says.
    Function(Function),
    /// `@limited(container)`: what a function says that takes an argument.
    WithArgument(WithArgument, &'static str),
    /// `changed`: what changed of metadata is right.
    Changed,
    /// `whole`: metadata is right as that of a new object.
    Whole,
    /// `required`: it is not empty; otherwise the line ends.
    Required,
    /// `present`: it is there; otherwise the line ends.
    Present,
    /// `nonzero`: it is not 0; otherwise the line ends.
    Nonzero,
    /// `opt`: the line ends where it is empty or 0.
    Optional,
    /// `ptr`: the line ends where it is not there.
    Pointer,
    /// `label`: text has a form.
    Form(names::Form),
    /// `joined(label)`, `joined(label;)`: text has a form; its faults are told as one, with a sign between them.
    Joined(names::Form, &'static str),
    /// `nonblank`: there is more than blanks.
    Nonblank,
    /// `lone "things"`: `*` stands alone.
    Lone,
    /// `note(key) "why"`: an entry of this name is worth telling.
    Note(&'static str),
    /// `fresh(key) "why"`: a new entry of this name is worth telling.
    Fresh(&'static str),
    /// `names(name)`: elements that have a name have one of their own.
    Names(&'static str),
    /// `one(A,B)`: it is one of these, if it is there.
    One(Vec<&'static str>),
    /// `is(A,B)`: it is one of these.
    Is(Vec<&'static str>),
    /// `ge(0)`, `le(9)`, `range(0,9)`: the number, if any, is in a range.
    Range(i64, i64),
    /// `within(0,9)`: the number, 0 if there is none, is in a range.
    Within(i64, i64),
    /// `atmost(replicas) "why"`: the number is at most that of another field.
    AtMost(&'static str),
    /// `long(9) "why"`, `many(9) "why"`, `long(9,'') "why"`: it has at most so many; otherwise the line
    /// ends.
    Few(usize, Shown),
    /// `one_item "why"`: it has exactly one element.
    OneItem,
    /// `maxlen(9)`: it has at most so many bytes.
    Length(usize),
    /// `most(9)`: it has at most so many elements; otherwise the line ends.
    Most(usize),
    /// `unique(name)`, `unique()`: elements differ in a field, or at all.
    Unique(&'static str),
    /// `distinct(name)`: as `unique`, told at the element.
    Distinct(&'static str),
    /// `fixed`: it does not change.
    Fixed(Shown),
    /// `kept "why"`: it does not change; to do it is forbidden.
    Kept,
    /// `forbid "why"`: it is not there.
    Forbid,
    /// `empty "why"`: nothing is in it.
    Empty,
    /// `invalid "why"`: under the rule's conditions it is wrong.
    Invalid(Shown),
    /// `missing "why"`: under the rule's conditions something must be there.
    Missing,
    /// `refuse "why"`: under the rule's conditions it is forbidden.
    Refuse,
    /// `unsupported(A,B)`, `unsupported(type:A,B)`: under the rule's conditions it is none of these.
    Unsupported(Shown, Vec<&'static str>),
    /// `warn "why"`: it is not wrong, but worth telling.
    Warn,
    /// `say "what"`: something is worth telling, and not of one field.
    Say,
    /// `again(name)`: elements that are alike in a field are worth telling.
    Again(&'static str),
    /// `choose(a=A,b=B) "many|none"`: one of these fields is set, and right.
    Choose(Choices),
    /// `exactly(a,b)`: exactly one of these fields is set.
    Exactly(Vec<&'static str>),
}

impl Check {
    /// Reads a check.
    pub fn parse(word: &'static str, message: Option<String>, blocks: &HashMap<&'static str, usize>) -> Self {
        let (name, argument) = word.strip_suffix(')').and_then(|word| word.split_once('(')).unwrap_or((word, ""));
        Self { demand: demand(name, argument, blocks), message }
    }

    /// Whether a line ends here where nothing is there.
    pub fn ends_at_nothing(&self) -> bool {
        matches!(self.demand, Demand::Pointer | Demand::Optional)
    }

    /// Whether nothing is told where nothing is there.
    pub fn is_quiet_at_nothing(&self) -> bool {
        use Demand::{AtMost, Distinct, Empty, Few, Forbid, Length, Most, One, Range, Unique};
        let quiet = matches!(self.demand, Range(..) | Length(_) | Most(_) | One(_) | Forbid | Empty | Few(..));
        quiet || matches!(self.demand, AtMost(_) | Unique(_) | Distinct(_)) || self.ends_at_nothing()
    }

    /// Checks a value; what breaks ends the line.
    pub fn run(&self, at: &At, scheme: &Scheme, e: &mut Errors) -> ControlFlow<()> {
        let message = |usual: &str| self.message.as_deref().map_or_else(|| usual.to_owned(), |text| told(text, at));
        let missing = match &self.demand {
            Demand::Optional if at.is_empty() && at.int() == 0 => return ControlFlow::Break(()),
            Demand::Pointer if !at.exists() => return ControlFlow::Break(()),
            Demand::Required => at.is_empty(),
            Demand::Present => !at.exists(),
            Demand::Nonzero => at.int() == 0,
            _ => false,
        };
        if missing {
            at.required(e, message(""));
            return ControlFlow::Break(());
        }
        match &self.demand {
            Demand::Block(block) => RULES.blocks[*block].run(at, scheme, e),
            Demand::Function(function) => function(at, e),
            Demand::WithArgument(function, argument) => function(at, argument, e),
            Demand::Changed if at.is_change() => metadata::update(at, scheme.known_finalizers, e),
            Demand::Whole => metadata::object(at, *scheme, e),
            Demand::Form(form) => at.form(e, *form),
            Demand::Joined(form, between) => joined(at, *form, between, e),
            Demand::Nonblank if at.text().trim().is_empty() => at.required(e, message("")),
            Demand::Lone if at.len() > 1 && at.has("*") => {
                at.invalid(e, format!("if '*' is present, must not specify other {}", message("")));
            }
            Demand::Note(key) if at.key(key).exists() => at.key(key).warn(e, message("")),
            Demand::Fresh(key) if at.key(key).exists() && at.key(key).old.is_null() => at.key(key).warn(e, message("")),
            Demand::Names(field) => at.unique(
                |item| item.text_of(field),
                |item, text| {
                    if !text.is_empty() {
                        item.get(field).duplicate(e, text);
                    }
                },
            ),
            Demand::One(texts) => at.one_of(e, texts),
            Demand::Is(texts) if !texts.contains(&at.text()) => at.unsupported(e, texts),
            Demand::Range(low, high) if at.exists() && !(*low..=*high).contains(&at.int()) => {
                at.invalid(e, message(&in_range(*low, *high)));
            }
            Demand::Within(low, high) if !(*low..=*high).contains(&at.int()) => {
                at.invalid_int(e, message(&in_range(*low, *high)));
            }
            Demand::AtMost(field) if at.int() > at.up(1).get(field).int() => at.invalid(e, message("")),
            Demand::Few(most, shown) if at.len().max(at.text().len()) > *most => {
                at.invalid_as(e, shown.bad(at), message(""));
                return ControlFlow::Break(());
            }
            Demand::OneItem if at.len() != 1 => at.required(e, message("")),
            Demand::Length(most) if at.text().len() > *most => at.too_long(e, *most),
            Demand::Most(most) if at.len() > *most => {
                at.too_many(e, *most);
                return ControlFlow::Break(());
            }
            Demand::Unique(field) => at.unique(|item| key(item, field), |item, key| again(item, field, key, e)),
            Demand::Distinct(field) => at.unique(|item| key(item, field), |item, key| item.duplicate(e, key.clone())),
            Demand::Fixed(shown) if at.is_change() && at.differs() => {
                at.fault(e, Fault::Invalid(shown.bad(at)), message(IMMUTABLE));
            }
            Demand::Kept if at.is_change() && at.differs() => at.forbidden(e, message("")),
            Demand::Forbid if at.exists() => at.forbidden(e, message("")),
            Demand::Empty if !at.is_empty() || at.int() != 0 => at.forbidden(e, message("")),
            Demand::Invalid(shown) => at.fault(e, Fault::Invalid(shown.bad(at)), message("")),
            Demand::Missing => at.required(e, message("")),
            Demand::Refuse => at.forbidden(e, message("")),
            Demand::Unsupported(shown, texts) => at.unsupported_as(e, shown.bad(at), texts),
            Demand::Warn => at.warn(e, message("")),
            Demand::Say => e.push(FieldError::new("", Fault::Warning, message(""))),
            Demand::Again(field) => at.unique(
                |item| item.text_of(field),
                |item, text| item.get(field).warn(e, format!("duplicate {field} {text:?}")),
            ),
            Demand::Choose(choices) => {
                choices.check(at, self.message.as_deref().unwrap_or_default(), scheme, e);
            }
            Demand::Exactly(fields) => exactly(at, fields, e),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn demand(name: &'static str, argument: &'static str, blocks: &HashMap<&'static str, usize>) -> Demand {
    let list = || argument.split(',').collect::<Vec<_>>();
    let number = |text: &str| text.parse::<i64>().unwrap_or_else(|_| panic!("{name}({argument}) takes numbers"));
    let pair = || argument.split_once(',').map(|(low, high)| (number(low), number(high))).expect("two numbers");
    match name {
        "changed" => Demand::Changed,
        "whole" => Demand::Whole,
        "required" => Demand::Required,
        "present" => Demand::Present,
        "nonzero" => Demand::Nonzero,
        "opt" => Demand::Optional,
        "ptr" => Demand::Pointer,
        "joined" => {
            let (form, between) = argument.split_once(';').map_or((argument, ","), |(form, _)| (form, ";"));
            Demand::Joined(names::form(form).expect("a form of names"), between)
        }
        "nonblank" => Demand::Nonblank,
        "lone" => Demand::Lone,
        "note" => Demand::Note(argument),
        "fresh" => Demand::Fresh(argument),
        "names" => Demand::Names(argument),
        "one" => Demand::One(list()),
        "is" => Demand::Is(list()),
        "ge" => Demand::Range(number(argument), i64::MAX),
        "le" => Demand::Range(i64::MIN, number(argument)),
        "range" => Demand::Range(pair().0, pair().1),
        "positive" => Demand::Within(1, i64::MAX),
        "within" => Demand::Within(pair().0, pair().1),
        "port" => Demand::Within(1, 65535),
        "maxlen" => Demand::Length(number(argument).unsigned_abs() as usize),
        "most" => Demand::Most(number(argument).unsigned_abs() as usize),
        "unique" => Demand::Unique(argument),
        "distinct" => Demand::Distinct(argument),
        "fixed" => Demand::Fixed(Shown::parse(argument)),
        "kept" => Demand::Kept,
        "forbid" => Demand::Forbid,
        "empty" => Demand::Empty,
        "invalid" => Demand::Invalid(Shown::parse(argument)),
        "atmost" => Demand::AtMost(argument),
        "long" | "many" => {
            let (most, shown) = argument.split_once(',').unwrap_or((argument, ""));
            Demand::Few(number(most).unsigned_abs() as usize, Shown::parse(shown))
        }
        "one_item" => Demand::OneItem,
        "missing" => Demand::Missing,
        "refuse" => Demand::Refuse,
        "unsupported" => {
            let (shown, texts) = argument.split_once(':').unwrap_or(("text", argument));
            Demand::Unsupported(Shown::parse(shown), texts.split(',').collect())
        }
        "warn" => Demand::Warn,
        "say" => Demand::Say,
        "again" => Demand::Again(argument),
        "choose" => Demand::Choose(Choices::parse(argument, blocks)),
        "exactly" => Demand::Exactly(list()),
        _ => other(name, argument, blocks),
    }
}

/// A block, a function or a form of names.
fn other(name: &'static str, argument: &'static str, blocks: &HashMap<&'static str, usize>) -> Demand {
    if let Some(function) = name.strip_prefix('@') {
        let plain = tables::FUNCTIONS.iter().copied().flatten().find(|(known, _)| *known == function);
        let taking = tables::WITH_ARGUMENT.iter().copied().flatten().find(|(known, _)| *known == function);
        return match (plain, taking) {
            (Some((_, function)), _) => Demand::Function(*function),
            (None, Some((_, function))) => Demand::WithArgument(*function, argument),
            (None, None) => panic!("there is no function {function}"),
        };
    }
    match (blocks.get(name), names::form(name)) {
        (Some(block), _) => Demand::Block(*block),
        (None, Some(form)) => Demand::Form(form),
        (None, None) => panic!("the rules have an unknown word {name}"),
    }
}

/// A message; `{.field}` in it is the text or number of a field beside the value.
fn told(message: &str, at: &At) -> String {
    let Some((head, rest)) = message.split_once("{.") else { return message.to_owned() };
    let (field, tail) = rest.split_once('}').unwrap_or((rest, ""));
    let shown = match at.up(1).value.get(field) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    };
    format!("{head}{shown}{}", told(tail, at))
}

fn in_range(low: i64, high: i64) -> String {
    match (low, high) {
        (low, i64::MAX) => format!("must be greater than or equal to {low}"),
        (i64::MIN, high) => format!("must be less than or equal to {high}"),
        (low, high) => names::range(low, high),
    }
}

fn joined(at: &At, form: names::Form, between: &str, e: &mut Errors) {
    let faults = form(at.text());
    if !faults.is_empty() {
        at.invalid_text(e, faults.join(between));
    }
}

/// What an element is told apart by.
fn key<'v>(item: &At<'v, '_>, field: &str) -> &'v Value {
    static NONE: Value = Value::String(String::new());
    let value = if field.is_empty() { item.value } else { item.value.get(field).unwrap_or(&NONE) };
    if value.is_null() { &NONE } else { value }
}

fn again(item: &At, field: &'static str, key: &Value, e: &mut Errors) {
    if field.is_empty() { item.duplicate(e, key.clone()) } else { item.get(field).duplicate(e, key.clone()) }
}

fn exactly(at: &At, fields: &[&'static str], e: &mut Errors) {
    let quoted = |fields: &mut dyn Iterator<Item = &&str>| -> String {
        fields.map(|field| format!("`{field}`")).collect::<Vec<_>>().join(", ")
    };
    let is_set = |field: &&&str| at.value.get(**field).is_some();
    match fields.iter().filter(is_set).count() {
        0 => at.invalid_as(e, "", format!("must specify one of: {}", quoted(&mut fields.iter()))),
        1 => {}
        _ => {
            let given: Vec<&str> = fields.iter().filter(is_set).copied().collect();
            at.invalid_as(
                e,
                format!("{{{}}}", given.join(", ")),
                format!("must specify exactly one of: {}", quoted(&mut fields.iter())),
            );
        }
    }
}
