//! Path elements of field sets: a field, the keys of a list item, a value of a set, an index. Upstream:
//! structured-merge-diff's `fieldpath.PathElement`.

use std::{borrow::Cow, cmp::Ordering, fmt};

use crate::{Value, json::escape_html};

/// A field name; names from the tables are borrowed.
pub type FieldName = Cow<'static, str>;

/// One element of a field path. Fields sort before keys, keys before values, values before indexes.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// `f:name`: a field of a struct or a key of a map.
    Field(FieldName),
    /// `k:{"name":"c"}`: the list item with these keys, sorted by name.
    Key(Box<[(FieldName, Value)]>),
    /// `v:"x"`: a member of a set.
    Value(Box<Value>),
    /// `i:0`: a list item by position.
    Index(i64),
}

/// A malformed path element.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedElement {
    /// The text lacks the `x:` prefix.
    #[error("{0:?} does not begin with a letter and a colon")]
    Prefix(String),
    /// The content after the colon is malformed.
    #[error("cannot read {0:?}")]
    Content(String),
    /// The field set is not an object.
    #[error("a field set must be an object")]
    NoObject,
}

impl PathElement {
    /// Parses a path element; `None` for unknown kinds, which are ignored.
    pub fn parse(text: &str) -> Result<Option<Self>, MalformedElement> {
        let (kind, rest) = match text.as_bytes() {
            [kind, b':', ..] => (*kind, &text[2..]),
            _ => return Err(MalformedElement::Prefix(text.to_owned())),
        };
        let unreadable = || MalformedElement::Content(text.to_owned());
        Ok(match kind {
            b'f' => Some(PathElement::Field(rest.to_owned().into())),
            b'v' => Some(PathElement::Value(serde_json::from_str(rest).map_err(|_| unreadable())?)),
            b'i' => Some(PathElement::Index(rest.parse().map_err(|_| unreadable())?)),
            b'k' => {
                let keys: crate::Map = serde_json::from_str(rest).map_err(|_| unreadable())?;
                Some(PathElement::Key(keys.into_iter().map(|(name, value)| (name.into(), value)).collect()))
            }
            _ => None,
        })
    }

    /// Formats the element for `fieldsV1`: `f:name`, `k:{"name":"c"}`, `v:"x"`, `i:0`.
    pub fn serialize(&self) -> String {
        let json = |value: &Value| escape_html(value.to_string());
        match self {
            PathElement::Field(name) => ["f:", name].concat(),
            PathElement::Key(keys) => {
                let mut out = String::from("k:{");
                for (at, (name, value)) in keys.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    out.push_str(&json(&Value::String(name.to_string())));
                    out.push(':');
                    out.push_str(&json(value));
                }
                out.push('}');
                out
            }
            PathElement::Value(value) => ["v:", &json(value)].concat(),
            PathElement::Index(at) => format!("i:{at}"),
        }
    }

    fn sort_rank(&self) -> u8 {
        match self {
            PathElement::Field(_) => 0,
            PathElement::Key(_) => 1,
            PathElement::Value(_) => 2,
            PathElement::Index(_) => 3,
        }
    }
}

/// Formats the element for messages: `.name`, `[name="c"]`, `[="x"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathElement::Field(name) => write!(f, ".{name}"),
            PathElement::Key(keys) => {
                f.write_str("[")?;
                for (at, (name, value)) in keys.iter().enumerate() {
                    write!(f, "{}{name}={value}", if at > 0 { "," } else { "" })?;
                }
                f.write_str("]")
            }
            PathElement::Value(value) => write!(f, "[={value}]"),
            PathElement::Index(at) => write!(f, "[{at}]"),
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (PathElement::Field(a), PathElement::Field(b)) => a.cmp(b),
            (PathElement::Key(a), PathElement::Key(b)) => {
                let mut pairs =
                    a.iter().zip(b.iter()).map(|(a, b)| a.0.cmp(&b.0).then_with(|| compare_json(&a.1, &b.1)));
                pairs.find(|found| found.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
            }
            (PathElement::Value(a), PathElement::Value(b)) => compare_json(a, b),
            (PathElement::Index(a), PathElement::Index(b)) => a.cmp(b),
            _ => self.sort_rank().cmp(&other.sort_rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

/// A total order of JSON values: numbers, strings, booleans, lists, objects, null. 1 and 1.0 are equal.
fn compare_json(a: &Value, b: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    };
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => match (x.as_i64(), y.as_i64()) {
            (Some(x), Some(y)) => x.cmp(&y),
            _ => x.as_f64().unwrap_or_default().total_cmp(&y.as_f64().unwrap_or_default()),
        },
        (Value::String(x), Value::String(y)) => x.cmp(y),
        (Value::Bool(x), Value::Bool(y)) => x.cmp(y),
        (Value::Array(x), Value::Array(y)) => {
            let mut pairs = x.iter().zip(y).map(|(x, y)| compare_json(x, y));
            pairs.find(|found| found.is_ne()).unwrap_or_else(|| x.len().cmp(&y.len()))
        }
        (Value::Object(x), Value::Object(y)) => {
            let mut pairs = x.iter().zip(y).map(|(x, y)| x.0.cmp(y.0).then_with(|| compare_json(x.1, y.1)));
            pairs.find(|found| found.is_ne()).unwrap_or_else(|| x.len().cmp(&y.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}
