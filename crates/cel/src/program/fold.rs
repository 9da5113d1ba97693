//! Evaluation of comprehensions.

use std::sync::atomic::Ordering;

use super::{
    Fold,
    attribute::go_name,
    eval::{Local, Machine, Outcome},
};
use crate::{
    error::Error,
    value::{List, Value},
};

impl<'a> Machine<'a, '_> {
    pub(super) fn fold(&mut self, fold: &'a Fold) -> Outcome<'a> {
        let range = self.eval(&fold.range)?;
        self.locals[fold.slot] = Local::Pending(&fold.init);
        match range {
            Value::List(list) => self.over_list(fold, &list)?,
            Value::Map(map) => {
                for key in map.keys() {
                    let value = fold.two.then(|| map.find(&key.clone().into()));
                    if let Some(value) = value {
                        let value = value.map(|value| value.unwrap_or(Value::Null));
                        self.locals[fold.slot + 2] = local(value);
                    }
                    if !self.step(fold, Local::Value(key.into()))? {
                        break;
                    }
                }
            }
            other if fold.two => {
                let name = go_name(&other);
                return Err(Error::failed(format!("unsupported comprehension range type: {name}")));
            }
            other => return Err(Error::failed(format!("got '{}', expected iterable type", go_name(&other)))),
        }
        self.eval(&fold.result)
    }

    fn over_list(&mut self, fold: &'a Fold, list: &List<'a>) -> Result<(), Error> {
        for at in 0..list.len() {
            let item = local(list.get(at));
            let first = if fold.two {
                self.locals[fold.slot + 2] = item;
                Local::Value(Value::Int(at as i64))
            } else {
                item
            };
            if !self.step(fold, first)? {
                break;
            }
        }
        Ok(())
    }

    /// Runs one iteration; `false` ends the loop.
    fn step(&mut self, fold: &'a Fold, first: Local<'a>) -> Result<bool, Error> {
        self.locals[fold.slot + 1] = first;
        match self.eval(&fold.condition) {
            Ok(Value::Bool(false)) => return Ok(false),
            Err(error) if error.is_final() => return Err(error),
            _ => {}
        }
        let next = self.eval(&fold.step);
        if let Err(error) = &next
            && error.is_final()
        {
            return Err(error.clone());
        }
        self.locals[fold.slot] = local(next);
        match self.budget.stop {
            Some(stop) if stop.load(Ordering::Relaxed) => Err(Error::Interrupted),
            _ => Ok(true),
        }
    }
}

fn local<'a>(outcome: Outcome<'a>) -> Local<'a> {
    match outcome {
        Ok(value) => Local::Value(value),
        Err(error) => Local::Failed(error),
    }
}
