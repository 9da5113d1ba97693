//! Pruning: drops fields that the schema does not specify, and nulls that are neither allowed nor defaulted; coerces
//! the metadata of embedded objects.

use std::fmt::Write as _;

use api::{Map, Value, decode, validate::FieldError};

use crate::structural_schema::{AdditionalProperties, OBJECT_META_FIELDS, Structural};

/// Prunes an object and returns the sorted paths of unknown fields. Top-level `apiVersion`, `kind` and `metadata` are
/// kept.
pub fn prune_unknown_fields(node: &Structural, object: &mut Value) -> Result<Vec<String>, FieldError> {
    let mut walk = Pruner { path: String::new(), unknown: Vec::new() };
    walk.prune_value(Some(node), object);
    walk.unknown.sort();
    drop_nulls(node, object);
    let mut embedded = Pruner { path: String::new(), unknown: Vec::new() };
    embedded.coerce_metadata(node, object)?;
    embedded.unknown.sort();
    walk.unknown.append(&mut embedded.unknown);
    Ok(walk.unknown)
}

struct Pruner {
    path: String,
    unknown: Vec<String>,
}

impl Pruner {
    /// Runs `work` with the path extended by one step.
    fn descend<T>(&mut self, step: PathElement<'_>, work: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        match step {
            PathElement::Key(name) => {
                if length > 0 {
                    self.path.push('.');
                }
                self.path.push_str(name);
            }
            // Writing to a String cannot fail.
            PathElement::Index(at) => drop(write!(self.path, "[{at}]")),
        }
        let done = work(self);
        self.path.truncate(length);
        done
    }

    fn record_unknown(&mut self, name: &str) {
        self.descend(PathElement::Key(name), |walk| walk.unknown.push(walk.path.clone()));
    }

    fn prune_value(&mut self, node: Option<&Structural>, value: &mut Value) {
        match (node, value) {
            (Some(node), value) if node.preserve_unknown_fields => self.prune_preserved(node, value),
            (None, Value::Object(map)) => {
                for name in std::mem::take(map).keys() {
                    self.record_unknown(name);
                }
            }
            (Some(node), Value::Object(map)) => self.prune_fields(node, map),
            (node, Value::Array(items)) => {
                let inner = node.and_then(|node| node.items.as_deref());
                for (at, item) in items.iter_mut().enumerate() {
                    self.descend(PathElement::Index(at), |walk| walk.prune_value(inner, item));
                }
            }
            _ => {}
        }
    }

    fn prune_fields(&mut self, node: &Structural, map: &mut Map) {
        let mut unknown = Vec::new();
        for (name, value) in map.iter_mut() {
            if node.is_resource() && OBJECT_META_FIELDS.contains(&name.as_str()) {
                continue;
            }
            match (node.schema_at(name), &node.additional_properties) {
                (Some(inner), _) => self.descend(PathElement::Key(name), |walk| walk.prune_value(Some(inner), value)),
                (None, AdditionalProperties::Any) => {
                    self.descend(PathElement::Key(name), |walk| walk.prune_value(None, value))
                }
                (None, _) => unknown.push(name.clone()),
            }
        }
        for name in unknown {
            map.remove(&name);
            self.record_unknown(&name);
        }
    }

    /// Preserves unknown fields of this value, and prunes below specified fields
    /// (`x-kubernetes-preserve-unknown-fields`).
    fn prune_preserved(&mut self, node: &Structural, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (name, value) in map.iter_mut() {
                    if node.is_resource() && OBJECT_META_FIELDS.contains(&name.as_str()) {
                        continue;
                    }
                    if let Some(inner) = node.schema_at(name) {
                        self.descend(PathElement::Key(name), |walk| walk.prune_value(Some(inner), value));
                    }
                }
            }
            Value::Array(items) => {
                let Some(inner) = node.items.as_deref() else { return };
                for (at, item) in items.iter_mut().enumerate() {
                    self.descend(PathElement::Index(at), |walk| walk.prune_preserved(inner, item));
                }
            }
            _ => {}
        }
    }

    /// Coerces the metadata of embedded objects to its canonical form.
    fn coerce_metadata(&mut self, node: &Structural, value: &mut Value) -> Result<(), FieldError> {
        if node.embedded && value.is_object() {
            self.coerce_embedded(value)?;
        }
        match value {
            Value::Object(map) => {
                for (name, value) in map.iter_mut() {
                    let implied = node.is_resource() && OBJECT_META_FIELDS.contains(&name.as_str());
                    if let Some(inner) = node.schema_at(name).filter(|_| !implied) {
                        self.descend(PathElement::Key(name), |walk| walk.coerce_metadata(inner, value))?;
                    }
                }
            }
            Value::Array(items) => {
                let Some(inner) = node.items.as_deref() else { return Ok(()) };
                for (at, item) in items.iter_mut().enumerate() {
                    self.descend(PathElement::Index(at), |walk| walk.coerce_metadata(inner, item))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn coerce_embedded(&mut self, value: &mut Value) -> Result<(), FieldError> {
        for name in ["apiVersion", "kind"] {
            if let Some(bad) = value.get(name).filter(|text| !text.is_string()) {
                return Err(FieldError::invalid(format!("{}.{name}", self.path), bad.clone(), "must be a string"));
            }
        }
        let metadata = value.get("metadata").cloned().unwrap_or_default();
        let dropped = decode::canonicalize_metadata(value)
            .map_err(|error| FieldError::invalid(format!("{}.metadata", self.path), metadata, error.to_string()))?;
        self.unknown.extend(dropped.iter().map(|path| format!("{}.{path}", self.path)));
        Ok(())
    }
}

enum PathElement<'a> {
    Key(&'a str),
    Index(usize),
}

/// Drops nulls that are neither nullable nor defaulted.
fn drop_nulls(node: &Structural, value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|name, value| match node.schema_at(name) {
                Some(inner) if value.is_null() => inner.nullable || inner.default.is_some() || inner.implied,
                Some(inner) => {
                    drop_nulls(inner, value);
                    true
                }
                None => true,
            });
        }
        Value::Array(items) => {
            if let Some(inner) = node.items.as_deref() {
                items.iter_mut().for_each(|item| drop_nulls(inner, item));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn assert_pruned(schema: Value, spec: Value, want: Value, unknown: &[&str]) {
        let node = crate::structural_schema::parse_schema(&json!({"type": "object", "properties": {"spec": schema}}));
        let mut object = json!({"apiVersion": "e/v1", "kind": "B", "metadata": {"name": "n"}, "spec": spec});
        assert_eq!(
            prune_unknown_fields(&node, &mut object),
            Ok(unknown.iter().map(|path| (*path).to_owned()).collect())
        );
        assert_eq!(object["spec"], want);
        assert_eq!(object["metadata"]["name"], "n");
    }

    #[test]
    fn unknown_fields_are_pruned_and_reported() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "l": {"type": "array",
            "items": {"type": "object", "properties": {"b": {}}}}, "m": {"type": "object",
            "additionalProperties": {"type": "object", "properties": {"c": {}}}}}});
        let spec = json!({"a": "x", "z": 1, "l": [{"b": 1, "y": 2}], "m": {"k": {"c": 1, "x": 2}}});
        let want = json!({"a": "x", "l": [{"b": 1}], "m": {"k": {"c": 1}}});
        assert_pruned(schema, spec, want, &["spec.l[0].y", "spec.m.k.x", "spec.z"]);
    }

    #[test]
    fn preserved_fields_are_kept_except_below_specified_fields() {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"a": {"type": "object", "properties": {"b": {}}}}});
        let spec = json!({"a": {"b": 1, "c": 2}, "z": {"y": 1}});
        assert_pruned(schema, spec, json!({"a": {"b": 1}, "z": {"y": 1}}), &["spec.a.c"]);
    }

    #[test]
    fn disallowed_nulls_are_dropped_unless_defaulted() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"},
            "b": {"type": "string", "nullable": true}, "c": {"type": "string", "default": "x"}}});
        let spec = json!({"a": null, "b": null, "c": null});
        assert_pruned(schema, spec, json!({"b": null, "c": null}), &[]);
    }

    #[test]
    fn embedded_metadata_is_coerced_by_schema() {
        let schema = json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true});
        let spec = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "nope": 1}, "spec": {}});
        let want = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}});
        assert_pruned(schema, spec, want, &["spec.metadata.nope"]);
    }
}
