//! JSON with Go's indentation, and objects as Go's structs encode them.

use api::{
    Value,
    json::escape_html,
    schema::{FieldPresence, FieldType, TypeId, schema},
};

/// Formats a value with four spaces.
pub fn format_json(value: &Value) -> String {
    indent_json(&escape_html(value.to_string()), "    ")
}

/// Indents compact JSON.
pub fn indent_json(compact: &str, indent: &str) -> String {
    let mut out = String::with_capacity(compact.len() * 2);
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    let mut characters = compact.chars().peekable();
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        (0..depth).for_each(|_| out.push_str(indent));
    };
    while let Some(character) = characters.next() {
        if quoted {
            out.push(character);
            quoted = escaped || character != '"';
            escaped = character == '\\' && !escaped;
            continue;
        }
        match character {
            '{' | '[' => {
                out.push(character);
                if let Some(close @ ('}' | ']')) = characters.peek().copied() {
                    out.push(close);
                    characters.next();
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(character);
            }
            ',' => {
                out.push(',');
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            '"' => {
                quoted = true;
                out.push('"');
            }
            ' ' | '\n' | '\t' | '\r' => {}
            other => out.push(other),
        }
    }
    out
}

/// The JSON of an object of a known type in the order of its struct; `None` for other objects.
pub fn typed_json(object: &Value, show_managed_fields: bool) -> Option<String> {
    if object.get("kind").and_then(Value::as_str) == Some("List") {
        return Some(format_generic_list(object, show_managed_fields));
    }
    api::json_encoder::declared_type(object)?;
    let mut object = typed_value(object);
    if !show_managed_fields {
        super::omit_managed_fields(&mut object);
    }
    let text = String::from_utf8(api::json_encoder::encode_object(&object)).ok()?;
    Some(indent_json(&escape_html(text), "    "))
}

/// The JSON of a list in the order of its struct and those of its items.
pub fn format_typed_list(list: &Value) -> String {
    typed_json(list, false).unwrap_or_else(|| format_generic_list(list, false))
}

/// The JSON of a list of objects of any kind, which has its struct's order while its items are maps.
fn format_generic_list(list: &Value, show_managed_fields: bool) -> String {
    let mut list = list.clone();
    if !show_managed_fields {
        super::omit_managed_fields(&mut list);
    }
    let text = |field: &str| list.get(field).cloned().unwrap_or_default().to_string();
    let (kind, version, metadata, items) = (text("kind"), text("apiVersion"), text("metadata"), text("items"));
    let text = format!(r#"{{"kind":{kind},"apiVersion":{version},"metadata":{metadata},"items":{items}}}"#);
    indent_json(&escape_html(text), "    ")
}

/// The object as Go's struct writes it: with the fields that it writes even when they are zero, without those that it leaves
/// out then.
pub fn typed_value(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(ty) = api::json_encoder::declared_type(&object) {
        fill_zeros(ty, &mut object);
    }
    object
}

fn fill_zeros(ty: TypeId, value: &mut Value) {
    let Value::Object(map) = value else { return };
    for field in &schema().get(ty).fields {
        match map.get_mut(field.name) {
            Some(inner) if field.presence == FieldPresence::NonZero && !field.ty.is_struct() && is_zero(inner) => {
                map.remove(field.name);
            }
            Some(inner) if !inner.is_null() => fill_field(&field.ty, inner),
            Some(_) => {}
            None if field.writes_zero() && !["apiVersion", "kind"].contains(&field.name) => {
                let mut zero = zero_of(&field.ty);
                fill_field(&field.ty, &mut zero);
                map.insert(field.name.to_owned(), zero);
            }
            None => {}
        }
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

fn fill_field(ty: &FieldType, value: &mut Value) {
    match (ty, value) {
        (FieldType::Struct(id), value) => fill_zeros(*id, value),
        (FieldType::List(inner), Value::Array(items)) => items.iter_mut().for_each(|item| fill_field(inner, item)),
        (FieldType::Map(inner), Value::Object(map)) => map.values_mut().for_each(|item| fill_field(inner, item)),
        _ => {}
    }
}

fn zero_of(ty: &FieldType) -> Value {
    match ty {
        FieldType::Struct(_) => Value::Object(api::Map::new()),
        FieldType::String => "".into(),
        FieldType::Bool => false.into(),
        FieldType::Int32 | FieldType::Int64 | FieldType::Double | FieldType::IntOrString => 0.into(),
        FieldType::Quantity => "0".into(),
        FieldType::Duration => "0s".into(),
        _ => Value::Null,
    }
}

/// A value as Go's `%#v` writes it.
pub fn go_syntax(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let pairs: Vec<String> =
                map.iter().map(|(key, value)| format!("{}:{}", api::json::go_quote(key), go_syntax(value))).collect();
            format!("map[string]interface {{}}{{{}}}", pairs.join(", "))
        }
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(go_syntax).collect::<Vec<_>>().join(", "))
        }
        Value::String(text) => api::json::go_quote(text),
        Value::Null => "interface {}(nil)".to_owned(),
        other => other.to_string(),
    }
}

/// A list as Go's types print it: kind first, and no items as null.
pub fn typed_list(list: &Value, kind: &str) -> Value {
    let mut items = list.get("items").cloned().unwrap_or_default();
    if items.as_array().is_some_and(Vec::is_empty) {
        items = Value::Null;
    }
    let version = list.get("apiVersion").cloned().unwrap_or_default();
    let metadata = list.get("metadata").cloned().unwrap_or_default();
    serde_json::json!({"kind": kind, "apiVersion": version, "metadata": metadata, "items": items})
}
