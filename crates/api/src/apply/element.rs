//! One step of a path into an object, as field sets name it: a field, the keys of a list item, a value of a set, an index.

use std::{borrow::Cow, cmp::Ordering, fmt};

use crate::{Value, json::escaped};

/// The name of a field; those of the tables are not copied.
pub type Name = Cow<'static, str>;

/// One step of a path. Fields sort before keys, keys before values, values before indexes.
#[derive(Clone, Debug)]
pub enum Element {
    /// `f:name`: a field of a struct or a key of a map.
    Field(Name),
    /// `k:{"name":"c"}`: the list item with these keys, in the order of their names.
    Key(Box<[(Name, Value)]>),
    /// `v:"x"`: the member of a set.
    Value(Box<Value>),
    /// `i:0`: the list item at a position.
    Index(i64),
}

/// Why a text names no step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not `x:…`.
    #[error("{0:?} does not begin with a letter and a colon")]
    Prefix(String),
    /// What follows the colon cannot be read.
    #[error("cannot read {0:?}")]
    Content(String),
    /// A set that is no object.
    #[error("a field set must be an object")]
    NoObject,
}

impl Element {
    /// Reads a step; `None` for kinds that are not known, which are to be ignored.
    pub fn parse(text: &str) -> Result<Option<Self>, Malformed> {
        let (kind, rest) = match text.as_bytes() {
            [kind, b':', ..] => (*kind, &text[2..]),
            _ => return Err(Malformed::Prefix(text.to_owned())),
        };
        let unreadable = || Malformed::Content(text.to_owned());
        Ok(match kind {
            b'f' => Some(Element::Field(rest.to_owned().into())),
            b'v' => Some(Element::Value(serde_json::from_str(rest).map_err(|_| unreadable())?)),
            b'i' => Some(Element::Index(rest.parse().map_err(|_| unreadable())?)),
            b'k' => {
                let keys: crate::Map = serde_json::from_str(rest).map_err(|_| unreadable())?;
                Some(Element::Key(keys.into_iter().map(|(name, value)| (name.into(), value)).collect()))
            }
            _ => None,
        })
    }

    /// The step as field sets write it: `f:name`, `k:{"name":"c"}`, `v:"x"`, `i:0`.
    pub fn serialize(&self) -> String {
        let json = |value: &Value| escaped(value.to_string());
        match self {
            Element::Field(name) => ["f:", name].concat(),
            Element::Key(keys) => {
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
            Element::Value(value) => ["v:", &json(value)].concat(),
            Element::Index(at) => format!("i:{at}"),
        }
    }

    /// The name, of a field.
    pub fn field(&self) -> Option<&str> {
        match self {
            Element::Field(name) => Some(name),
            _ => None,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Element::Field(_) => 0,
            Element::Key(_) => 1,
            Element::Value(_) => 2,
            Element::Index(_) => 3,
        }
    }
}

/// `.name`, `[name="c"]`, `[="x"]`, `[0]`: what conflicts and messages show.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Field(name) => write!(f, ".{name}"),
            Element::Key(keys) => {
                f.write_str("[")?;
                for (at, (name, value)) in keys.iter().enumerate() {
                    write!(f, "{}{name}={value}", if at > 0 { "," } else { "" })?;
                }
                f.write_str("]")
            }
            Element::Value(value) => write!(f, "[={value}]"),
            Element::Index(at) => write!(f, "[{at}]"),
        }
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Element::Field(a), Element::Field(b)) => a.cmp(b),
            (Element::Key(a), Element::Key(b)) => {
                let mut pairs = a.iter().zip(b.iter()).map(|(a, b)| a.0.cmp(&b.0).then_with(|| order(&a.1, &b.1)));
                pairs.find(|found| found.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
            }
            (Element::Value(a), Element::Value(b)) => order(a, b),
            (Element::Index(a), Element::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Element {}

/// A total order of values: numbers, text, booleans, lists, objects, null. 1 and 1.0 are the same.
fn order(a: &Value, b: &Value) -> Ordering {
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
            let mut pairs = x.iter().zip(y).map(|(x, y)| order(x, y));
            pairs.find(|found| found.is_ne()).unwrap_or_else(|| x.len().cmp(&y.len()))
        }
        (Value::Object(x), Value::Object(y)) => {
            let mut pairs = x.iter().zip(y).map(|(x, y)| x.0.cmp(y.0).then_with(|| order(x.1, y.1)));
            pairs.find(|found| found.is_ne()).unwrap_or_else(|| x.len().cmp(&y.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}
