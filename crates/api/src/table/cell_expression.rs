//! Cell expressions of `schema/columns.txt`, parsed once and evaluated per row.

use super::{join_truncated, printed_object::PrintedObject, printer_functions};
use crate::{Value, selector, time};

/// A cell: the first alternative with a value.
pub(super) struct CellExpression(Vec<CellAlternative>);

struct CellAlternative {
    when: Option<CellCondition>,
    term: CellTerm,
}

/// A condition: the test, its subject and its operand.
struct CellCondition(fn(&PrintedObject, &str, &str) -> bool, &'static str, &'static str);

enum CellTerm {
    Literal(Value),
    Template(Vec<TemplatePart>),
    /// The elements at a path, the cell of each, the separator, and the maximum number.
    List {
        path: &'static str,
        cell: CellExpression,
        between: &'static str,
        most: usize,
    },
    Call(fn(&PrintedObject, &str) -> Value, &'static str),
    Function(printer_functions::PrinterFunction),
}

/// Literal text followed by a field.
struct TemplatePart {
    before: &'static str,
    /// The sign before a field that is not empty.
    sign: &'static str,
    path: &'static str,
    absent: &'static str,
    format: FieldFormat,
}

enum FieldFormat {
    Plain,
    Number,
    Lower,
}

type CellFunction = fn(&PrintedObject, &str) -> Value;
type ConditionFunction = fn(&PrintedObject, &str, &str) -> bool;

/// The functions of cells, called with a path or name.
const CELL_FUNCTIONS: &[(&str, CellFunction)] = &[
    ("age", |row, path| row.age_at(path).into()),
    ("human", |row, path| time::human_duration(row.integer_at(path)).into()),
    ("raw", |row, path| row.value_at(path).cloned().unwrap_or_default()),
    ("quantity", |row, path| row.quantity_at(path).into()),
    ("labels", |row, path| format_labels(row.value_at(path)).into()),
    ("selector", |row, path| row.value_at(path).map(selector::format_label_selector).unwrap_or_default().into()),
    ("count", |row, paths| paths.split(',').map(|path| row.count_at(path)).sum::<usize>().into()),
    ("note", |row, name| row.annotation(name).into()),
    ("bool", |row, words| {
        let (path, absent) = words.split_once(',').unwrap_or((words, "false"));
        row.value_at(path).and_then(Value::as_bool).unwrap_or(absent == "true").into()
    }),
    ("condition", |row, words| {
        let (ty, field) = words.split_once(',').unwrap_or((words, "status"));
        row.find_condition(ty).map_or("", |condition| condition.string_at(field)).into()
    }),
    ("latest", |row, types| latest_condition(row, types, false).into()),
    ("latest_true", |row, types| latest_condition(row, types, true).into()),
    ("modes", |row, path| format_access_modes(row, path).into()),
];

/// The functions of conditions, called with a path or name.
const CONDITION_FUNCTIONS: &[(&str, ConditionFunction)] = &[
    ("some", |row, path, _| row.count_at(path) > 0 || !matches!(row.format_at(path).as_str(), "" | "0")),
    ("true", |row, path, _| row.is_true(path)),
    ("has", |row, ty, _| row.find_condition(ty).is_some()),
    ("is", |row, ty, _| row.is_condition_true(ty)),
    ("noted", |row, name, _| row.annotation(name) == "true"),
];

impl CellExpression {
    /// Parses a cell.
    pub fn parse(text: &'static str) -> Self {
        Self(split_outside_parentheses(text, " | ").map(CellAlternative::parse).collect())
    }

    /// Evaluates the cell; an array fills several columns.
    pub fn evaluate(&self, row: &PrintedObject) -> Value {
        self.evaluate_alternatives(row).unwrap_or_else(|| "".into())
    }

