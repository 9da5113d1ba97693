//! Walks all values of an object that a schema specifies, with their paths.

use api::Value;

use crate::structural_schema::{AdditionalProperties, OBJECT_META_FIELDS, Structural};

/// Calls `visit` for each value, parents first. Type and object metadata are skipped, because schemas cannot specify
/// them.
pub fn visit_values(node: &Structural, value: &Value, path: &str, visit: &mut impl FnMut(&Structural, &Value, &str)) {
    visit(node, value, path);
    match value {
        Value::Object(map) => {
            for (name, value) in
                map.iter().filter(|(name, _)| !node.is_resource() || !OBJECT_META_FIELDS.contains(&name.as_str()))
            {
                match (node.property(name), &node.additional_properties) {
                    (Some(inner), _) if path.is_empty() => visit_values(inner, value, name, visit),
                    (Some(inner), _) => visit_values(inner, value, &format!("{path}.{name}"), visit),
                    (None, AdditionalProperties::Schema(inner)) => {
                        visit_values(inner, value, &format!("{path}[{name}]"), visit)
                    }
                    (None, _) => {}
                }
            }
        }
        Value::Array(items) => {
            let Some(inner) = node.items.as_deref() else { return };
            for (at, item) in items.iter().enumerate() {
                visit_values(inner, item, &format!("{path}[{at}]"), visit);
            }
        }
        _ => {}
    }
}
