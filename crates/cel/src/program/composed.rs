//! Composed variables: variables defined by expressions, such as those of an admission policy. They are evaluated on
//! first use, and at most once.

use std::cell::{Cell, RefCell};

use super::{
    Budget, Program,
    attribute::{Step, no_key},
    eval::{self, Machine, Outcome},
};
use crate::error::Error;

/// A variable's name, and its program or compilation error.
type Entry = (Box<str>, Result<Program, Box<str>>);

/// Named programs; the last one with a name wins. Using a variable that did not compile fails with its compilation
/// error.
#[derive(Debug, Default)]
pub struct Composition {
    entries: Vec<Entry>,
}

impl Composition {
    /// An empty composition.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a variable.
    pub fn add(&mut self, name: &str, program: Result<Program, String>) {
        let program = program.map_err(String::into_boxed_str);
        match self.position(name) {
            Some(at) => self.entries[at].1 = program,
            None => self.entries.push((name.into(), program)),
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|(known, _)| &**known == name)
    }
}

/// The evaluation states of the composed variables within one evaluation.
#[derive(Debug)]
pub(super) struct Composed<'a> {
    of: &'a Composition,
    limit: u64,
    outcomes: RefCell<Vec<State<'a>>>,
    cost: Cell<u64>,
}

#[derive(Clone, Debug)]
enum State<'a> {
    Waiting,
    Running,
    Done(Outcome<'a>),
}

impl<'a> Composed<'a> {
    pub(super) fn new(of: &'a Composition, limit: u64) -> Self {
        Self { of, limit, outcomes: RefCell::new(vec![State::Waiting; of.entries.len()]), cost: Cell::new(0) }
    }

    pub(super) fn take_cost(&self) -> u64 {
        self.cost.take()
    }
}

impl<'a> Machine<'a, '_> {
    /// Evaluates a composed variable.
    pub(super) fn composed(&mut self, name: &str) -> Result<Step<'a>, Error> {
        let bindings = self.bindings;
        let Some(composed) = &bindings.composed else { return Ok(Step::Absent(no_key(name))) };
        let Some(at) = composed.of.position(name) else { return Ok(Step::Absent(no_key(name))) };
        let state = composed.outcomes.borrow()[at].clone();
        match state {
            State::Done(outcome) => return outcome.map(Step::Found),
            // The type checker prevents recursion: a variable can refer only to those declared before it.
            State::Running => return Err(Error::failed(format!("variable {name:?} asks for itself"))),
            State::Waiting => {}
        }
        composed.outcomes.borrow_mut()[at] = State::Running;
        let outcome = match &composed.of.entries[at].1 {
            Err(why) => Err(Error::failed(format!("composited variable {name:?} fails to compile: {why}"))),
            Ok(program) => {
                let mut budget = Budget { limit: composed.limit, spent: 0, stop: self.budget.stop };
                let outcome = eval::run(program, bindings, &mut budget);
                composed.cost.set(composed.cost.get().saturating_add(budget.spent));
                outcome.map_err(|why| match why {
                    Error::Interrupted => Error::Interrupted,
                    why => Error::failed(format!("composited variable {name:?} fails to evaluate: {why}")),
                })
            }
        };
        composed.outcomes.borrow_mut()[at] = State::Done(outcome.clone());
        outcome.map(Step::Found)
    }
}
