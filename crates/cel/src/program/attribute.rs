//! Attributes: a variable or a computed value, followed by field, key and index qualifiers. Each qualifier has a cost,
//! and so has the attribute as a whole.

use super::{
    Attribute, Qualifier, QualifierKey, Root,
    eval::{Local, Machine, Outcome},
};
use crate::{
    error::Error,
    value::{List, Map, Value},
};

impl<'a> Machine<'a, '_> {
    pub(super) fn attribute(&mut self, attribute: &'a Attribute) -> Outcome<'a> {
        let outcome = self.resolve(attribute, false);
        if outcome.as_ref().is_err_and(Error::is_final) {
            return outcome;
        }
        // A conditional attribute costs as much as its selected branch.
        if !matches!(attribute.root, Root::Either(_)) {
            self.spend(1)?;
        }
        outcome
    }

    pub(super) fn has(&mut self, attribute: &'a Attribute) -> Outcome<'a> {
        match self.resolve(attribute, true)? {
            Value::Optional(value) => Ok(Value::Bool(value.is_some())),
            value => Ok(value),
        }
    }

    /// Resolves an attribute. `test`: the last qualifier only tests for presence.
    fn resolve(&mut self, attribute: &'a Attribute, test: bool) -> Outcome<'a> {
        let mut at = match &attribute.root {
            Root::Variable(number, name) => match self.bindings.values.get(*number) {
                Some(Some(value)) => value.clone(),
                _ => return Err(Error::failed(format!("no such attribute(s): {name}"))),
            },
            Root::Local { slot, take } => self.local(*slot, *take)?,
            Root::Computed(node) => self.eval(node)?,
            Root::Either(parts) => match self.eval(&parts.0)? {
                Value::Bool(true) => self.resolve(&parts.1, false)?,
                Value::Bool(false) => self.resolve(&parts.2, false)?,
                _ => return Err(Error::no_such_overload()),
            },
        };
        if attribute.qualifiers.is_empty() {
            return Ok(at);
        }
        let mut optional = false;
        if let Value::Optional(value) = at {
            let Some(value) = value else { return Ok(Value::Optional(None)) };
            optional = true;
            at = (*value).clone();
        }
        let last = attribute.qualifiers.len() - 1;
        for (number, qualifier) in attribute.qualifiers.iter().enumerate() {
            optional |= qualifier.optional;
            let test = test && number == last;
            match self.qualify(&at, qualifier, optional, test)? {
                Some(value) => at = value,
                None => return Ok(Value::Optional(None)),
            }
        }
        Ok(if optional { Value::some(at) } else { at })
    }

    fn local(&mut self, slot: usize, take: bool) -> Outcome<'a> {
        match &self.locals[slot] {
            Local::Pending(node) => {
                let node = *node;
                let outcome = self.eval(node);
                if outcome.as_ref().is_err_and(Error::is_final) {
                    return outcome;
                }
                self.locals[slot] = match &outcome {
                    Ok(value) => Local::Value(value.clone()),
                    Err(error) => Local::Failed(error.clone()),
                };
                if take {
                    self.locals[slot] = Local::Value(Value::Null);
                }
                outcome
            }
            Local::Failed(error) => Err(error.clone()),
            Local::Value(_) if take => match std::mem::replace(&mut self.locals[slot], Local::Value(Value::Null)) {
                Local::Value(value) => Ok(value),
                _ => Ok(Value::Null),
            },
            Local::Value(value) => Ok(value.clone()),
        }
    }

    /// Applies one qualifier. `None`: the value is absent, which is not an error for optional qualifiers.
    fn qualify(
        &mut self,
        at: &Value<'a>,
        qualifier: &'a Qualifier,
        optional: bool,
        test: bool,
    ) -> Result<Option<Value<'a>>, Error> {
        let found = match &qualifier.key {
            QualifierKey::Field(name) if matches!(at, Value::Map(Map::Composed)) => self.composed(name),
            QualifierKey::Field(name) => field(at, name),
            QualifierKey::Constant(key) => index(at, key),
            QualifierKey::Attribute(attribute) => match self.resolve(attribute, false) {
                Err(error) if error.is_final() => return Err(error),
                key => key.and_then(|key| index(at, &key)),
            },
            QualifierKey::Computed(node) => match self.eval(node) {
                Err(error) if error.is_final() => return Err(error),
                key => key.and_then(|key| index(at, &key)),
            },
        };
        // An optional qualifier without a value is free.
        let absent = matches!(found, Ok(Step::Absent(_) | Step::Nothing));
        if !(absent && optional) {
            self.spend(1)?;
        }
        match found? {
            Step::Found(_) if test => Ok(Some(Value::Bool(true))),
            Step::Found(value) => Ok(Some(value)),
            Step::Absent(_) | Step::Nothing if optional => Ok(None),
            Step::Absent(_) | Step::Nothing if test => Ok(Some(Value::Bool(false))),
            Step::Absent(error) => Err(error),
            Step::Nothing => Err(match &qualifier.key {
                QualifierKey::Field(name) => no_key(name),
                QualifierKey::Constant(key) => no_key(&key.shown()),
                _ => no_key("value"),
            }),
        }
    }
}

