//! What stands in a cell, in the words of `schema/columns.txt`: read once, then worked out for every row.

use super::{functions, row::Row};
use crate::{Value, selector, time};

/// A cell: the first alternative that has something to say.
pub(super) struct Cell(Vec<Alternative>);

struct Alternative {
    when: Option<When>,
    term: Term,
}

/// A condition: how something is looked at, and what.
struct When(fn(&Row, &str, &str) -> bool, &'static str, &'static str);

enum Term {
    Literal(Value),
    Template(Vec<Part>),
    /// The elements at a path, what is printed of each, what stands between them, and how many are.
    List {
        path: &'static str,
        cell: Cell,
        between: &'static str,
        most: usize,
    },
    Call(fn(&Row, &str) -> Value, &'static str),
    Function(functions::Function),
}

/// A piece of text and the field after it.
struct Part {
    before: &'static str,
    /// What is put before the field, unless it is empty.
    sign: &'static str,
    path: &'static str,
    absent: &'static str,
    how: How,
}

enum How {
    Plain,
    Number,
    Lower,
}

type Call = fn(&Row, &str) -> Value;
type Question = fn(&Row, &str, &str) -> bool;

/// What is called with a path or a name.
const CALLS: &[(&str, Call)] = &[
    ("age", |row, path| row.since(path).into()),
    ("human", |row, path| time::human(row.number(path)).into()),
    ("raw", |row, path| row.at(path).cloned().unwrap_or_default()),
    ("quantity", |row, path| row.quantity(path).into()),
    ("labels", |row, path| labels(row.at(path)).into()),
    ("selector", |row, path| row.at(path).map(selector::text).unwrap_or_default().into()),
    ("count", |row, paths| paths.split(',').map(|path| row.count(path)).sum::<usize>().into()),
    ("note", |row, name| row.annotation(name).into()),
    ("bool", |row, words| {
        let (path, absent) = words.split_once(',').unwrap_or((words, "false"));
        row.at(path).and_then(Value::as_bool).unwrap_or(absent == "true").into()
    }),
    ("condition", |row, words| {
        let (ty, field) = words.split_once(',').unwrap_or((words, "status"));
        row.condition(ty).map_or("", |condition| condition.text(field)).into()
    }),
    ("latest", |row, types| latest(row, types, false).into()),
    ("latest_true", |row, types| latest(row, types, true).into()),
    ("modes", |row, path| access_modes(row, path).into()),
];

/// What can be asked of a path or a name.
const CONDITIONS: &[(&str, Question)] = &[
    ("some", |row, path, _| row.count(path) > 0 || !matches!(row.shown(path).as_str(), "" | "0")),
    ("true", |row, path, _| row.is_true(path)),
    ("has", |row, ty, _| row.condition(ty).is_some()),
    ("is", |row, ty, _| row.holds(ty)),
    ("noted", |row, name, _| row.annotation(name) == "true"),
];

impl Cell {
    /// Reads a cell.
    pub fn parse(text: &'static str) -> Self {
        Self(split(text, " | ").map(Alternative::parse).collect())
    }

    /// What stands there; an array fills several columns.
    pub fn value(&self, row: &Row) -> Value {
        self.find(row).unwrap_or_else(|| "".into())
    }

    /// What stands there, if any alternative is meant for the row.
    fn find(&self, row: &Row) -> Option<Value> {
        for (left, alternative) in (0..self.0.len()).rev().zip(&self.0) {
            match &alternative.when {
                Some(When(holds, subject, other)) if holds(row, subject, other) => {
                    return Some(alternative.term.value(row));
                }
                Some(_) => {}
                None => {
                    let value = alternative.term.value(row);
                    if left == 0 || value.as_str() != Some("") {
                        return Some(value);
                    }
                }
            }
        }
        None
    }
}

impl Alternative {
    fn parse(text: &'static str) -> Self {
        match split_once(text, " ? ") {
            Some((when, term)) => Self { when: Some(When::parse(when)), term: Term::parse(term) },
            None => Self { when: None, term: Term::parse(text) },
        }
    }
}

impl When {
    fn parse(text: &'static str) -> Self {
        if let Some((name, argument)) = call(text) {
            let known = CONDITIONS.iter().find(|(known, _)| *known == name);
            return When(known.unwrap_or_else(|| panic!("cells have an unknown condition {text:?}")).1, argument, "");
        }
        if let Some((path, wanted)) = text.split_once('=') {
            return When(|row, path, wanted| row.text(path) == wanted, path, wanted);
        }
        match text.split_once('>') {
            Some((path, bound)) => When(|row, path, bound| Some(row.number(path)) > bound.parse().ok(), path, bound),
            None => When(|row, path, _| row.at(path).is_some(), text, ""),
        }
    }
}

impl Term {
    fn parse(text: &'static str) -> Self {
        let quoted = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
        match (text.as_bytes()[0], call(text)) {
            (b'\'' | b'<', _) => Term::Literal(quoted.unwrap_or(text).into()),
            (b'0'..=b'9', _) => Term::Literal(text.parse::<i64>().expect("a number").into()),
            (b'@', _) => Term::Function(functions::of(&text[1..])),
            (b'#', _) => Term::Call(|row, path| row.number(path).into(), &text[1..]),
            (_, Some((name, argument))) => Self::call(name, argument),
            _ if text.contains('{') => Term::Template(parts(text)),
            _ => Term::Call(|row, path| row.text(path).into(), text),
        }
    }

