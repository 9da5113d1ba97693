//! Programs: what is left of an expression when all that does not depend on its variables is done.

mod attribute;
mod composed;
mod eval;
mod fold;
mod plan;

use std::{rc::Rc, sync::atomic::AtomicBool};

use regex::Regex;

use crate::{
    check::Checked,
    cost::price::Price,
    error::Error,
    library::Function,
    types::Type,
    value::{Key, Map, Value, fuel},
};

/// An expression ready to run. It can be shared between threads.
#[derive(Debug)]
pub struct Program {
    root: Node,
    /// How many variables of loops are in use at once.
    locals: usize,
}

pub use composed::Composition;

/// The values of an environment's variables.
#[derive(Clone, Debug, Default)]
pub struct Bindings<'a> {
    values: Vec<Option<Value<'a>>>,
    composed: Option<Rc<composed::Composed<'a>>>,
}

impl<'a> Bindings<'a> {
    /// No values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives a variable, by its number in the environment, a value.
    pub fn set(&mut self, variable: usize, value: Value<'a>) -> &mut Self {
        if self.values.len() <= variable {
            self.values.resize(variable + 1, None);
        }
        self.values[variable] = Some(value);
        self
    }

    /// Gives a variable the fields of a composition: each is evaluated with these bindings when an expression asks for it,
    /// at most once, and may cost `limit`.
    pub fn compose(&mut self, variable: usize, composition: &'a Composition, limit: u64) -> &mut Self {
        self.composed = Some(Rc::new(composed::Composed::new(composition, limit)));
        self.set(variable, Value::Map(Map::Composed))
    }

    /// What composed variables cost since this was last asked.
    pub fn take_composed_cost(&self) -> u64 {
        self.composed.as_ref().map_or(0, |composed| composed.take_cost())
    }
}

/// What an evaluation may cost, and what it did.
#[derive(Debug)]
pub struct Budget<'a> {
    limit: u64,
    spent: u64,
    stop: Option<&'a AtomicBool>,
}

impl<'a> Budget<'a> {
    /// So much and no more.
    pub fn new(limit: u64) -> Self {
        Self { limit, spent: 0, stop: None }
    }

    /// Whoever sets `stop` ends the evaluation.
    pub fn stoppable(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// What was spent.
    pub fn spent(&self) -> u64 {
        self.spent
    }

    fn spend(&mut self, cost: u64) -> Result<(), Error> {
        self.spent = self.spent.saturating_add(cost);
        if self.spent > self.limit || fuel::is_empty() { Err(Error::CostLimit) } else { Ok(()) }
    }
}

impl Checked {
    /// The program of an expression; an error if something that is always evaluated is known to fail.
    pub fn program(&self) -> Result<Program, Error> {
        plan::plan(self)
    }
}

impl Program {
    /// Evaluates it.
    pub fn run<'a>(&'a self, bindings: &Bindings<'a>, budget: &mut Budget<'_>) -> Result<Value<'a>, Error> {
        eval::run(self, bindings, budget)
    }
}

#[derive(Debug)]
enum Node {
    Constant(Value<'static>),
    Attribute(Box<Attribute>),
    /// Whether the last qualifier of an attribute leads anywhere.
    Has(Box<Attribute>),
    And(Box<[Node]>),
    Or(Box<[Node]>),
    Equal(Box<(Node, Node)>),
    NotEqual(Box<(Node, Node)>),
    Call(Box<Call>),
    Matches(Box<Matches>),
    NotStrictlyFalse(Box<Node>),
    /// Membership in constants.
    In(Box<(Node, Set)>),
    List(Box<[(Node, bool)]>),
    Map(Box<[(Node, Node, bool)]>),
    Struct(Box<Created>),
    Fold(Box<Fold>),
    /// The first of two optionals that has a value; `true`: its value.
    OrElse(Box<(Node, Node)>, bool),
}

/// The type of a created object, and its fields with whether they may be absent.
type Created = (Box<str>, Vec<(Box<str>, Node, bool)>);

/// A variable or something computed, and the way from it.
#[derive(Debug)]
struct Attribute {
    root: Root,
    qualifiers: Vec<Qualifier>,
}

#[derive(Debug)]
enum Root {
    Variable(usize, Box<str>),
    /// A variable of a loop; `take`: nobody reads it after.
    Local {
        slot: usize,
        take: bool,
    },
    Computed(Node),
    Either(Box<(Node, Attribute, Attribute)>),
}

#[derive(Debug)]
struct Qualifier {
    key: QualifierKey,
    optional: bool,
}

#[derive(Debug)]
enum QualifierKey {
    Field(Box<str>),
    Constant(Value<'static>),
    Attribute(Attribute),
    Computed(Node),
}

#[derive(Debug)]
struct Call {
    function: &'static Function,
    price: Price,
    args: Box<[Node]>,
}

/// A call whose pattern is known.
#[derive(Debug)]
struct Matches {
    regex: Regex,
    function: &'static str,
    price: Price,
    args: Box<[Node]>,
}

/// Constants, found by what they equal.
#[derive(Debug, Default)]
struct Set {
    keys: std::collections::BTreeSet<Key<'static>>,
    doubles: Vec<f64>,
}

#[derive(Debug)]
struct Fold {
    range: Node,
    two: bool,
    slot: usize,
    init: Node,
    condition: Node,
    step: Node,
    result: Node,
}

impl From<&Type> for Node {
    fn from(ty: &Type) -> Self {
        Self::Constant(Value::Type(ty.clone()))
    }
}
