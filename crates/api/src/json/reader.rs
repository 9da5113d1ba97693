//! The visitor behind [`parse`](super::parse): builds values, follows the schema and the path, and notes what is strange.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;

use super::{Error, Violation};
use crate::{
    Map, Value,
    budget::{Budget, Exceeded},
    decode::MAX_DEPTH,
    path::Path,
    schema::{Ty, Type, schema},
};

/// How many violations are kept, as upstream does.
const MAX_VIOLATIONS: usize = 100;

/// What is noted while a document is read.
#[derive(Default)]
pub struct State {
    pub violations: Vec<Violation>,
    pub budget: Budget,
    /// Why the reader stopped; the deserializer's own error carries no value.
    pub failed: Option<Error>,
}

impl State {
    fn fail<E: serde::de::Error>(&mut self, error: impl Into<Error>) -> E {
        self.failed = Some(error.into());
        E::custom("refused")
    }

    fn afford<E: serde::de::Error>(&mut self, charged: Result<(), Exceeded>) -> Result<(), E> {
        charged.map_err(|error| self.fail(error))
    }

    fn note(&mut self, at: usize, violation: Violation) {
        if self.violations.len() < MAX_VIOLATIONS && !self.violations.contains(&violation) {
            self.violations.insert(at.min(self.violations.len()), violation);
        }
    }
}

/// What the schema says about a value.
#[derive(Clone, Copy)]
pub enum Shape {
    /// Nothing.
    Any,
    /// It is this struct.
    Struct(&'static Type),
    /// It is of this type.
    Of(&'static Ty),
}

impl Shape {
    fn of(ty: &'static Ty) -> Self {
        match ty {
            Ty::Raw => Shape::Any,
            Ty::Struct(id) => Shape::Struct(schema().get(*id)),
            other => Shape::Of(other),
        }
    }

    fn element(self) -> Self {
        match self {
            Shape::Of(Ty::List(inner) | Ty::Map(inner)) => Shape::of(inner),
            _ => Shape::Any,
        }
    }

    /// What a key stands for; `None` if the struct has no such field.
    fn member(self, key: &str, path: &Path) -> Option<Shape> {
        match self {
            Shape::Struct(ty) => match ty.field(key) {
                Some(field) => Some(Shape::of(&field.ty)),
                None if matches!(key, "apiVersion" | "kind") && (ty.kind || path.depth == 0) => Some(Shape::Any),
                None => None,
            },
            other => Some(other.element()),
        }
    }

    /// Whether a float without a fraction is an integer; integer fields refuse it, as Go does.
    fn integral(self) -> bool {
        !matches!(self, Shape::Of(Ty::Int32 | Ty::Int64 | Ty::IntOrString))
    }
}

/// Reads a whole document.
pub fn whole(state: &mut State, shape: Shape) -> Node<'_, '_> {
    Node { state, shape, path: Path::TOP }
}

/// Reads the value at a path.
pub struct Node<'s, 'p> {
    state: &'s mut State,
    shape: Shape,
    path: Path<'p>,
}

impl<'de> DeserializeSeed<'de> for Node<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or_else(|_| (value as f64).into(), Value::from))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if self.shape.integral() && value.fract() == 0.0 && value.abs() <= EXACT {
            return Ok((value as i64).into());
        }
        Ok(value.into())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        let charged = self.state.budget.text(text.len());
        self.state.afford(charged)?;
        Ok(Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let Node { state, shape, path } = self;
        if path.depth >= MAX_DEPTH {
            return Err(state.fail(Error::Depth));
        }
        let mut out = Vec::new();
        while let Some(value) =
            items.next_element_seed(Node { state: &mut *state, shape: shape.element(), path: path.index(out.len()) })?
        {
            let charged = state.budget.element();
            state.afford(charged)?;
            out.push(value);
        }
        Ok(Value::Array(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let Node { state, shape, path } = self;
        if path.depth >= MAX_DEPTH {
            return Err(state.fail(Error::Depth));
        }
        let mut out = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let at = state.violations.len();
            let Some(member) = shape.member(&key, &path) else {
                state.note(at, Violation::Unknown(path.field(&key).to_string()));
                entries.next_value::<IgnoredAny>()?;
                continue;
            };
            let charged = state.budget.entry(out.len(), key.len());
            state.afford(charged)?;
            let value = entries.next_value_seed(Node { state: &mut *state, shape: member, path: path.key(&key) })?;
            match out.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(value);
                }
                Entry::Occupied(mut entry) => {
                    state.note(at, Violation::Duplicate(path.key(entry.key()).to_string()));
                    entry.insert(value);
                }
            }
        }
        Ok(Value::Object(out))
    }
}

/// Reads `apiVersion` and `kind` of an object and skips the rest.
pub struct TypeMeta<'s> {
    pub state: &'s mut State,
}

const STRUCT: &str = r#"value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

impl<'de> DeserializeSeed<'de> for TypeMeta<'_> {
    type Value = (String, String);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl TypeMeta<'_> {
    fn refuse<E: serde::de::Error>(self, found: &'static str) -> E {
        self.state.fail(Error::TypeMeta { found, what: STRUCT })
    }
}

impl<'de> Visitor<'de> for TypeMeta<'_> {
    type Value = (String, String);

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Default::default())
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<Self::Value, E> {
        Err(self.refuse("bool"))
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<Self::Value, E> {
        Err(self.refuse("number"))
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<Self::Value, E> {
        Err(self.refuse("number"))
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<Self::Value, E> {
        Err(self.refuse("number"))
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Self::Value, E> {
        Err(self.refuse("string"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Err(self.refuse("array"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let (mut version, mut kind) = (String::new(), String::new());
        while let Some(key) = entries.next_key::<String>()? {
            let (slot, what) = match key.as_str() {
                "apiVersion" => (&mut version, "struct field .apiVersion of type string"),
                "kind" => (&mut kind, "struct field .kind of type string"),
                _ => {
                    entries.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            // An inner state: what is wrong in here is told in terms of the field.
            let mut inner = State::default();
            match entries.next_value_seed(whole(&mut inner, Shape::Any)) {
                Ok(Value::String(text)) => *slot = text,
                Ok(Value::Null) => {}
                Ok(other) => return Err(self.state.fail(Error::TypeMeta { found: found(&other), what })),
                Err(error) => {
                    self.state.failed = inner.failed;
                    return Err(A::Error::custom(error));
                }
            }
        }
        Ok((version, kind))
    }
}

fn found(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::String(_) | Value::Null => "string",
    }
}
