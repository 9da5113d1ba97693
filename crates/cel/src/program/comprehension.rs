//! Evaluation of comprehensions.

use std::sync::atomic::Ordering;

use super::{
    FoldPlan,
    attribute::go_type_name,
    interpreter::{EvalResult, Interpreter, LocalValue},
};
use crate::{
    error::EvalError,
    value::{ListValue, Value},
};

impl<'a> Interpreter<'a, '_> {
    pub(super) fn eval_comprehension(&mut self, fold: &'a FoldPlan) -> EvalResult<'a> {
        let range = self.eval_node(&fold.range)?;
        self.locals[fold.slot] = LocalValue::Pending(&fold.init);
        match range {
            Value::List(list) => self.iterate_list(fold, &list)?,
            Value::Map(map) => {
                for key in map.keys() {
                    let value = fold.two.then(|| map.find_value(&key.clone().into()));
                    if let Some(value) = value {
                        let value = value.map(|value| value.unwrap_or(Value::Null));
                        self.locals[fold.slot + 2] = to_local(value);
                    }
                    if !self.eval_iteration(fold, LocalValue::Value(key.into()))? {
                        break;
                    }
                }
            }
            other if fold.two => {
                let name = go_type_name(&other);
                return Err(EvalError::new(format!("unsupported comprehension range type: {name}")));
            }
            other => return Err(EvalError::new(format!("got '{}', expected iterable type", go_type_name(&other)))),
        }
        self.eval_node(&fold.result)
    }

    fn iterate_list(&mut self, fold: &'a FoldPlan, list: &ListValue<'a>) -> Result<(), EvalError> {
        for at in 0..list.len() {
            let item = to_local(list.get(at));
            let first = if fold.two {
                self.locals[fold.slot + 2] = item;
                LocalValue::Value(Value::Int(at as i64))
            } else {
                item
            };
            if !self.eval_iteration(fold, first)? {
                break;
            }
        }
        Ok(())
    }

    /// Runs one iteration; `false` ends the loop.
    fn eval_iteration(&mut self, fold: &'a FoldPlan, first: LocalValue<'a>) -> Result<bool, EvalError> {
        self.locals[fold.slot + 1] = first;
        match self.eval_node(&fold.condition) {
            Ok(Value::Bool(false)) => return Ok(false),
            Err(error) if error.is_fatal() => return Err(error),
            _ => {}
        }
        let next = self.eval_node(&fold.step);
        if let Err(error) = &next
            && error.is_fatal()
        {
            return Err(error.clone());
        }
        self.locals[fold.slot] = to_local(next);
        match self.budget.stop {
            Some(stop) if stop.load(Ordering::Relaxed) => Err(EvalError::Interrupted),
            _ => Ok(true),
        }
    }
}

fn to_local<'a>(outcome: EvalResult<'a>) -> LocalValue<'a> {
    match outcome {
        Ok(value) => LocalValue::Value(value),
        Err(error) => LocalValue::Failed(error),
    }
}