    /// Evaluates the alternatives; `None` if none applies.
    fn evaluate_alternatives(&self, row: &PrintedObject) -> Option<Value> {
        for (left, alternative) in (0..self.0.len()).rev().zip(&self.0) {
            match &alternative.when {
                Some(CellCondition(holds, subject, other)) if holds(row, subject, other) => {
                    return Some(alternative.term.evaluate(row));
                }
                Some(_) => {}
                None => {
                    let value = alternative.term.evaluate(row);
                    if left == 0 || value.as_str() != Some("") {
                        return Some(value);
                    }
                }
            }
        }
        None
    }
}

impl CellAlternative {
    fn parse(text: &'static str) -> Self {
        match split_once_outside_parentheses(text, " ? ") {
            Some((when, term)) => Self { when: Some(CellCondition::parse(when)), term: CellTerm::parse(term) },
            None => Self { when: None, term: CellTerm::parse(text) },
        }
    }
}

impl CellCondition {
    fn parse(text: &'static str) -> Self {
        if let Some((name, argument)) = split_call(text) {
            let known = CONDITION_FUNCTIONS.iter().find(|(known, _)| *known == name);
            return CellCondition(
                known.unwrap_or_else(|| panic!("cells have an unknown condition {text:?}")).1,
                argument,
                "",
            );
        }
        if let Some((path, wanted)) = text.split_once('=') {
            return CellCondition(|row, path, wanted| row.string_at(path) == wanted, path, wanted);
        }
        match text.split_once('>') {
            Some((path, bound)) => {
                CellCondition(|row, path, bound| Some(row.integer_at(path)) > bound.parse().ok(), path, bound)
            }
            None => CellCondition(|row, path, _| row.value_at(path).is_some(), text, ""),
        }
    }
}

impl CellTerm {
    fn parse(text: &'static str) -> Self {
        let quoted = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
        match (text.as_bytes()[0], split_call(text)) {
            (b'\'' | b'<', _) => CellTerm::Literal(quoted.unwrap_or(text).into()),
            (b'0'..=b'9', _) => CellTerm::Literal(text.parse::<i64>().expect("a number").into()),
            (b'@', _) => CellTerm::Function(printer_functions::find_function(&text[1..])),
            (b'#', _) => CellTerm::Call(|row, path| row.integer_at(path).into(), &text[1..]),
            (_, Some((name, argument))) => Self::parse_call(name, argument),
            _ if text.contains('{') => CellTerm::Template(parse_template(text)),
            _ => CellTerm::Call(|row, path| row.string_at(path).into(), text),
        }
    }

    fn parse_call(name: &str, argument: &'static str) -> Self {
        let (between, most) = match name {
            "list" => (",", usize::MAX),
            "spaced" => (", ", usize::MAX),
            "three" => (",", 3),
            _ => {
                let known = CELL_FUNCTIONS.iter().find(|(known, _)| *known == name);
                return CellTerm::Call(
                    known.unwrap_or_else(|| panic!("cells have an unknown word {name:?}")).1,
                    argument,
                );
            }
        };
        let (path, inner) = argument.split_once(',').unwrap_or((argument, "{}"));
        CellTerm::List { path, cell: CellExpression::parse(inner), between, most }
    }

