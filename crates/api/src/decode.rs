//! Turns what a client sent into the form that upstream would write: known fields only, right types, zeros as the
//! tables say. [`canonical`] is the only way an object enters the server.

use base64::{Engine, prelude::BASE64_STANDARD};

use crate::{
    Map, Value,
    quantity::Quantity,
    schema::{Field, Presence, Ty, Type, TypeId, schema},
    time,
};

/// How deep an object may be nested.
const MAX_DEPTH: usize = 256;

/// A canonical object, and the paths of the fields that were dropped because the schema does not know them.
#[derive(Debug)]
pub struct Decoded {
    /// The object.
    pub object: Value,
    /// For example `spec.replicsa`.
    pub unknown: Vec<String>,
}

/// Why an object does not fit its type.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A value of the wrong type.
    #[error("json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {wanted}")]
    Type {
        /// What was sent: `string`, `number`, `bool`, `object` or `array`.
        found: &'static str,
        /// The type that has the field.
        owner: String,
        /// Where it is.
        path: String,
        /// What should be there.
        wanted: &'static str,
    },
    /// A value of the right type that cannot be read.
    #[error("{path}: {message}")]
    Value {
        /// Where it is.
        path: String,
        /// What is wrong.
        message: String,
    },
    /// Nested too deeply.
    #[error("the object is nested more than {MAX_DEPTH} levels deep")]
    Depth,
}

/// Reads `value` as an object of type `ty`. `kind` and `apiVersion` are kept as they are.
pub fn canonical(ty: TypeId, mut value: Value) -> Result<Decoded, Error> {
    let mut walk = Walk { unknown: Vec::new(), path: Vec::new() };
    let type_meta = value.as_object_mut().map(|map| (map.remove("apiVersion"), map.remove("kind")));
    let mut object = walk.structure(ty, value)?;
    if let (Some(map), Some((version, kind))) = (object.as_object_mut(), type_meta) {
        version.map(|version| map.insert("apiVersion".into(), version));
        kind.map(|kind| map.insert("kind".into(), kind));
    }
    Ok(Decoded { object, unknown: walk.unknown })
}

struct Walk {
    unknown: Vec<String>,
    path: Vec<String>,
}

impl Walk {
    fn structure(&mut self, id: TypeId, value: Value) -> Result<Value, Error> {
        let ty = schema().get(id);
        let mut source = match value {
            Value::Object(map) => map,
            Value::Null => Map::new(),
            other => return Err(self.mismatch(ty, &other, "map[string]interface {}")),
        };
        let mut out = Map::new();
        for field in &ty.fields {
            let given = source.remove(field.name).filter(|value| !value.is_null());
            self.path.push(field.name.to_owned());
            if self.path.len() > MAX_DEPTH {
                return Err(Error::Depth);
            }
            if let Some(value) = self.field(ty, field, given)? {
                out.insert(field.name.to_owned(), value);
            }
            self.path.pop();
        }
        for name in source.keys() {
            self.path.push(name.clone());
            self.unknown.push(self.joined());
            self.path.pop();
        }
        Ok(Value::Object(out))
    }

    fn field(&mut self, owner: &Type, field: &Field, given: Option<Value>) -> Result<Option<Value>, Error> {
        let value = match given {
            Some(value) => Some(self.value(owner, &field.ty, value)?),
            None => None,
        };
        match field.presence {
            Presence::Pointer => Ok(value),
            Presence::Always => match value {
                Some(value) => Ok(Some(value)),
                None => self.zero(&field.ty).map(Some),
            },
            Presence::NonZero if writes_zero(&field.ty) => match value {
                Some(value) => Ok(Some(value)),
                None => self.zero(&field.ty).map(Some),
            },
            Presence::NonZero => Ok(value.filter(|value| !is_zero(value))),
        }
    }

    fn zero(&mut self, ty: &Ty) -> Result<Value, Error> {
        Ok(match ty {
            Ty::String | Ty::Duration => "".into(),
            Ty::Bool => false.into(),
            Ty::Int32 | Ty::Int64 | Ty::Double | Ty::IntOrString => 0.into(),
            Ty::Quantity => "0".into(),
            Ty::Struct(id) => self.structure(*id, Value::Null)?,
            Ty::Bytes | Ty::Time | Ty::MicroTime | Ty::Raw | Ty::List(_) | Ty::Map(_) => Value::Null,
        })
    }

