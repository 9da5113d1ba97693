//! Defaulting: fills in schema defaults for absent fields and for nulls that are not allowed.

use api::Value;

use crate::structural_schema::{AdditionalProperties, Structural};

/// Applies the defaults of a schema to an object.
pub fn apply_defaults(node: &Structural, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, inner) in &node.properties {
                let Some(default) = inner.default.as_deref() else { continue };
                if map.get(&**name).is_none_or(|value| value.is_null() && !inner.nullable) {
                    map.insert((**name).to_owned(), default.clone());
                }
            }
            for (name, value) in map.iter_mut() {
                match (node.property(name), &node.additional_properties) {
                    (Some(inner), _) => self::apply_defaults(inner, value),
                    (None, AdditionalProperties::Schema(inner)) => default_element(inner, value),
                    (None, _) => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = node.items.as_deref() {
                items.iter_mut().for_each(|item| default_element(inner, item));
            }
        }
        _ => {}
    }
}

fn default_element(node: &Structural, value: &mut Value) {
    if value.is_null() && !node.nullable {
        *value = node.default.as_deref().cloned().unwrap_or_default();
    }
    apply_defaults(node, value);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_values_are_defaulted_at_every_depth() {
        let node = crate::structural_schema::parse_schema(&json!({"type": "object", "properties": {
            "a": {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 5}}},
            "l": {"type": "array", "items": {"type": "object", "properties": {"p": {"type": "string", "default": "TCP"}}}},
            "m": {"type": "object", "additionalProperties": {"type": "string", "default": "x"}},
            "n": {"type": "string", "nullable": true, "default": "y"}}}));
        let mut object = json!({"l": [{}, {"p": "UDP"}], "m": {"k": null}, "n": null});
        apply_defaults(&node, &mut object);
        let want = json!({"a": {"b": 5}, "l": [{"p": "TCP"}, {"p": "UDP"}], "m": {"k": "x"}, "n": null});
        assert_eq!(object, want);
    }
}