pub(super) enum Step<'a> {
    Found(Value<'a>),
    /// The key or index does not exist.
    Absent(Error),
    /// The operand has no fields or elements.
    Nothing,
}

pub(super) fn no_key(name: &str) -> Error {
    Error::failed(format!("no such key: {name}"))
}

fn field<'a>(at: &Value<'a>, name: &'a str) -> Result<Step<'a>, Error> {
    match at {
        Value::Map(map) => Ok(match map.field(name)? {
            Some(value) => Step::Found(value),
            None => Step::Absent(no_key(name)),
        }),
        Value::Struct(made) => Ok(match made.1.iter().find(|(known, _)| &**known == name) {
            Some((_, value)) => Step::Found(value.clone()),
            None => Step::Absent(no_key(name)),
        }),
        Value::List(_) => Err(Error::failed("unsupported index type 'string' in list")),
        _ => Ok(Step::Nothing),
    }
}

fn index<'a>(at: &Value<'a>, key: &Value<'a>) -> Result<Step<'a>, Error> {
    match (at, key) {
        (Value::List(list), _) => element(list, key),
        (Value::Map(map), _) => entry(map, key),
        (Value::Struct(_), Value::String(name)) => {
            let owned: String = name.to_string();
            let Value::Struct(made) = at else { return Ok(Step::Nothing) };
            Ok(match made.1.iter().find(|(known, _)| **known == *owned) {
                Some((_, value)) => Step::Found(value.clone()),
                None => Step::Absent(no_key(&owned)),
            })
        }
        _ => Ok(Step::Absent(no_key(&key.shown()))),
    }
}

fn entry<'a>(map: &Map<'a>, key: &Value<'a>) -> Result<Step<'a>, Error> {
    if !matches!(key, Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_)) {
        return Err(Error::failed(format!("invalid qualifier type: {}", go_name(key))));
    }
    Ok(match map.find(key)? {
        Some(value) => Step::Found(value),
        None => Step::Absent(no_key(&key.shown())),
    })
}

fn element<'a>(list: &List<'a>, key: &Value<'a>) -> Result<Step<'a>, Error> {
    let at = match key {
        Value::Int(at) => *at,
        Value::Uint(at) => i64::try_from(*at).unwrap_or(-1),
        Value::Double(at) if *at == at.trunc() && at.abs() < 1e15 => *at as i64,
        Value::Double(_) => {
            return Err(Error::failed(format!("unsupported index value {} in list", key.shown())));
        }
        Value::String(_) | Value::Bool(_) => {
            return Err(Error::failed(format!("unsupported index type '{}' in list", key.type_of().name())));
        }
        _ => return Err(Error::failed(format!("invalid qualifier type: {}", go_name(key)))),
    };
    match usize::try_from(at) {
        Ok(index) if index < list.len() => list.get(index).map(Step::Found),
        _ => Ok(Step::Absent(Error::failed(format!("index out of bounds: {at}")))),
    }
}

/// Returns the Go type name of a value.
pub(super) fn go_name(value: &Value<'_>) -> &'static str {
    match value {
        Value::Null => "types.Null",
        Value::Bool(_) => "types.Bool",
        Value::Int(_) => "types.Int",
        Value::Uint(_) => "types.Uint",
        Value::Double(_) => "types.Double",
        Value::String(_) => "types.String",
        Value::Bytes(_) => "types.Bytes",
        Value::Timestamp(_) => "types.Timestamp",
        Value::Duration(_) => "types.Duration",
        Value::List(_) => "*types.baseList",
        Value::Map(_) | Value::Struct(_) => "*types.baseMap",
        Value::Type(_) => "*types.Type",
        Value::Optional(_) => "*types.Optional",
        Value::Native(_) | Value::Unknown(_) => "cel.Value",
    }
}
