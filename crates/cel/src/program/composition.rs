//! Composed variables: variables defined by expressions, such as those of an admission policy. They are evaluated on
//! first use, and at most once.

use std::{
    cell::{Cell, RefCell},
    fmt::Display,
};

use super::{
    CostTracker, Program,
    attribute::{QualifiedValue, no_such_key_error},
    interpreter::{self, EvalResult, Interpreter},
};
use crate::error::EvalError;

/// A variable's name, and its program or compilation error.
type CompositionEntry = (Box<str>, Result<Program, Box<str>>);

/// Named programs; the last one with a name wins. Using a variable that did not compile fails with its compilation
/// error.
#[derive(Debug, Default)]
pub struct Composition {
    entries: Vec<CompositionEntry>,
}

impl Composition {
    /// An empty composition.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a variable.
    pub fn add_variable(&mut self, name: &str, program: Result<Program, impl Display>) {
        let program = program.map_err(|error| error.to_string().into());
        match self.find_position(name) {
            Some(at) => self.entries[at].1 = program,
            None => self.entries.push((name.into(), program)),
        }
    }

    fn find_position(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|(known, _)| &**known == name)
    }
}

/// The evaluation states of the composed variables within one evaluation.
#[derive(Debug)]
pub(super) struct CompositionState<'a> {
    of: &'a Composition,
    limit: u64,
    outcomes: RefCell<Vec<VariableState<'a>>>,
    cost: Cell<u64>,
}

#[derive(Clone, Debug)]
enum VariableState<'a> {
    Waiting,
    Running,
    Done(EvalResult<'a>),
}

impl<'a> CompositionState<'a> {
    pub(super) fn new(of: &'a Composition, limit: u64) -> Self {
        Self { of, limit, outcomes: RefCell::new(vec![VariableState::Waiting; of.entries.len()]), cost: Cell::new(0) }
    }

    pub(super) fn take_cost(&self) -> u64 {
        self.cost.take()
    }
}

impl<'a> Interpreter<'a, '_> {
    /// Evaluates a composed variable.
    pub(super) fn eval_composed_variable(&mut self, name: &str) -> Result<QualifiedValue<'a>, EvalError> {
        let activation = self.activation;
        let Some(composed) = &activation.composed else { return Ok(QualifiedValue::Absent(no_such_key_error(name))) };
        let Some(at) = composed.of.find_position(name) else {
            return Ok(QualifiedValue::Absent(no_such_key_error(name)));
        };
        let state = composed.outcomes.borrow()[at].clone();
        match state {
            VariableState::Done(outcome) => return outcome.map(QualifiedValue::Found),
            // The type checker prevents recursion: a variable can refer only to those declared before it.
            VariableState::Running => return Err(EvalError::new(format!("variable {name:?} asks for itself"))),
            VariableState::Waiting => {}
        }
        composed.outcomes.borrow_mut()[at] = VariableState::Running;
        let outcome = match &composed.of.entries[at].1 {
            Err(why) => Err(EvalError::new(format!("composited variable {name:?} fails to compile: {why}"))),
            Ok(program) => {
                let mut budget = CostTracker { limit: composed.limit, spent: 0, stop: self.budget.stop };
                let outcome = interpreter::run_program(program, activation, &mut budget);
                composed.cost.set(composed.cost.get().saturating_add(budget.spent));
                outcome.map_err(|why| match why {
                    EvalError::Interrupted => EvalError::Interrupted,
                    why => EvalError::new(format!("composited variable {name:?} fails to evaluate: {why}")),
                })
            }
        };
        composed.outcomes.borrow_mut()[at] = VariableState::Done(outcome.clone());
        outcome.map(QualifiedValue::Found)
    }
}
