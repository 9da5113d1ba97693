//! Defaulting: fills in schema defaults for absent fields and for nulls that are not allowed.

use api::Value;

use crate::schema::{Node, Others};

/// Applies the defaults of a schema to an object.
pub fn default(node: &Node, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, inner) in &node.properties {
                let Some(default) = inner.default.as_deref() else { continue };
                if map.get(&**name).is_none_or(|value| value.is_null() && !inner.nullable) {
                    map.insert((**name).to_owned(), default.clone());
                }
            }
            for (name, value) in map.iter_mut() {
                match (node.property(name), &node.others) {
                    (Some(inner), _) => self::default(inner, value),
                    (None, Others::Node(inner)) => element(inner, value),
                    (None, _) => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = node.items.as_deref() {
                items.iter_mut().for_each(|item| element(inner, item));
            }
        }
        _ => {}
    }
}

fn element(node: &Node, value: &mut Value) {
    if value.is_null() && !node.nullable {
        *value = node.default.as_deref().cloned().unwrap_or_default();
    }
    default(node, value);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_left_out_is_filled_in_at_every_depth() {
        let node = crate::schema::parse(&json!({"type": "object", "properties": {
            "a": {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 5}}},
            "l": {"type": "array", "items": {"type": "object", "properties": {"p": {"type": "string", "default": "TCP"}}}},
            "m": {"type": "object", "additionalProperties": {"type": "string", "default": "x"}},
            "n": {"type": "string", "nullable": true, "default": "y"}}}));
        let mut object = json!({"l": [{}, {"p": "UDP"}], "m": {"k": null}, "n": null});
        default(&node, &mut object);
        let want = json!({"a": {"b": 5}, "l": [{"p": "TCP"}, {"p": "UDP"}], "m": {"k": "x"}, "n": null});
        assert_eq!(object, want);
    }
}
