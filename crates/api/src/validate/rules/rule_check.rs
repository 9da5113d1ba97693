//! The checks of rules, with upstream's error messages.

use std::{collections::HashMap, ops::ControlFlow};

use super::{ErrorList, FieldCursor, MetadataRules, RULES, bad_value::BadValueFormat, union_choice::UnionChoices};
use crate::{
    Value,
    field_error::{FieldError, FieldErrorType},
    validate::{
        RuleFunction, RuleFunctionWithArgument, field_cursor::IMMUTABLE, metadata, name_formats, names, rule_functions,
    },
};

/// A check, with a message where it differs from the default.
pub(super) struct RuleCheck {
    kind: CheckKind,
    message: Option<String>,
}

/// The kinds of checks; their words are documented in `docs/validation-rules.md`.
enum CheckKind {
    Block(usize),
    Function(RuleFunction),
    WithArgument(RuleFunctionWithArgument, &'static str),
    Changed,
    Whole,
    Required,
    Present,
    Nonzero,
    Optional,
    Pointer,
    Form(names::NameRule),
    Joined(names::NameRule, &'static str),
    Nonblank,
    Lone,
    Note(&'static str),
    Fresh(&'static str),
    Names(&'static str),
    One(Vec<&'static str>),
    Is(Vec<&'static str>),
    Range(i64, i64),
    Within(i64, i64),
    AtMost(&'static str),
    Few(usize, BadValueFormat),
    OneItem,
    Length(usize),
    Most(usize),
    Unique(&'static str),
    Distinct(&'static str),
    Fixed(BadValueFormat),
    Kept,
    Forbid,
    Empty,
    Invalid(BadValueFormat),
    Missing,
    Refuse,
    Unsupported(BadValueFormat, Vec<&'static str>),
    Warn,
    Say,
    Again(&'static str),
    Choose(UnionChoices),
    Exactly(Vec<&'static str>),
}

impl RuleCheck {
    /// Parses a check.
    pub fn parse(word: &'static str, message: Option<String>, blocks: &HashMap<&'static str, usize>) -> Self {
        let (name, argument) = word.strip_suffix(')').and_then(|word| word.split_once('(')).unwrap_or((word, ""));
        Self { kind: parse_check(name, argument, blocks), message }
    }

    /// Whether the line ends here for an absent value.
    pub fn ends_line_if_absent(&self) -> bool {
        matches!(self.kind, CheckKind::Pointer | CheckKind::Optional)
    }

    /// Whether an absent value passes.
    pub fn ignores_absent(&self) -> bool {
        use CheckKind::{AtMost, Distinct, Empty, Few, Forbid, Length, Most, One, Range, Unique};
        let quiet = matches!(self.kind, Range(..) | Length(_) | Most(_) | One(_) | Forbid | Empty | Few(..));
        quiet || matches!(self.kind, AtMost(_) | Unique(_) | Distinct(_)) || self.ends_line_if_absent()
    }

    /// Runs the check; `Break` ends the line.
    pub fn run_check(&self, at: &FieldCursor, scheme: &MetadataRules, e: &mut ErrorList) -> ControlFlow<()> {
        let message =
            |usual: &str| self.message.as_deref().map_or_else(|| usual.to_owned(), |text| expand_message(text, at));
        let missing = match &self.kind {
            CheckKind::Optional if at.is_empty() && at.int() == 0 => return ControlFlow::Break(()),
            CheckKind::Pointer if !at.exists() => return ControlFlow::Break(()),
            CheckKind::Required => at.is_empty(),
            CheckKind::Present => !at.exists(),
            CheckKind::Nonzero => at.int() == 0,
            _ => false,
        };
        if missing {
            at.required(e, message(""));
            return ControlFlow::Break(());
        }
        match &self.kind {
            CheckKind::Block(block) => RULES.blocks[*block].run_block(at, scheme, e),
            CheckKind::Function(function) => function(at, e),
            CheckKind::WithArgument(function, argument) => function(at, argument, e),
            CheckKind::Changed if at.is_update() => {
                metadata::validate_object_meta_update(at, scheme.known_finalizers, e)
            }
            CheckKind::Whole => metadata::validate_object_meta(at, *scheme, e),
            CheckKind::Form(form) => at.check_format(e, *form),
            CheckKind::Joined(form, between) => check_joined(at, *form, between, e),
            CheckKind::Nonblank if at.text().trim().is_empty() => at.required(e, message("")),
            CheckKind::Lone if at.len() > 1 && at.contains_text("*") => {
                at.invalid(e, format!("if '*' is present, must not specify other {}", message("")));
            }
            CheckKind::Note(key) if at.entry(key).exists() => at.entry(key).warn(e, message("")),
            CheckKind::Fresh(key) if at.entry(key).exists() && at.entry(key).old.is_null() => {
                at.entry(key).warn(e, message(""))
            }
            CheckKind::Names(field) => at.for_each_duplicate(
                |item| item.text_at(field),
                |item, text| {
                    if !text.is_empty() {
                        item.get(field).duplicate(e, text);
                    }
                },
            ),
            CheckKind::One(texts) => at.require_one_of(e, texts),
            CheckKind::Is(texts) if !texts.contains(&at.text()) => at.not_supported(e, texts),
            CheckKind::Range(low, high) if at.exists() && !(*low..=*high).contains(&at.int()) => {
                at.invalid(e, message(&range_message(*low, *high)));
            }
            CheckKind::Within(low, high) if !(*low..=*high).contains(&at.int()) => {
                at.invalid_int(e, message(&range_message(*low, *high)));
            }
            CheckKind::AtMost(field) if at.int() > at.ancestor(1).get(field).int() => at.invalid(e, message("")),
            CheckKind::Few(most, shown) if at.len().max(at.text().len()) > *most => {
                at.invalid_as(e, shown.bad_value(at), message(""));
                return ControlFlow::Break(());
            }
            CheckKind::OneItem if at.len() != 1 => at.required(e, message("")),
            CheckKind::Length(most) if at.text().len() > *most => at.too_long(e, *most),
            CheckKind::Most(most) if at.len() > *most => {
                at.too_many(e, *most);
                return ControlFlow::Break(());
            }
            CheckKind::Unique(field) => {
                at.for_each_duplicate(|item| item_key(item, field), |item, key| report_duplicate(item, field, key, e))
            }
            CheckKind::Distinct(field) => {
                at.for_each_duplicate(|item| item_key(item, field), |item, key| item.duplicate(e, key.clone()))
            }
            CheckKind::Fixed(shown) if at.is_update() && at.is_changed() => {
                at.push_error(e, FieldErrorType::Invalid(shown.bad_value(at)), message(IMMUTABLE));
            }
            CheckKind::Kept if at.is_update() && at.is_changed() => at.forbidden(e, message("")),
            CheckKind::Forbid if at.exists() => at.forbidden(e, message("")),
            CheckKind::Empty if !at.is_empty() || at.int() != 0 => at.forbidden(e, message("")),
            CheckKind::Invalid(shown) => at.push_error(e, FieldErrorType::Invalid(shown.bad_value(at)), message("")),
            CheckKind::Missing => at.required(e, message("")),
            CheckKind::Refuse => at.forbidden(e, message("")),
            CheckKind::Unsupported(shown, texts) => at.not_supported_as(e, shown.bad_value(at), texts),
            CheckKind::Warn => at.warn(e, message("")),
            CheckKind::Say => e.push(FieldError::new("", FieldErrorType::Warning, message(""))),
            CheckKind::Again(field) => at.for_each_duplicate(
                |item| item.text_at(field),
                |item, text| item.get(field).warn(e, format!("duplicate {field} {text:?}")),
            ),
            CheckKind::Choose(choices) => {
                choices.check_choice(at, self.message.as_deref().unwrap_or_default(), scheme, e);
            }
            CheckKind::Exactly(fields) => check_exactly_one(at, fields, e),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn parse_check(name: &'static str, argument: &'static str, blocks: &HashMap<&'static str, usize>) -> CheckKind {
    let list = || argument.split(',').collect::<Vec<_>>();
    let number = |text: &str| text.parse::<i64>().unwrap_or_else(|_| panic!("{name}({argument}) takes numbers"));
    let pair = || argument.split_once(',').map(|(low, high)| (number(low), number(high))).expect("two numbers");
    match name {
        "changed" => CheckKind::Changed,
        "whole" => CheckKind::Whole,
        "required" => CheckKind::Required,
        "present" => CheckKind::Present,
        "nonzero" => CheckKind::Nonzero,
        "opt" => CheckKind::Optional,
        "ptr" => CheckKind::Pointer,
        "joined" => {
            let (form, between) = argument.split_once(';').map_or((argument, ","), |(form, _)| (form, ";"));
            CheckKind::Joined(name_formats::find_format(form).expect("a form of names"), between)
        }
        "nonblank" => CheckKind::Nonblank,
        "lone" => CheckKind::Lone,
        "note" => CheckKind::Note(argument),
        "fresh" => CheckKind::Fresh(argument),
        "names" => CheckKind::Names(argument),
        "one" => CheckKind::One(list()),
        "is" => CheckKind::Is(list()),
        "ge" => CheckKind::Range(number(argument), i64::MAX),
        "le" => CheckKind::Range(i64::MIN, number(argument)),
        "range" => CheckKind::Range(pair().0, pair().1),
        "positive" => CheckKind::Within(1, i64::MAX),
        "within" => CheckKind::Within(pair().0, pair().1),
        "port" => CheckKind::Within(1, 65535),
        "maxlen" => CheckKind::Length(number(argument).unsigned_abs() as usize),
        "most" => CheckKind::Most(number(argument).unsigned_abs() as usize),
        "unique" => CheckKind::Unique(argument),
        "distinct" => CheckKind::Distinct(argument),
        "fixed" => CheckKind::Fixed(BadValueFormat::parse(argument)),
        "kept" => CheckKind::Kept,
        "forbid" => CheckKind::Forbid,
        "empty" => CheckKind::Empty,
        "invalid" => CheckKind::Invalid(BadValueFormat::parse(argument)),
        "atmost" => CheckKind::AtMost(argument),
        "long" | "many" => {
            let (most, shown) = argument.split_once(',').unwrap_or((argument, ""));
            CheckKind::Few(number(most).unsigned_abs() as usize, BadValueFormat::parse(shown))
        }
        "one_item" => CheckKind::OneItem,
        "missing" => CheckKind::Missing,
        "refuse" => CheckKind::Refuse,
        "unsupported" => {
            let (shown, texts) = argument.split_once(':').unwrap_or(("text", argument));
            CheckKind::Unsupported(BadValueFormat::parse(shown), texts.split(',').collect())
        }
        "warn" => CheckKind::Warn,
        "say" => CheckKind::Say,
        "again" => CheckKind::Again(argument),
        "choose" => CheckKind::Choose(UnionChoices::parse(argument, blocks)),
        "exactly" => CheckKind::Exactly(list()),
        _ => parse_named_check(name, argument, blocks),
    }
}

/// Parses a block, a function or a name format.
fn parse_named_check(name: &'static str, argument: &'static str, blocks: &HashMap<&'static str, usize>) -> CheckKind {
    if let Some(function) = name.strip_prefix('@') {
        let plain = rule_functions::RULE_FUNCTIONS.iter().copied().flatten();
        let plain = plain.into_iter().find(|(known, _)| rule_functions::function_word(known) == function);
        let taking = rule_functions::RULE_FUNCTIONS_WITH_ARGUMENT.iter().copied().flatten();
        let taking = taking.into_iter().find(|(known, _)| rule_functions::function_word(known) == function);
        return match (plain, taking) {
            (Some((_, function)), _) => CheckKind::Function(*function),
            (None, Some((_, function))) => CheckKind::WithArgument(*function, argument),
            (None, None) => panic!("there is no function {function}"),
        };
    }
    match (blocks.get(name), name_formats::find_format(name)) {
        (Some(block), _) => CheckKind::Block(*block),
        (None, Some(form)) => CheckKind::Form(form),
        (None, None) => panic!("the rules have an unknown word {name}"),
    }
}

/// Expands `{.field}` in a message to a field beside the value.
fn expand_message(message: &str, at: &FieldCursor) -> String {
    let Some((head, rest)) = message.split_once("{.") else { return message.to_owned() };
    let (field, tail) = rest.split_once('}').unwrap_or((rest, ""));
    let shown = match at.ancestor(1).value.get(field) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    };
    format!("{head}{shown}{}", expand_message(tail, at))
}

fn range_message(low: i64, high: i64) -> String {
    match (low, high) {
        (low, i64::MAX) => format!("must be greater than or equal to {low}"),
        (i64::MIN, high) => format!("must be less than or equal to {high}"),
        (low, high) => names::inclusive_range_error(low, high),
    }
}

fn check_joined(at: &FieldCursor, form: names::NameRule, between: &str, e: &mut ErrorList) {
    let faults = form(at.text());
    if !faults.is_empty() {
        at.invalid_text(e, faults.join(between));
    }
}

/// The key of an element.
fn item_key<'v>(item: &FieldCursor<'v, '_>, field: &str) -> &'v Value {
    static NONE: Value = Value::String(String::new());
    let value = if field.is_empty() { item.value } else { item.value.get(field).unwrap_or(&NONE) };
    if value.is_null() { &NONE } else { value }
}

fn report_duplicate(item: &FieldCursor, field: &'static str, key: &Value, e: &mut ErrorList) {
    if field.is_empty() { item.duplicate(e, key.clone()) } else { item.get(field).duplicate(e, key.clone()) }
}

fn check_exactly_one(at: &FieldCursor, fields: &[&'static str], e: &mut ErrorList) {
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
