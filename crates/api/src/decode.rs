//! Decodes client input into canonical objects: known fields only, of the right types, zero values as Go writes them.
//! [`decode_json`] decodes JSON bytes, [`canonicalize`] a value; every object enters the server through this module.

mod error;
pub(crate) mod json_text;
mod scalar;

pub use error::DecodeError;
pub use formats::json::MAX_DEPTH;

use crate::{
    Map, Value,
    budget::{MemoryBudget, OverBudget},
    field_path::FieldPath,
    json::{StrictViolation, value_type_name},
    meta,
    schema::{FieldPresence, FieldType, SchemaShape, StructField, StructType, TypeId, schema},
};

/// A canonical object and the paths of the unknown fields that were dropped.
#[derive(Debug)]
pub struct DecodedObject {
    /// The object.
    pub object: Value,
    /// For example `spec.replicsa`.
    pub unknown: Vec<String>,
}

/// Handling of unknown and duplicate fields, the `fieldValidation` parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drops them silently.
    Ignore,
    /// Drops them and warns the client.
    #[default]
    Warn,
    /// Rejects the object.
    Strict,
}

/// Decodes JSON as an object of type `ty`; returns the object and the warnings for the client.
pub fn decode_json(ty: TypeId, bytes: &[u8], mode: FieldValidation) -> Result<(Value, Vec<String>), DecodeError> {
    let (object, violations) = json_text::decode_text(ty, bytes)?;
    let violations: Vec<String> = violations.iter().map(StrictViolation::to_string).collect();
    match mode {
        FieldValidation::Strict if !violations.is_empty() => Err(DecodeError::StrictViolations(violations)),
        FieldValidation::Warn => Ok((object, violations)),
        FieldValidation::Strict | FieldValidation::Ignore => Ok((object, Vec::new())),
    }
}

/// Canonicalizes `value` as an object of type `ty`. `kind` and `apiVersion` are kept.
pub fn canonicalize(ty: TypeId, value: Value) -> Result<DecodedObject, DecodeError> {
    let mut walk = Canonicalizer { top: schema().get(ty), unknown: Vec::new(), budget: MemoryBudget::default() };
    let object = walk.canonicalize_root(ty, value)?;
    Ok(DecodedObject { object, unknown: walk.unknown })
}

/// Inserts the zero values that JSON has for unset fields.
pub(crate) fn fill_zero_fields(ty: &StructType, map: &mut Map, budget: &mut MemoryBudget) -> Result<(), OverBudget> {
    for field in ty.zero_fields.iter().map(|at| &ty.fields[*at]) {
        if !map.contains_key(field.name) {
            budget.charge_map_entry(map.len(), field.name.len())?;
            map.insert(field.name.to_owned(), unset_value(field, budget)?);
        }
    }
    Ok(())
}

/// The value in JSON of an unset field that is written: null for pointers.
pub(crate) fn unset_value(field: &StructField, budget: &mut MemoryBudget) -> Result<Value, OverBudget> {
    if field.nullable { Ok(Value::Null) } else { zero_value(&field.ty, budget) }
}

/// Whether JSON has a field that is set to `value`.
pub(crate) fn is_written(field: &StructField, value: &Value) -> bool {
    field.presence != FieldPresence::NonZero || field.ty.is_struct() || !is_zero(value)
}

/// The zero value of a type in JSON.
pub(crate) fn zero_value(ty: &FieldType, budget: &mut MemoryBudget) -> Result<Value, OverBudget> {
    Ok(match ty {
        FieldType::String => "".into(),
        FieldType::Duration => "0s".into(),
        FieldType::Bool => false.into(),
        FieldType::Int32 | FieldType::Int64 | FieldType::Double | FieldType::IntOrString => 0.into(),
        FieldType::Quantity => "0".into(),
        FieldType::Struct(id) => {
            let mut map = Map::new();
            fill_zero_fields(schema().get(*id), &mut map, budget)?;
            Value::Object(map)
        }
        FieldType::Bytes
        | FieldType::Time
        | FieldType::MicroTime
        | FieldType::Raw
        | FieldType::List(_)
        | FieldType::Map(_) => Value::Null,
    })
}

struct Canonicalizer {
    top: &'static StructType,
    unknown: Vec<String>,
    budget: MemoryBudget,
}

/// The value being decoded: its struct, its field, and its type, which may be that of an element.
#[derive(Clone, Copy)]
struct FieldContext<'a> {
    owner: &'static StructType,
    field: &'static StructField,
    ty: &'a FieldType,
    path: &'a FieldPath<'a>,
}

impl Canonicalizer {
    fn canonicalize_root(&mut self, id: TypeId, mut value: Value) -> Result<Value, DecodeError> {
        let ty = schema().get(id);
        match &mut value {
            Value::Object(map) => self.canonicalize_struct(ty, map, &FieldPath::TOP)?,
            Value::Null => value = zero_value(&FieldType::Struct(id), &mut self.budget)?,
            other => return Err(error::not_an_object(value_type_name(other), ty)),
        }
        Ok(value)
    }