    fn call(name: &str, argument: &'static str) -> Self {
        let (between, most) = match name {
            "list" => (",", usize::MAX),
            "spaced" => (", ", usize::MAX),
            "three" => (",", 3),
            _ => {
                let known = CALLS.iter().find(|(known, _)| *known == name);
                return Term::Call(known.unwrap_or_else(|| panic!("cells have an unknown word {name:?}")).1, argument);
            }
        };
        let (path, inner) = argument.split_once(',').unwrap_or((argument, "{}"));
        Term::List { path, cell: Cell::parse(inner), between, most }
    }

    fn value(&self, row: &Row) -> Value {
        match self {
            Term::Literal(value) => value.clone(),
            Term::Call(call, argument) => call(row, argument),
            Term::Function(function) => function(row),
            Term::Template(parts) => parts.iter().map(|part| part.text(row)).collect::<String>().into(),
            Term::List { path, cell, between, most } => {
                let mut texts = Vec::new();
                elements(*row, path, &mut |item| {
                    texts.extend(cell.find(&item).and_then(|v| v.as_str().map(str::to_owned)))
                });
                cut(&texts, *most, between).into()
            }
        }
    }
}

impl Part {
    fn text(&self, row: &Row) -> String {
        let text = match self.how {
            How::Number => row.number(self.path).to_string(),
            How::Lower => row.text(self.path).to_lowercase(),
            How::Plain if self.path.is_empty() => row.object.as_str().unwrap_or_default().to_owned(),
            How::Plain => row.shown(self.path),
        };
        match text.as_str() {
            "" => [self.before, self.absent].concat(),
            text => [self.before, self.sign, text].concat(),
        }
    }
}

/// `a{b|c}d` in its parts.
fn parts(text: &'static str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, (field, after))) =
        rest.split_once('{').and_then(|(before, inner)| Some((before, inner.split_once('}')?)))
    {
        let sign = if field.starts_with(['.', '/']) { &field[..1] } else { "" };
        let (field, absent) = field[sign.len()..].split_once('|').unwrap_or((&field[sign.len()..], ""));
        let (how, path) = match field.as_bytes().first() {
            Some(b'#') => (How::Number, &field[1..]),
            Some(b'~') => (How::Lower, &field[1..]),
            _ => (How::Plain, field),
        };
        parts.push(Part { before, sign, path, absent, how });
        rest = after;
    }
    // What follows the last field stands before one that is never there.
    parts.push(Part { before: rest, sign: "", path: "-", absent: "", how: How::Plain });
    parts
}

/// Calls `visit` for every element that a path such as `endpoints[].addresses[]` means.
fn elements<'a>(row: Row<'a>, path: &str, visit: &mut dyn FnMut(Row<'a>)) {
    let Some((list, rest)) = path.split_once("[]") else { return };
    for item in row.list(list) {
        match rest.strip_prefix('.') {
            Some(rest) => elements(item, rest, visit),
            None => visit(item),
        }
    }
}

/// The first of some texts and how many more there are.
pub(super) fn cut(list: &[String], most: usize, between: &str) -> String {
    let shown = list[..list.len().min(most)].join(between);
    if list.len() > most { format!("{shown} + {} more...", list.len() - most) } else { shown }
}

/// `a=1,b=2`, or `<none>`.
fn labels(labels: Option<&Value>) -> String {
    let entries = labels.and_then(Value::as_object).into_iter().flatten();
    let mut pairs: Vec<String> =
        entries.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    pairs.sort();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// The type of the last condition that is one of some, and true where that is asked for.
fn latest<'a>(row: &Row<'a>, types: &str, holds: bool) -> &'a str {
    let mut conditions = row.list("status.conditions").filter(|one| !holds || one.text("status") == "True");
    let known = conditions.rfind(|condition| types.split('/').any(|ty| ty == condition.text("type")));
    known.map_or("", |condition| condition.text("type"))
}

fn access_modes(row: &Row, path: &str) -> String {
    const SHORT: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let named = SHORT.iter().filter(|(mode, _)| row.list(path).any(|given| given.object == mode));
    named.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

/// `name(argument)` in two.
fn call(text: &'static str) -> Option<(&'static str, &'static str)> {
    let (name, argument) = text.strip_suffix(')')?.split_once('(')?;
    name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_').then_some((name, argument))
}

/// The parts between separators that stand in no parentheses.
fn split(text: &'static str, separator: &'static str) -> impl Iterator<Item = &'static str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let whole = rest?;
        let (part, after) = split_once(whole, separator).map_or((whole, None), |(part, after)| (part, Some(after)));
        rest = after;
        Some(part)
    })
}

fn split_once(text: &'static str, separator: &str) -> Option<(&'static str, &'static str)> {
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
    fn cells_are_the_first_alternative_that_says_something() {
        let object = json!({"a": "x", "n": 5, "zero": 0, "empty": "", "list": ["1", "2", "3", "4", "5"],
            "ports": [{"port": 1, "name": "p"}, {"port": 2}], "status": {"conditions": [{"type": "R", "status": "True"}]}});
        let check = |cell: &'static str, want: Value| {
            let row = Row { object: &object, now: Timestamp::UNIX_EPOCH };
            assert_eq!(Cell::parse(cell).value(&row), want, "{cell}");
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
