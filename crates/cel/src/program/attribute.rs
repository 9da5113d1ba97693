//! Attributes: a variable or a computed value, followed by field, key and index qualifiers. Each qualifier has a cost,
//! and so has the attribute as a whole.

use super::{
    Attribute, AttributeRoot, Qualifier, QualifierKey,
    interpreter::{EvalResult, Interpreter, LocalValue},
};
use crate::{
    error::EvalError,
    value::{ListValue, MapValue, Value},
};

impl<'a> Interpreter<'a, '_> {
    pub(super) fn eval_attribute(&mut self, attribute: &'a Attribute) -> EvalResult<'a> {
        let outcome = self.resolve_attribute(attribute, false);
        if outcome.as_ref().is_err_and(EvalError::is_fatal) {
            return outcome;
        }
        // A conditional attribute costs as much as its selected branch.
        if !matches!(attribute.root, AttributeRoot::Either(_)) {
            self.charge_cost(1)?;
        }
        outcome
    }

    pub(super) fn eval_presence_test(&mut self, attribute: &'a Attribute) -> EvalResult<'a> {
        match self.resolve_attribute(attribute, true)? {
            Value::Optional(value) => Ok(Value::Bool(value.is_some())),
            value => Ok(value),
        }
    }

    /// Resolves an attribute. `test`: the last qualifier only tests for presence.
    fn resolve_attribute(&mut self, attribute: &'a Attribute, test: bool) -> EvalResult<'a> {
        let mut at = match &attribute.root {
            AttributeRoot::Variable(number, name) => match self.activation.values.get(*number) {
                Some(Some(value)) => value.clone(),
                _ => return Err(EvalError::new(format!("no such attribute(s): {name}"))),
            },
            AttributeRoot::Local { slot, take } => self.read_local(*slot, *take)?,
            AttributeRoot::Computed(node) => self.eval_node(node)?,
            AttributeRoot::Either(parts) => match self.eval_node(&parts.0)? {
                Value::Bool(true) => self.resolve_attribute(&parts.1, false)?,
                Value::Bool(false) => self.resolve_attribute(&parts.2, false)?,
                _ => return Err(EvalError::no_such_overload()),
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
            match self.apply_qualifier(&at, qualifier, optional, test)? {
                Some(value) => at = value,
                None => return Ok(Value::Optional(None)),
            }
        }
        Ok(if optional { Value::optional_of(at) } else { at })
    }

    fn read_local(&mut self, slot: usize, take: bool) -> EvalResult<'a> {
        match &self.locals[slot] {
            LocalValue::Pending(node) => {
                let node = *node;
                let outcome = self.eval_node(node);
                if outcome.as_ref().is_err_and(EvalError::is_fatal) {
                    return outcome;
                }
                self.locals[slot] = match &outcome {
                    Ok(value) => LocalValue::Value(value.clone()),
                    Err(error) => LocalValue::Failed(error.clone()),
                };
                if take {
                    self.locals[slot] = LocalValue::Value(Value::Null);
                }
                outcome
            }
            LocalValue::Failed(error) => Err(error.clone()),
            LocalValue::Value(_) if take => {
                match std::mem::replace(&mut self.locals[slot], LocalValue::Value(Value::Null)) {
                    LocalValue::Value(value) => Ok(value),
                    _ => Ok(Value::Null),
                }
            }
            LocalValue::Value(value) => Ok(value.clone()),
        }
    }

    /// Applies one qualifier. `None`: the value is absent, which is not an error for optional qualifiers.
    fn apply_qualifier(
        &mut self,
        at: &Value<'a>,
        qualifier: &'a Qualifier,
        optional: bool,
        test: bool,
    ) -> Result<Option<Value<'a>>, EvalError> {
        let found = match &qualifier.key {
            QualifierKey::Field(name) if matches!(at, Value::Map(MapValue::Composed)) => {
                self.eval_composed_variable(name)
            }
            QualifierKey::Field(name) => qualify_field(at, name),
            QualifierKey::Constant(key) => qualify_index(at, key),
            QualifierKey::Attribute(attribute) => match self.resolve_attribute(attribute, false) {
                Err(error) if error.is_fatal() => return Err(error),
                key => key.and_then(|key| qualify_index(at, &key)),
            },
            QualifierKey::Computed(node) => match self.eval_node(node) {
                Err(error) if error.is_fatal() => return Err(error),
                key => key.and_then(|key| qualify_index(at, &key)),
            },
        };
        // An optional qualifier without a value is free.
        let absent = matches!(found, Ok(QualifiedValue::Absent(_) | QualifiedValue::Nothing));
        if !(absent && optional) {
            self.charge_cost(1)?;
        }
        match found? {
            QualifiedValue::Found(_) if test => Ok(Some(Value::Bool(true))),
            QualifiedValue::Found(value) => Ok(Some(value)),
            QualifiedValue::Absent(_) | QualifiedValue::Nothing if optional => Ok(None),
            QualifiedValue::Absent(_) | QualifiedValue::Nothing if test => Ok(Some(Value::Bool(false))),
            QualifiedValue::Absent(error) => Err(error),
            QualifiedValue::Nothing => Err(match &qualifier.key {
                QualifierKey::Field(name) => no_such_key_error(name),
                QualifierKey::Constant(key) => no_such_key_error(&key.display_text()),
                _ => no_such_key_error("value"),
            }),
        }
    }
}

pub(super) enum QualifiedValue<'a> {
    Found(Value<'a>),
    /// The key or index does not exist.
    Absent(EvalError),
    /// The operand has no fields or elements.
    Nothing,
}

pub(super) fn no_such_key_error(name: &str) -> EvalError {
    EvalError::new(format!("no such key: {name}"))
}

fn qualify_field<'a>(at: &Value<'a>, name: &'a str) -> Result<QualifiedValue<'a>, EvalError> {
    match at {
        Value::Map(map) => Ok(match map.find_field(name)? {
            Some(value) => QualifiedValue::Found(value),
            None => QualifiedValue::Absent(no_such_key_error(name)),
        }),
        Value::Struct(made) => Ok(match made.1.iter().find(|(known, _)| &**known == name) {
            Some((_, value)) => QualifiedValue::Found(value.clone()),
            None => QualifiedValue::Absent(no_such_key_error(name)),
        }),
        Value::List(_) => Err(EvalError::new("unsupported index type 'string' in list")),
        _ => Ok(QualifiedValue::Nothing),
    }
}

fn qualify_index<'a>(at: &Value<'a>, key: &Value<'a>) -> Result<QualifiedValue<'a>, EvalError> {
    match (at, key) {
        (Value::List(list), _) => qualify_list_index(list, key),
        (Value::Map(map), _) => qualify_map_key(map, key),
        (Value::Struct(_), Value::String(name)) => {
            let owned: String = name.to_string();
            let Value::Struct(made) = at else { return Ok(QualifiedValue::Nothing) };
            Ok(match made.1.iter().find(|(known, _)| **known == *owned) {
                Some((_, value)) => QualifiedValue::Found(value.clone()),
                None => QualifiedValue::Absent(no_such_key_error(&owned)),
            })
        }
        _ => Ok(QualifiedValue::Absent(no_such_key_error(&key.display_text()))),
    }
}

fn qualify_map_key<'a>(map: &MapValue<'a>, key: &Value<'a>) -> Result<QualifiedValue<'a>, EvalError> {
    if !matches!(key, Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_)) {
        return Err(EvalError::new(format!("invalid qualifier type: {}", go_type_name(key))));
    }
    Ok(match map.find_value(key)? {
        Some(value) => QualifiedValue::Found(value),
        None => QualifiedValue::Absent(no_such_key_error(&key.display_text())),
    })
}

fn qualify_list_index<'a>(list: &ListValue<'a>, key: &Value<'a>) -> Result<QualifiedValue<'a>, EvalError> {
    let at = match key {
        Value::Int(at) => *at,
        Value::Uint(at) => i64::try_from(*at).unwrap_or(-1),
        Value::Double(at) if *at == at.trunc() && at.abs() < 1e15 => *at as i64,
        Value::Double(_) => {
            return Err(EvalError::new(format!("unsupported index value {} in list", key.display_text())));
        }
        Value::String(_) | Value::Bool(_) => {
            return Err(EvalError::new(format!("unsupported index type '{}' in list", key.type_of().type_name())));
        }
        _ => return Err(EvalError::new(format!("invalid qualifier type: {}", go_type_name(key)))),
    };
    match usize::try_from(at) {
        Ok(index) if index < list.len() => list.get(index).map(QualifiedValue::Found),
        _ => Ok(QualifiedValue::Absent(EvalError::new(format!("index out of bounds: {at}")))),
    }
}

/// Returns the Go type name of a value.
pub(super) fn go_type_name(value: &Value<'_>) -> &'static str {
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