    /// Canonicalizes the fields of a struct in place.
    fn canonicalize_struct(
        &mut self,
        ty: &'static StructType,
        map: &mut Map,
        path: &FieldPath,
    ) -> Result<(), DecodeError> {
        if path.depth > MAX_DEPTH {
            return Err(DecodeError::TooDeep);
        }
        let mut dropped = Vec::new();
        for (name, value) in map.iter_mut() {
            if !self.canonicalize_entry(ty, name, value, path)? {
                dropped.push(name.clone());
            }
        }
        for name in &dropped {
            map.remove(name);
        }
        Ok(fill_zero_fields(ty, map, &mut self.budget)?)
    }

    /// Canonicalizes an entry of a struct; returns whether it is kept.
    fn canonicalize_entry(
        &mut self,
        ty: &'static StructType,
        name: &str,
        value: &mut Value,
        path: &FieldPath,
    ) -> Result<bool, DecodeError> {
        let top = path.depth == 0;
        let Some(field) = ty.field(name) else {
            let type_meta = matches!(name, "apiVersion" | "kind") && (top || ty.is_kind);
            if !type_meta {
                self.unknown.push(path.field(name).to_string());
            }
            return Ok(type_meta && (top || value.as_str().is_some_and(|text| !text.is_empty())));
        };
        if value.is_null() {
            return Ok(false);
        }
        let place = FieldContext { owner: ty, field, ty: &field.ty, path: &path.field(field.name) };
        self.canonicalize_value(place, value)?;
        Ok(!value.is_null() && is_written(field, value))
    }

    fn canonicalize_value(&mut self, place: FieldContext, value: &mut Value) -> Result<(), DecodeError> {
        match (place.ty, &mut *value) {
            (FieldType::Raw, _) => match place.field.schema_shape {
                Some(shapes) => self.canonicalize_schema_shape(place, shapes, value),
                None => Ok(()),
            },
            (FieldType::Struct(id), Value::Object(map)) => self.canonicalize_struct(schema().get(*id), map, place.path),
            (FieldType::List(inner), Value::Array(items)) => {
                for (at, item) in items.iter_mut().enumerate() {
                    self.canonicalize_element(FieldContext { ty: inner, path: &place.path.index(at), ..place }, item)?;
                }
                Ok(())
            }
            (FieldType::Map(inner), Value::Object(map)) => {
                for (key, item) in map.iter_mut() {
                    self.canonicalize_element(FieldContext { ty: inner, path: &place.path.key(key), ..place }, item)?;
                }
                Ok(())
            }
            (ty, _) => match scalar::canonicalize_scalar(ty, value) {
                Ok(()) => Ok(()),
                Err(Some(message)) => Err(DecodeError::InvalidValue { path: place.path.to_string(), message }),
                Err(None) => Err(error::type_mismatch(self.top, place, error::describe_value(place.ty, value))),
            },
        }
    }

    fn canonicalize_element(&mut self, place: FieldContext, value: &mut Value) -> Result<(), DecodeError> {
        if value.is_null() {
            *value = zero_value(place.ty, &mut self.budget)?;
            return Ok(());
        }
        self.canonicalize_value(place, value)
    }

    /// Canonicalizes a JSON schema or its alternative. As upstream, unknown fields inside are not reported.
    fn canonicalize_schema_shape(
        &mut self,
        place: FieldContext,
        shapes: SchemaShape,
        value: &mut Value,
    ) -> Result<(), DecodeError> {
        let id = shapes.schema();
        let known = self.unknown.len();
        let ty = schema().get(id);
        match (shapes, &mut *value) {
            (_, Value::Object(map)) => self.canonicalize_struct(ty, map, place.path)?,
            (SchemaShape::SchemaOrBool(_), Value::Bool(_)) => {}
            (SchemaShape::SchemaOrArray(id), Value::Array(items)) => {
                for (at, item) in items.iter_mut().enumerate() {
                    self.canonicalize_element(
                        FieldContext { ty: &FieldType::Struct(id), path: &place.path.index(at), ..place },
                        item,
                    )?;
                }
            }
            (SchemaShape::SchemaOrStrings(_), Value::Array(items)) if items.iter().all(Value::is_string) => {}
            (SchemaShape::SchemaOrBool(_), _) => {
                let message = "boolean or JSON schema expected".to_owned();
                return Err(DecodeError::InvalidValue { path: place.path.to_string(), message });
            }
            (SchemaShape::SchemaOrStrings(_), Value::Array(items)) => {
                let wrong = items.iter().find(|item| !item.is_string()).unwrap_or(&Value::Null);
                let (found, wanted) = (value_type_name(wrong).to_owned(), "string".to_owned());
                return Err(DecodeError::NotAnObject { found, wanted });
            }
            // Upstream ignores it.
            _ => *value = Value::Null,
        }
        self.unknown.truncate(known);
        Ok(())
    }
}