    fn evaluate(&self, row: &PrintedObject) -> Value {
        match self {
            CellTerm::Literal(value) => value.clone(),
            CellTerm::Call(call, argument) => call(row, argument),
            CellTerm::Function(function) => function(row),
            CellTerm::Template(parts) => parts.iter().map(|part| part.format_field(row)).collect::<String>().into(),
            CellTerm::List { path, cell, between, most } => {
                let mut texts = Vec::new();
                visit_elements(*row, path, &mut |item| {
                    texts.extend(cell.evaluate_alternatives(&item).and_then(|v| v.as_str().map(str::to_owned)))
                });
                join_truncated(&texts, *most, between).into()
            }
        }
    }
}

impl TemplatePart {
    fn format_field(&self, row: &PrintedObject) -> String {
        let text = match self.format {
            FieldFormat::Number => row.integer_at(self.path).to_string(),
            FieldFormat::Lower => row.string_at(self.path).to_lowercase(),
            FieldFormat::Plain if self.path.is_empty() => row.object.as_str().unwrap_or_default().to_owned(),
            FieldFormat::Plain => row.format_at(self.path),
        };
        match text.as_str() {
            "" => [self.before, self.absent].concat(),
            text => [self.before, self.sign, text].concat(),
        }
    }
}

/// Splits a template `a{b|c}d` into parts.
fn parse_template(text: &'static str) -> Vec<TemplatePart> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, (field, after))) =
        rest.split_once('{').and_then(|(before, inner)| Some((before, inner.split_once('}')?)))
    {
        let sign = if field.starts_with(['.', '/']) { &field[..1] } else { "" };
        let (field, absent) = field[sign.len()..].split_once('|').unwrap_or((&field[sign.len()..], ""));
        let (how, path) = match field.as_bytes().first() {
            Some(b'#') => (FieldFormat::Number, &field[1..]),
            Some(b'~') => (FieldFormat::Lower, &field[1..]),
            _ => (FieldFormat::Plain, field),
        };
        parts.push(TemplatePart { before, sign, path, absent, format: how });
        rest = after;
    }
    // The text after the last field precedes a field that never exists.
    parts.push(TemplatePart { before: rest, sign: "", path: "-", absent: "", format: FieldFormat::Plain });
    parts
}

/// Calls `visit` for every element of a path such as `endpoints[].addresses[]`.
fn visit_elements<'a>(row: PrintedObject<'a>, path: &str, visit: &mut dyn FnMut(PrintedObject<'a>)) {
    let Some((list, rest)) = path.split_once("[]") else { return };
    for item in row.list_at(list) {
        match rest.strip_prefix('.') {
            Some(rest) => visit_elements(item, rest, visit),
            None => visit(item),
        }
    }
}

/// Formats `a=1,b=2`, or `<none>`.
fn format_labels(labels: Option<&Value>) -> String {
    let entries = labels.and_then(Value::as_object).into_iter().flatten();
    let mut pairs: Vec<String> =
        entries.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    pairs.sort();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// The type of the last condition among `types`, optionally of those that are true.
fn latest_condition<'a>(row: &PrintedObject<'a>, types: &str, holds: bool) -> &'a str {
    let mut conditions = row.list_at("status.conditions").filter(|one| !holds || one.string_at("status") == "True");
    let known = conditions.rfind(|condition| types.split('/').any(|ty| ty == condition.string_at("type")));
    known.map_or("", |condition| condition.string_at("type"))
}

fn format_access_modes(row: &PrintedObject, path: &str) -> String {
    const SHORT: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let named = SHORT.iter().filter(|(mode, _)| row.list_at(path).any(|given| given.object == mode));
    named.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

/// Splits `name(argument)`.
fn split_call(text: &'static str) -> Option<(&'static str, &'static str)> {
    let (name, argument) = text.strip_suffix(')')?.split_once('(')?;
    name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_').then_some((name, argument))
}

/// Splits at separators outside of parentheses.
fn split_outside_parentheses(text: &'static str, separator: &'static str) -> impl Iterator<Item = &'static str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let whole = rest?;
        let (part, after) =
            split_once_outside_parentheses(whole, separator).map_or((whole, None), |(part, after)| (part, Some(after)));
        rest = after;
        Some(part)
    })
}

fn split_once_outside_parentheses(text: &'static str, separator: &str) -> Option<(&'static str, &'static str)> {
    let depth = |part: &str| part.matches('(').count().saturating_sub(part.matches(')').count());
    let (at, _) = text.match_indices(separator).find(|(at, _)| depth(&text[..*at]) == 0)?;
    Some((&text[..at], &text[at + separator.len()..]))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn first_nonempty_alternative_is_printed() {
        let object = json!({"a": "x", "n": 5, "zero": 0, "empty": "", "list": ["1", "2", "3", "4", "5"],
            "ports": [{"port": 1, "name": "p"}, {"port": 2}], "status": {"conditions": [{"type": "R", "status": "True"}]}});
        let check = |cell: &'static str, want: Value| {
            let row = PrintedObject { object: &object, now: Timestamp::UNIX_EPOCH };
            assert_eq!(CellExpression::parse(cell).evaluate(&row), want, "{cell}");
        };
        check("a", "x".into());
        check("empty | <none>", "<none>".into());
        check("empty ? empty | <none>", "".into());
        check("none ? a | 7", 7.into());
        check("#n", 5.into());
        check("{~a}-{b|none}{.a}{/b}!", "x-none.x!".into());
        check("list(ports[],name ? {#port}:{name} | {#port}) | 'no'", "1:p,2".into());
        check("spaced(ports[],name=p ? name)", "p".into());
        check("three(list[]) | <unset>", "1,2,3 + 2 more...".into());
        check("three(none[]) | <unset>", "<unset>".into());
        check("is(R) ? 'yes' | 'no'", "yes".into());
        check("some(zero) ? 'yes' | n>4 ? 'more' | 'no'", "more".into());
    }
}
