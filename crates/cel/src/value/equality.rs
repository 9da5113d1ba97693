//! Equality and ordering. Numbers of different types compare by numeric value; `set` and `map` lists of a document are
//! equal in any order.

use std::cmp::Ordering;

use super::{ListValue, MapKey, MapValue, Schema, SchemaType, Value, fuel, map};

impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(_) | Self::Uint(_) | Self::Double(_), Self::Int(_) | Self::Uint(_) | Self::Double(_)) => {
                compare_values(self, other) == Some(Ordering::Equal)
            }
            (Self::String(a), Self::String(b)) => **a == **b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Timestamp(a), Self::Timestamp(b)) => a == b,
            (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::List(a), Self::List(b)) => lists_equal(a, b),
            (Self::Map(a), Self::Map(b)) => maps_equal(a, b),
            (Self::Type(a), Self::Type(b)) => a.type_name() == b.type_name(),
            (Self::Optional(a), Self::Optional(b)) => a == b,
            (Self::Native(a), Self::Native(b)) => a == b,
            (Self::Struct(a), Self::Struct(b)) => a == b,
            (Self::Unknown(a), Self::Unknown(b)) => a == b,
            _ => false,
        }
    }
}

/// Orders two values; `None` if they are not comparable.
pub(crate) fn compare_values(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    Some(match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Uint(a), Value::Uint(b)) => a.cmp(b),
        (Value::Int(a), Value::Uint(b)) => i128::from(*a).cmp(&i128::from(*b)),
        (Value::Uint(a), Value::Int(b)) => i128::from(*a).cmp(&i128::from(*b)),
        (Value::Double(a), Value::Double(b)) => return a.partial_cmp(b),
        (Value::Double(a), Value::Int(b)) => return compare_double(*a, i128::from(*b)),
        (Value::Double(a), Value::Uint(b)) => return compare_double(*a, i128::from(*b)),
        (Value::Int(a), Value::Double(b)) => return compare_double(*b, i128::from(*a)).map(Ordering::reverse),
        (Value::Uint(a), Value::Double(b)) => {
            return compare_double(*b, i128::from(*a)).map(Ordering::reverse);
        }
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => (**a).cmp(&**b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (Value::Duration(a), Value::Duration(b)) => a.cmp(b),
        _ => return None,
    })
}

/// Compares a double with an integer, which is rounded to a double.
fn compare_double(a: f64, b: i128) -> Option<Ordering> {
    a.partial_cmp(&(b as f64))
}

fn lists_equal(a: &ListValue<'_>, b: &ListValue<'_>) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match a.document_schema().map(|schema| (schema.schema_type(), schema)) {
        Some((SchemaType::SetList, _)) => b.iter().all(|item| a.iter().any(|mine| mine == item)),
        Some((SchemaType::MapList, schema)) => b.iter().all(|item| {
            let key = list_map_key_values(&item, schema);
            let mine = a.iter().filter(|mine| list_map_key_values(mine, schema) == key).last();
            mine.is_some_and(|mine| mine == item)
        }),
        _ => a.iter().zip(b.iter()).all(|(a, b)| a == b),
    }
}

/// Returns the key fields that identify an element of a `map` list.
pub(crate) fn list_map_key_values<'a>(item: &Value<'a>, schema: &dyn Schema) -> Vec<Option<Value<'a>>> {
    let Value::Map(map) = item else { return Vec::new() };
    schema.list_map_keys().iter().map(|key| map.find_field(key).ok().flatten()).collect()
}

fn maps_equal(a: &MapValue<'_>, b: &MapValue<'_>) -> bool {
    if a.len() != b.len() {
        return false;
    }
    if let (MapValue::Json(a, Some(schema)), MapValue::Json(b, Some(_))) = (a, b)
        && !matches!(schema.schema_type(), SchemaType::Map | SchemaType::Open)
    {
        // Fields without a schema are compared as raw JSON.
        let unknown = a.iter().filter(|(name, _)| schema.property_schema(name).is_none());
        if unknown.into_iter().any(|(name, value)| b.get(name).is_some_and(|other| other != value)) {
            return false;
        }
    }
    a.keys().into_iter().all(|key| fuel::consume_fuel() && find_entry(a, &key) == find_entry(b, &key))
}

fn find_entry<'a>(map: &MapValue<'a>, key: &MapKey<'a>) -> Option<Value<'a>> {
    match (map, key) {
        (MapValue::Json(..), MapKey::String(name)) => map.find_field(name).ok().flatten(),
        (MapValue::Made(made), _) => made.get(key).cloned(),
        (MapValue::Json(..) | MapValue::Composed, _) => None,
    }
}

/// Whether a list contains a value.
pub(crate) fn list_contains(list: &ListValue<'_>, value: &Value<'_>) -> bool {
    list.iter().any(|item| item == *value)
}

/// Concatenates two lists; `set` and `map` lists of a document are merged.
pub(crate) fn concat_lists<'a>(a: ListValue<'a>, b: &ListValue<'a>) -> ListValue<'a> {
    let schema =
        a.document_schema().filter(|schema| matches!(schema.schema_type(), SchemaType::SetList | SchemaType::MapList));
    let mut items = match a {
        ListValue::Made(items, _) => std::sync::Arc::unwrap_or_clone(items),
        json => json.iter().collect(),
    };
    for item in b.iter() {
        let same = match schema.map(|schema| (schema.schema_type(), schema)) {
            Some((SchemaType::SetList, _)) => items.iter().position(|mine| *mine == item),
            Some((_, schema)) => {
                let key = list_map_key_values(&item, schema);
                items.iter().position(|mine| list_map_key_values(mine, schema) == key)
            }
            None => None,
        };
        match same {
            Some(at) => items[at] = item,
            None => items.push(item),
        }
    }
    ListValue::Made(std::sync::Arc::new(items), schema)
}

/// Inserts a key into a map; fails if the key exists.
pub(crate) fn insert_entry<'a>(
    target: MapValue<'a>,
    key: &Value<'a>,
    value: Value<'a>,
) -> Result<MapValue<'a>, crate::EvalError> {
    let made = match target {
        MapValue::Made(map) => map,
        json => std::sync::Arc::new(json.entries().into_iter().collect()),
    };
    let mut made = std::sync::Arc::unwrap_or_clone(made);
    let Some(found) = map::to_map_key(key) else { return Err(crate::EvalError::new("unsupported key type")) };
    if made.contains_key(&found) {
        return Err(crate::EvalError::new(format!("insert failed: key {} already exists", key.display_text())));
    }
    made.insert(found, value);
    Ok(MapValue::Made(std::sync::Arc::new(made)))
}
