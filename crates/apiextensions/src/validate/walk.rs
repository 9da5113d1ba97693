//! Walks all values of an object that a schema specifies, with their paths.

use api::Value;

use crate::schema::{META, Node, Others};

/// Calls `visit` for each value, parents first. Type and object metadata are skipped, because schemas cannot specify
/// them.
pub fn each(node: &Node, value: &Value, path: &str, visit: &mut impl FnMut(&Node, &Value, &str)) {
    visit(node, value, path);
    match value {
        Value::Object(map) => {
            for (name, value) in map.iter().filter(|(name, _)| !node.is_resource() || !META.contains(&name.as_str())) {
                match (node.property(name), &node.others) {
                    (Some(inner), _) if path.is_empty() => each(inner, value, name, visit),
                    (Some(inner), _) => each(inner, value, &format!("{path}.{name}"), visit),
                    (None, Others::Node(inner)) => each(inner, value, &format!("{path}[{name}]"), visit),
                    (None, _) => {}
                }
            }
        }
        Value::Array(items) => {
            let Some(inner) = node.items.as_deref() else { return };
            for (at, item) in items.iter().enumerate() {
                each(inner, item, &format!("{path}[{at}]"), visit);
            }
        }
        _ => {}
    }
}