    fn value(&mut self, owner: &Type, ty: &Ty, value: Value) -> Result<Value, Error> {
        match (ty, value) {
            (Ty::Raw, value) => Ok(value),
            (Ty::Struct(id), value) => self.structure(*id, value),
            (Ty::List(inner), Value::Array(items)) => self.items(owner, inner, items),
            (Ty::Map(inner), Value::Object(map)) => self.entries(owner, inner, map),
            (Ty::String, Value::String(text)) => Ok(Value::String(text)),
            (Ty::Bool, Value::Bool(value)) => Ok(Value::Bool(value)),
            (Ty::IntOrString, value @ Value::String(_)) => Ok(value),
            (Ty::Int32 | Ty::IntOrString, Value::Number(number))
                if number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) =>
            {
                Ok(Value::Number(number))
            }
            (Ty::Int64, Value::Number(number)) if number.as_i64().is_some() => Ok(Value::Number(number)),
            (Ty::Double, Value::Number(number)) => Ok(Value::Number(number)),
            (Ty::Quantity, Value::String(text)) => self.quantity(&text),
            (Ty::Quantity, Value::Number(number)) => self.quantity(&number.to_string()),
            (Ty::Bytes, Value::String(text)) => self.bytes(text),
            (Ty::Duration, Value::String(text)) => Ok(Value::String(text)),
            (Ty::Time, Value::String(text)) => self.time(&text, time::seconds),
            (Ty::MicroTime, Value::String(text)) => self.time(&text, time::micros),
            (ty, value) => Err(self.mismatch(owner, &value, go_type(ty))),
        }
    }

    fn items(&mut self, owner: &Type, inner: &Ty, items: Vec<Value>) -> Result<Value, Error> {
        let mut out = Vec::with_capacity(items.len());
        for (at, item) in items.into_iter().enumerate() {
            let last = self.path.last().cloned().unwrap_or_default();
            if let Some(name) = self.path.last_mut() {
                *name = format!("{last}[{at}]");
            }
            out.push(if item.is_null() { self.zero(inner)? } else { self.value(owner, inner, item)? });
            if let Some(name) = self.path.last_mut() {
                *name = last;
            }
        }
        Ok(Value::Array(out))
    }

    fn entries(&mut self, owner: &Type, inner: &Ty, map: Map) -> Result<Value, Error> {
        let mut out = Map::new();
        for (key, item) in map {
            self.path.push(key.clone());
            let value = if item.is_null() { self.zero(inner)? } else { self.value(owner, inner, item)? };
            self.path.pop();
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }

    fn quantity(&self, text: &str) -> Result<Value, Error> {
        match Quantity::parse(text.trim()) {
            Some(quantity) => Ok(Value::String(quantity.to_string())),
            None => Err(self.invalid(
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".into(),
            )),
        }
    }

    fn bytes(&self, text: String) -> Result<Value, Error> {
        match BASE64_STANDARD.decode(&text) {
            Ok(_) => Ok(Value::String(text)),
            Err(_) => Err(self.invalid("illegal base64 data".into())),
        }
    }

    fn time(&self, text: &str, write: fn(jiff::Timestamp) -> String) -> Result<Value, Error> {
        match time::parse(text) {
            Some(time) => Ok(Value::String(write(time))),
            None => Err(self.invalid(format!("parsing time {text:?} as RFC 3339 failed"))),
        }
    }

    fn invalid(&self, message: String) -> Error {
        Error::Value { path: self.joined(), message }
    }

    fn mismatch(&self, owner: &Type, found: &Value, wanted: &'static str) -> Error {
        let found = match found {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let owner = owner.name.rsplit('.').next().unwrap_or_default().to_owned();
        let path = self.path.iter().map(|part| part.split('[').next().unwrap_or_default()).collect::<Vec<_>>().join(".");
        Error::Type { found, owner, path, wanted }
    }

    fn joined(&self) -> String {
        self.path.join(".")
    }
}

/// Go writes these even when they are zero and "omitempty", because they are structs there.
fn writes_zero(ty: &Ty) -> bool {
    matches!(ty, Ty::Struct(_) | Ty::Time | Ty::MicroTime | Ty::Quantity | Ty::IntOrString | Ty::Raw | Ty::Duration)
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

fn go_type(ty: &Ty) -> &'static str {
    match ty {
        Ty::String | Ty::Quantity | Ty::Time | Ty::MicroTime | Ty::Duration => "string",
        Ty::Bool => "bool",
        Ty::Int32 | Ty::IntOrString => "int32",
        Ty::Int64 => "int64",
        Ty::Double => "float64",
        Ty::Bytes => "[]uint8",
        Ty::List(_) => "[]interface {}",
        Ty::Map(_) | Ty::Struct(_) | Ty::Raw => "map[string]interface {}",
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
        let decoded = check("apps/v1.Deployment", json!({"kind": "Deployment", "spec": {"paused": false, "bogus": 1}})).unwrap();
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
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels.a of type string"
        );
        check("apps/v1.Deployment", json!({"spec": {"replicas": "3"}})).unwrap_err();
        check("core/v1.Secret", json!({"data": {"a": "%"}})).unwrap_err();
    }
}