/// Whether Go's `omitempty` omits a scalar, list or map.
pub fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Canonicalizes the metadata of an object and returns the paths of dropped fields.
pub fn canonicalize_metadata(object: &mut Value) -> Result<Vec<String>, DecodeError> {
    let Some(metadata) = object.get_mut("metadata") else { return Ok(Vec::new()) };
    let Some(ty) = schema().type_named("meta/v1.ObjectMeta") else { return Ok(Vec::new()) };
    let decoded = canonicalize(ty, metadata.take())?;
    *metadata = decoded.object;
    if metadata["creationTimestamp"].is_null() {
        meta::object_mut(metadata).remove("creationTimestamp");
    }
    Ok(decoded.unknown.into_iter().map(|path| format!("metadata.{path}")).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(ty: &str, given: Value) -> Result<DecodedObject, DecodeError> {
        canonicalize(schema().type_named(ty).unwrap(), given)
    }

    #[test]
    fn zero_values_are_written_like_go() {
        let decoded =
            check("apps/v1.Deployment", json!({"kind": "Deployment", "spec": {"paused": false, "bogus": 1}})).unwrap();
        assert_eq!(decoded.unknown, ["spec.bogus"]);
        assert_eq!(
            decoded.object,
            json!({"kind": "Deployment", "metadata": {}, "status": {}, "spec": {"strategy": {}, "template":
                {"metadata": {}, "spec": {"containers": null}}}})
        );
    }

    #[test]
    fn type_mismatch_names_the_field() {
        let error = check("apps/v1.Deployment", json!({"metadata": {"labels": {"a": 1}}})).unwrap_err();
        assert_eq!(
            error.to_string(),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"
        );
        let error = check("apps/v1.Deployment", json!({"metadata": {"labels": "x"}})).unwrap_err();
        assert_eq!(error.converter_message(), "cannot restore map from string");
        let error = check("apps/v1.Deployment", json!({"spec": {"replicas": "3"}})).unwrap_err();
        assert_eq!(error.converter_message(), "unrecognized type: int32");
        check("core/v1.Secret", json!({"data": {"a": "%"}})).unwrap_err();
    }

    #[test]
    fn field_validation_decides_about_unknown_and_duplicate_fields() {
        let ty = schema().type_named("apps/v1.Deployment").unwrap();
        let text = br#"{"kind":"Deployment","zz":{"a":1,"a":2},"spec":{"b":[1],"template":{"spec":{"containers":[
            {"name":"x","name":"y","nmae":1}]}}},"aa":0}"#;
        let want = [
            r#"unknown field "zz""#,
            r#"unknown field "spec.b""#,
            r#"duplicate field "spec.template.spec.containers[0].name""#,
            r#"unknown field "spec.template.spec.containers[0].nmae""#,
            r#"unknown field "aa""#,
        ];
        let (object, warnings) = decode_json(ty, text, FieldValidation::Warn).unwrap();
        assert_eq!(warnings, want);
        assert_eq!(object["spec"]["template"]["spec"]["containers"][0]["name"], "y");
        assert_eq!(decode_json(ty, text, FieldValidation::Ignore).unwrap(), (object, vec![]));
        let refused = decode_json(ty, text, FieldValidation::Strict).unwrap_err().to_string();
        assert_eq!(refused, format!("strict decoding error: {}", want.join(", ")));
    }

    #[test]
    fn embedded_objects_keep_their_type_meta() {
        let claim = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": "a"}});
        let decoded = check("apps/v1.StatefulSet", json!({"spec": {"volumeClaimTemplates": [claim]}})).unwrap();
        assert_eq!(decoded.object["spec"]["volumeClaimTemplates"][0]["kind"], "PersistentVolumeClaim");
        assert!(decoded.unknown.is_empty());
    }

    #[test]
    fn nested_json_schemas_are_canonicalized() {
        let given = json!({"items": {"type": "string", "bogus": 1, "title": ""}, "additionalProperties": false,
            "dependencies": {"a": ["b"]}});
        let decoded = check("apiextensions/v1.JSONSchemaProps", given).unwrap();
        assert_eq!(
            decoded.object,
            json!({"items": {"type": "string"}, "additionalProperties": false, "dependencies": {"a": ["b"]}})
        );
        assert!(decoded.unknown.is_empty());
        check("apiextensions/v1.JSONSchemaProps", json!({"additionalProperties": 1})).unwrap_err();
    }

    #[test]
    fn zero_filling_is_bounded_by_the_memory_budget() {
        let containers = vec![json!({}); 100_000];
        let error = check("core/v1.Pod", json!({"spec": {"containers": containers}})).err();
        assert_eq!(error, Some(DecodeError::MemoryLimit(OverBudget)));
    }
}
