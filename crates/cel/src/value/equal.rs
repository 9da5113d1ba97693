//! Equality and ordering. Numbers of different types compare by numeric value; `set` and `map` lists of a document are
//! equal in any order.

use std::cmp::Ordering;

use super::{Form, Key, List, Map, Schema, Value, fuel, map};

impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(_) | Self::Uint(_) | Self::Double(_), Self::Int(_) | Self::Uint(_) | Self::Double(_)) => {
                compare(self, other) == Some(Ordering::Equal)
            }
            (Self::String(a), Self::String(b)) => **a == **b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Timestamp(a), Self::Timestamp(b)) => a == b,
            (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::List(a), Self::List(b)) => lists(a, b),
            (Self::Map(a), Self::Map(b)) => maps(a, b),
            (Self::Type(a), Self::Type(b)) => a.name() == b.name(),
            (Self::Optional(a), Self::Optional(b)) => a == b,
            (Self::Native(a), Self::Native(b)) => a == b,
            (Self::Struct(a), Self::Struct(b)) => a == b,
            (Self::Unknown(a), Self::Unknown(b)) => a == b,
            _ => false,
        }
    }
}

/// Orders two values; `None` if they are not comparable.
pub(crate) fn compare(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    Some(match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Uint(a), Value::Uint(b)) => a.cmp(b),
        (Value::Int(a), Value::Uint(b)) => i128::from(*a).cmp(&i128::from(*b)),
        (Value::Uint(a), Value::Int(b)) => i128::from(*a).cmp(&i128::from(*b)),
        (Value::Double(a), Value::Double(b)) => return a.partial_cmp(b),
        (Value::Double(a), Value::Int(b)) => return double(*a, i128::from(*b)),
        (Value::Double(a), Value::Uint(b)) => return double(*a, i128::from(*b)),
        (Value::Int(a), Value::Double(b)) => return double(*b, i128::from(*a)).map(Ordering::reverse),
        (Value::Uint(a), Value::Double(b)) => return double(*b, i128::from(*a)).map(Ordering::reverse),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => (**a).cmp(&**b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (Value::Duration(a), Value::Duration(b)) => a.cmp(b),
        _ => return None,
    })
}

/// Compares a double with an integer, which is rounded to a double.
fn double(a: f64, b: i128) -> Option<Ordering> {
    a.partial_cmp(&(b as f64))
}

fn lists(a: &List<'_>, b: &List<'_>) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match a.schema().map(|schema| (schema.form(), schema)) {
        Some((Form::SetList, _)) => b.iter().all(|item| a.iter().any(|mine| mine == item)),
        Some((Form::MapList, schema)) => b.iter().all(|item| {
            let key = identity(&item, schema);
            let mine = a.iter().filter(|mine| identity(mine, schema) == key).last();
            mine.is_some_and(|mine| mine == item)
        }),
        _ => a.iter().zip(b.iter()).all(|(a, b)| a == b),
    }
}

/// Returns the key fields that identify an element of a `map` list.
pub(crate) fn identity<'a>(item: &Value<'a>, schema: &dyn Schema) -> Vec<Option<Value<'a>>> {
    let Value::Map(map) = item else { return Vec::new() };
    schema.keys().iter().map(|key| map.field(key).ok().flatten()).collect()
}

fn maps(a: &Map<'_>, b: &Map<'_>) -> bool {
    if a.len() != b.len() {
        return false;
    }
    if let (Map::Json(a, Some(schema)), Map::Json(b, Some(_))) = (a, b)
        && !matches!(schema.form(), Form::Map | Form::Open)
    {
        // Fields without a schema are compared as raw JSON.
        let unknown = a.iter().filter(|(name, _)| schema.property(name).is_none());
        if unknown.into_iter().any(|(name, value)| b.get(name).is_some_and(|other| other != value)) {
            return false;
        }
    }
    a.keys().into_iter().all(|key| fuel::burn() && entry(a, &key) == entry(b, &key))
}

fn entry<'a>(map: &Map<'a>, key: &Key<'a>) -> Option<Value<'a>> {
    match (map, key) {
        (Map::Json(..), Key::String(name)) => map.field(name).ok().flatten(),
        (Map::Made(made), _) => made.get(key).cloned(),
        (Map::Json(..) | Map::Composed, _) => None,
    }
}

/// Whether a list contains a value.
pub(crate) fn contains(list: &List<'_>, value: &Value<'_>) -> bool {
    list.iter().any(|item| item == *value)
}

/// Concatenates two lists; `set` and `map` lists of a document are merged.
pub(crate) fn join<'a>(a: List<'a>, b: &List<'a>) -> List<'a> {
    let schema = a.schema().filter(|schema| matches!(schema.form(), Form::SetList | Form::MapList));
    let mut items = match a {
        List::Made(items, _) => std::sync::Arc::unwrap_or_clone(items),
        json => json.iter().collect(),
    };
    for item in b.iter() {
        let same = match schema.map(|schema| (schema.form(), schema)) {
            Some((Form::SetList, _)) => items.iter().position(|mine| *mine == item),
            Some((_, schema)) => {
                let key = identity(&item, schema);
                items.iter().position(|mine| identity(mine, schema) == key)
            }
            None => None,
        };
        match same {
            Some(at) => items[at] = item,
            None => items.push(item),
        }
    }
    List::Made(std::sync::Arc::new(items), schema)
}

/// Inserts a key into a map; fails if the key exists.
pub(crate) fn insert<'a>(target: Map<'a>, key: &Value<'a>, value: Value<'a>) -> Result<Map<'a>, crate::Error> {
    let made = match target {
        Map::Made(map) => map,
        json => std::sync::Arc::new(json.entries().into_iter().collect()),
    };
    let mut made = std::sync::Arc::unwrap_or_clone(made);
    let Some(found) = map::key(key) else { return Err(crate::Error::failed("unsupported key type")) };
    if made.contains_key(&found) {
        return Err(crate::Error::failed(format!("insert failed: key {} already exists", key.shown())));
    }
    made.insert(found, value);
    Ok(Map::Made(std::sync::Arc::new(made)))
}
