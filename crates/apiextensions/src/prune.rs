//! Pruning: drops fields that the schema does not specify, and nulls that are neither allowed nor defaulted; coerces
//! the metadata of embedded objects.

use std::fmt::Write as _;

use api::{Map, Value, decode, validate::FieldError};

use crate::schema::{META, Node, Others};

/// Prunes an object and returns the sorted paths of unknown fields. Top-level `apiVersion`, `kind` and `metadata` are
/// kept.
pub fn prune(node: &Node, object: &mut Value) -> Result<Vec<String>, FieldError> {
    let mut walk = Walk { path: String::new(), unknown: Vec::new() };
    walk.value(Some(node), object);
    walk.unknown.sort();
    nulls(node, object);
    let mut embedded = Walk { path: String::new(), unknown: Vec::new() };
    embedded.coerce(node, object)?;
    embedded.unknown.sort();
    walk.unknown.append(&mut embedded.unknown);
    Ok(walk.unknown)
}

struct Walk {
    path: String,
    unknown: Vec<String>,
}

impl Walk {
    /// Runs `work` with the path extended by one step.
    fn below<T>(&mut self, step: Step<'_>, work: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        match step {
            Step::Key(name) => {
                if length > 0 {
                    self.path.push('.');
                }
                self.path.push_str(name);
            }
            // Writing to a String cannot fail.
            Step::Index(at) => drop(write!(self.path, "[{at}]")),
        }
        let done = work(self);
        self.path.truncate(length);
        done
    }

    fn dropped(&mut self, name: &str) {
        self.below(Step::Key(name), |walk| walk.unknown.push(walk.path.clone()));
    }

    fn value(&mut self, node: Option<&Node>, value: &mut Value) {
        match (node, value) {
            (Some(node), value) if node.preserve => self.kept(node, value),
            (None, Value::Object(map)) => {
                for name in std::mem::take(map).keys() {
                    self.dropped(name);
                }
            }
            (Some(node), Value::Object(map)) => self.fields(node, map),
            (node, Value::Array(items)) => {
                let inner = node.and_then(|node| node.items.as_deref());
                for (at, item) in items.iter_mut().enumerate() {
                    self.below(Step::Index(at), |walk| walk.value(inner, item));
                }
            }
            _ => {}
        }
    }

    fn fields(&mut self, node: &Node, map: &mut Map) {
        let mut unknown = Vec::new();
        for (name, value) in map.iter_mut() {
            if node.is_resource() && META.contains(&name.as_str()) {
                continue;
            }
            match (node.at(name), &node.others) {
                (Some(inner), _) => self.below(Step::Key(name), |walk| walk.value(Some(inner), value)),
                (None, Others::Any) => self.below(Step::Key(name), |walk| walk.value(None, value)),
                (None, _) => unknown.push(name.clone()),
            }
        }
        for name in unknown {
            map.remove(&name);
            self.dropped(&name);
        }
    }

    /// Preserves unknown fields of this value, and prunes below specified fields
    /// (`x-kubernetes-preserve-unknown-fields`).
    fn kept(&mut self, node: &Node, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (name, value) in map.iter_mut() {
                    if node.is_resource() && META.contains(&name.as_str()) {
                        continue;
                    }
                    if let Some(inner) = node.at(name) {
                        self.below(Step::Key(name), |walk| walk.value(Some(inner), value));
                    }
                }
            }
            Value::Array(items) => {
                let Some(inner) = node.items.as_deref() else { return };
                for (at, item) in items.iter_mut().enumerate() {
                    self.below(Step::Index(at), |walk| walk.kept(inner, item));
                }
            }
            _ => {}
        }
    }

    /// Coerces the metadata of embedded objects to its canonical form.
    fn coerce(&mut self, node: &Node, value: &mut Value) -> Result<(), FieldError> {
        if node.embedded && value.is_object() {
            self.embedded(value)?;
        }
        match value {
            Value::Object(map) => {
                for (name, value) in map.iter_mut() {
                    let implied = node.is_resource() && META.contains(&name.as_str());
                    if let Some(inner) = node.at(name).filter(|_| !implied) {
                        self.below(Step::Key(name), |walk| walk.coerce(inner, value))?;
                    }
                }
            }
            Value::Array(items) => {
                let Some(inner) = node.items.as_deref() else { return Ok(()) };
                for (at, item) in items.iter_mut().enumerate() {
                    self.below(Step::Index(at), |walk| walk.coerce(inner, item))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn embedded(&mut self, value: &mut Value) -> Result<(), FieldError> {
        for name in ["apiVersion", "kind"] {
            if let Some(bad) = value.get(name).filter(|text| !text.is_string()) {
                return Err(FieldError::invalid(format!("{}.{name}", self.path), bad.clone(), "must be a string"));
            }
        }
        let given = value.get("metadata").cloned().unwrap_or_default();
        let dropped = decode::canonicalize_metadata(value)
            .map_err(|error| FieldError::invalid(format!("{}.metadata", self.path), given, error.to_string()))?;
        self.unknown.extend(dropped.iter().map(|path| format!("{}.{path}", self.path)));
        Ok(())
    }
}

enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// Drops nulls that are neither nullable nor defaulted.
fn nulls(node: &Node, value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|name, value| match node.at(name) {
                Some(inner) if value.is_null() => inner.nullable || inner.default.is_some() || inner.implied,
                Some(inner) => {
                    nulls(inner, value);
                    true
                }
                None => true,
            });
        }
        Value::Array(items) => {
            if let Some(inner) = node.items.as_deref() {
                items.iter_mut().for_each(|item| nulls(inner, item));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: Value, given: Value, want: Value, unknown: &[&str]) {
        let node = crate::schema::parse(&json!({"type": "object", "properties": {"spec": schema}}));
        let mut object = json!({"apiVersion": "e/v1", "kind": "B", "metadata": {"name": "n"}, "spec": given});
        assert_eq!(prune(&node, &mut object), Ok(unknown.iter().map(|path| (*path).to_owned()).collect()));
        assert_eq!(object["spec"], want);
        assert_eq!(object["metadata"]["name"], "n");
    }

    #[test]
    fn what_is_not_known_is_dropped_and_told() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "l": {"type": "array",
            "items": {"type": "object", "properties": {"b": {}}}}, "m": {"type": "object",
            "additionalProperties": {"type": "object", "properties": {"c": {}}}}}});
        let given = json!({"a": "x", "z": 1, "l": [{"b": 1, "y": 2}], "m": {"k": {"c": 1, "x": 2}}});
        let want = json!({"a": "x", "l": [{"b": 1}], "m": {"k": {"c": 1}}});
        check(schema, given, want, &["spec.l[0].y", "spec.m.k.x", "spec.z"]);
    }

    #[test]
    fn what_is_preserved_is_kept_but_not_below_what_is_known() {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"a": {"type": "object", "properties": {"b": {}}}}});
        let given = json!({"a": {"b": 1, "c": 2}, "z": {"y": 1}});
        check(schema, given, json!({"a": {"b": 1}, "z": {"y": 1}}), &["spec.a.c"]);
    }

    #[test]
    fn nulls_that_are_not_allowed_go_unless_a_default_takes_their_place() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"},
            "b": {"type": "string", "nullable": true}, "c": {"type": "string", "default": "x"}}});
        let given = json!({"a": null, "b": null, "c": null});
        check(schema, given, json!({"b": null, "c": null}), &[]);
    }

    #[test]
    fn embedded_objects_have_metadata_by_the_tables() {
        let schema = json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true});
        let given = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "nope": 1}, "spec": {}});
        let want = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}});
        check(schema, given, want, &["spec.metadata.nope"]);
    }
}
