//! Turns what a client sent into the form that upstream would write: known fields only, right types, zeros as the
//! tables say. [`read`] decodes bytes, [`canonical`] a value; nothing else lets an object enter the server.

mod body;
mod custom;
mod error;
mod scalar;
mod text;

pub use body::{Format, body, check_kind, unrecognized};
pub use custom::{custom, metadata};
pub use error::Error;
pub use formats::json::MAX_DEPTH;

use crate::{
    Map, Value,
    budget::{Budget, Exceeded},
    json::{Violation, kind_of_value},
    path::Path,
    schema::{Field, Presence, Shapes, Ty, Type, TypeId, schema},
};

/// A canonical object, and the paths of the fields that were dropped because the schema does not know them.
#[derive(Debug)]
pub struct Decoded {
    /// The object.
    pub object: Value,
    /// For example `spec.replicsa`.
    pub unknown: Vec<String>,
}

/// What is done about unknown and duplicate fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They are dropped.
    Ignore,
    /// They are dropped, and the client is told.
    #[default]
    Warn,
    /// The object is refused.
    Strict,
}

/// Reads JSON as an object of type `ty`; the second part is what a client is warned of.
pub fn read(ty: TypeId, bytes: &[u8], mode: Mode) -> Result<(Value, Vec<String>), Error> {
    let (object, violations) = text::read(ty, bytes)?;
    let violations: Vec<String> = violations.iter().map(Violation::to_string).collect();
    match mode {
        Mode::Strict if !violations.is_empty() => Err(Error::Strict(violations)),
        Mode::Warn => Ok((object, violations)),
        Mode::Strict | Mode::Ignore => Ok((object, Vec::new())),
    }
}

/// Reads `value` as an object of type `ty`. `kind` and `apiVersion` are kept as they are.
pub fn canonical(ty: TypeId, value: Value) -> Result<Decoded, Error> {
    let mut walk = Walk { top: schema().get(ty), unknown: Vec::new(), budget: Budget::default() };
    let object = walk.top(ty, value)?;
    Ok(Decoded { object, unknown: walk.unknown })
}

/// Writes the zeros of a struct that JSON shows though they are not set.
pub(crate) fn fill(ty: &Type, map: &mut Map, budget: &mut Budget) -> Result<(), Exceeded> {
    for field in ty.zeros.iter().map(|at| &ty.fields[*at]) {
        if !map.contains_key(field.name) {
            budget.entry(map.len(), field.name.len())?;
            let zero = zero(&field.ty, budget)?;
            map.insert(field.name.to_owned(), zero);
        }
    }
    Ok(())
}

/// Whether a field that is set stands in JSON.
pub(crate) fn shows(field: &Field, value: &Value) -> bool {
    field.presence != Presence::NonZero || field.ty.is_struct() || !is_zero(value)
}

/// The zero of a type, as JSON has it.
pub(crate) fn zero(ty: &Ty, budget: &mut Budget) -> Result<Value, Exceeded> {
    Ok(match ty {
        Ty::String => "".into(),
        Ty::Duration => "0s".into(),
        Ty::Bool => false.into(),
        Ty::Int32 | Ty::Int64 | Ty::Double | Ty::IntOrString => 0.into(),
        Ty::Quantity => "0".into(),
        Ty::Struct(id) => {
            let mut map = Map::new();
            fill(schema().get(*id), &mut map, budget)?;
            Value::Object(map)
        }
        Ty::Bytes | Ty::Time | Ty::MicroTime | Ty::Raw | Ty::List(_) | Ty::Map(_) => Value::Null,
    })
}

struct Walk {
    top: &'static Type,
    unknown: Vec<String>,
    budget: Budget,
}

/// What is being read: the struct that has it, the field, and the type, which may be of an element of the field.
#[derive(Clone, Copy)]
struct Place<'a> {
    owner: &'static Type,
    field: &'static Field,
    ty: &'a Ty,
    path: &'a Path<'a>,
}

impl Walk {
    fn top(&mut self, id: TypeId, mut value: Value) -> Result<Value, Error> {
        let ty = schema().get(id);
        match &mut value {
            Value::Object(map) => self.structure(ty, map, &Path::TOP)?,
            Value::Null => value = zero(&Ty::Struct(id), &mut self.budget)?,
            other => return Err(error::whole(kind_of_value(other), ty)),
        }
        Ok(value)
    }

    /// Makes the fields of a struct canonical in place.
    fn structure(&mut self, ty: &'static Type, map: &mut Map, path: &Path) -> Result<(), Error> {
        if path.depth > MAX_DEPTH {
            return Err(Error::Depth);
        }
        let mut dropped = Vec::new();
        for (name, value) in map.iter_mut() {
            if !self.entry(ty, name, value, path)? {
                dropped.push(name.clone());
            }
        }
        for name in &dropped {
            map.remove(name);
        }
        Ok(fill(ty, map, &mut self.budget)?)
    }

    /// Whether an entry of a struct is kept.
    fn entry(&mut self, ty: &'static Type, name: &str, value: &mut Value, path: &Path) -> Result<bool, Error> {
        let top = path.depth == 0;
        let Some(field) = ty.field(name) else {
            let type_meta = matches!(name, "apiVersion" | "kind") && (top || ty.kind);
            if !type_meta {
                self.unknown.push(path.field(name).to_string());
            }
            return Ok(type_meta && (top || value.as_str().is_some_and(|text| !text.is_empty())));
        };
        if value.is_null() {
            return Ok(false);
        }
        let place = Place { owner: ty, field, ty: &field.ty, path: &path.field(field.name) };
        self.value(place, value)?;
        Ok(!value.is_null() && shows(field, value))
    }

    fn value(&mut self, place: Place, value: &mut Value) -> Result<(), Error> {
        match (place.ty, &mut *value) {
            (Ty::Raw, _) => match place.field.shapes {
                Some(shapes) => self.shape(place, shapes, value),
                None => Ok(()),
            },
            (Ty::Struct(id), Value::Object(map)) => self.structure(schema().get(*id), map, place.path),
            (Ty::List(inner), Value::Array(items)) => {
                for (at, item) in items.iter_mut().enumerate() {
                    self.element(Place { ty: inner, path: &place.path.index(at), ..place }, item)?;
                }
                Ok(())
            }
            (Ty::Map(inner), Value::Object(map)) => {
                for (key, item) in map.iter_mut() {
                    self.element(Place { ty: inner, path: &place.path.key(key), ..place }, item)?;
                }
                Ok(())
            }
            (ty, _) => match scalar::canonical(ty, value) {
                Ok(()) => Ok(()),
                Err(Some(message)) => Err(Error::Value { path: place.path.to_string(), message }),
                Err(None) => Err(error::mismatch(self.top, place, error::found(place.ty, value))),
            },
        }
    }

    fn element(&mut self, place: Place, value: &mut Value) -> Result<(), Error> {
        if value.is_null() {
            *value = zero(place.ty, &mut self.budget)?;
            return Ok(());
        }
        self.value(place, value)
    }

    /// A schema, or what may stand instead of one. Upstream never tells of unknown fields in there.
    fn shape(&mut self, place: Place, shapes: Shapes, value: &mut Value) -> Result<(), Error> {
        let (Shapes::SchemaOrBool(id) | Shapes::SchemaOrArray(id) | Shapes::SchemaOrStrings(id)) = shapes;
        let known = self.unknown.len();
        let ty = schema().get(id);
        match (shapes, &mut *value) {
            (_, Value::Object(map)) => self.structure(ty, map, place.path)?,
            (Shapes::SchemaOrBool(_), Value::Bool(_)) => {}
            (Shapes::SchemaOrArray(id), Value::Array(items)) => {
                for (at, item) in items.iter_mut().enumerate() {
                    self.element(Place { ty: &Ty::Struct(id), path: &place.path.index(at), ..place }, item)?;
                }
            }
            (Shapes::SchemaOrStrings(_), Value::Array(items)) if items.iter().all(Value::is_string) => {}
            (Shapes::SchemaOrBool(_), _) => {
                let message = "boolean or JSON schema expected".to_owned();
                return Err(Error::Value { path: place.path.to_string(), message });
            }
            (Shapes::SchemaOrStrings(_), Value::Array(items)) => {
                let wrong = items.iter().find(|item| !item.is_string()).unwrap_or(&Value::Null);
                let (found, wanted) = (kind_of_value(wrong).to_owned(), "string".to_owned());
                return Err(Error::Whole { found, wanted });
            }
            // Upstream takes it for nothing.
            _ => *value = Value::Null,
        }
        self.unknown.truncate(known);
        Ok(())
    }
}

/// Whether a scalar, list or map is what Go leaves out.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(ty: &str, given: Value) -> Result<Decoded, Error> {
        canonical(schema().type_named(ty).unwrap(), given)
    }

    #[test]
    fn zeros_are_written_as_go_writes_them() {
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
    fn wrong_types_name_the_field() {
        let error = check("apps/v1.Deployment", json!({"metadata": {"labels": {"a": 1}}})).unwrap_err();
        assert_eq!(
            error.to_string(),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"
        );
        check("apps/v1.Deployment", json!({"spec": {"replicas": "3"}})).unwrap_err();
        check("core/v1.Secret", json!({"data": {"a": "%"}})).unwrap_err();
    }

    #[test]
    fn modes_differ_in_what_they_do_about_strange_fields() {
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
        let (object, warnings) = read(ty, text, Mode::Warn).unwrap();
        assert_eq!(warnings, want);
        assert_eq!(object["spec"]["template"]["spec"]["containers"][0]["name"], "y");
        assert_eq!(read(ty, text, Mode::Ignore).unwrap(), (object, vec![]));
        let refused = read(ty, text, Mode::Strict).unwrap_err().to_string();
        assert_eq!(refused, format!("strict decoding error: {}", want.join(", ")));
    }

    #[test]
    fn embedded_objects_may_say_what_they_are() {
        let claim = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": "a"}});
        let decoded = check("apps/v1.StatefulSet", json!({"spec": {"volumeClaimTemplates": [claim]}})).unwrap();
        assert_eq!(decoded.object["spec"]["volumeClaimTemplates"][0]["kind"], "PersistentVolumeClaim");
        assert!(decoded.unknown.is_empty());
    }

    #[test]
    fn schemas_are_canonical_inside_too() {
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
    fn few_bytes_cannot_become_much_memory() {
        let containers = vec![json!({}); 100_000];
        let error = check("core/v1.Pod", json!({"spec": {"containers": containers}})).err();
        assert_eq!(error, Some(Error::Memory(Exceeded)));
    }
}
