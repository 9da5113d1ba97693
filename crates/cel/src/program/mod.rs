//! Programs: planned expressions, with the parts that do not depend on variables evaluated in advance.

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

/// A planned expression, ready to run. It can be shared between threads.
#[derive(Debug)]
pub struct Program {
    root: Node,
    /// Number of slots for comprehension variables.
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
    /// Creates bindings without values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Binds a variable, given by its number in the environment, to a value.
    pub fn set(&mut self, variable: usize, value: Value<'a>) -> &mut Self {
        if self.values.len() <= variable {
            self.values.resize(variable + 1, None);
        }
        self.values[variable] = Some(value);
        self
    }

    /// Binds a variable to a composition: each of its fields is evaluated with these bindings on first use, at most
    /// once, with the cost limit `limit`.
    pub fn compose(&mut self, variable: usize, composition: &'a Composition, limit: u64) -> &mut Self {
        self.composed = Some(Rc::new(composed::Composed::new(composition, limit)));
        self.set(variable, Value::Map(Map::Composed))
    }

    /// Returns the cost of composed variables since the last call, and resets it.
    pub fn take_composed_cost(&self) -> u64 {
        self.composed.as_ref().map_or(0, |composed| composed.take_cost())
    }
}

/// The cost limit of an evaluation, and its cost so far.
#[derive(Debug)]
pub struct Budget<'a> {
    limit: u64,
    spent: u64,
    stop: Option<&'a AtomicBool>,
}

impl<'a> Budget<'a> {
    /// Creates a budget with a cost limit.
    pub fn new(limit: u64) -> Self {
        Self { limit, spent: 0, stop: None }
    }

    /// Cancels the evaluation when `stop` is set.
    pub fn stoppable(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Returns the cost so far.
    pub fn spent(&self) -> u64 {
        self.spent
    }

    fn spend(&mut self, cost: u64) -> Result<(), Error> {
        self.spent = self.spent.saturating_add(cost);
        if self.spent > self.limit || fuel::is_empty() { Err(Error::CostLimit) } else { Ok(()) }
    }
}

impl Checked {
    /// Plans the program; fails if constant folding of an unconditionally evaluated part fails.
    pub fn program(&self) -> Result<Program, Error> {
        plan::plan(self)
    }
}

impl Program {
    /// Evaluates the program.
    pub fn run<'a>(&'a self, bindings: &Bindings<'a>, budget: &mut Budget<'_>) -> Result<Value<'a>, Error> {
        eval::run(self, bindings, budget)
    }
}

#[derive(Debug)]
enum Node {
    Constant(Value<'static>),
    Attribute(Box<Attribute>),
    /// Whether the last qualifier of an attribute is present.
    Has(Box<Attribute>),
    And(Box<[Node]>),
    Or(Box<[Node]>),
    Equal(Box<(Node, Node)>),
    NotEqual(Box<(Node, Node)>),
    Call(Box<Call>),
    Matches(Box<Matches>),
    NotStrictlyFalse(Box<Node>),
    /// Membership in a set of constants.
    In(Box<(Node, Set)>),
    List(Box<[(Node, bool)]>),
    Map(Box<[(Node, Node, bool)]>),
    Struct(Box<Created>),
    Fold(Box<Fold>),
    /// The first of two optionals that has a value; `true`: unwrapped.
    OrElse(Box<(Node, Node)>, bool),
}

/// The type of a constructed object, and its fields with whether they are optional.
type Created = (Box<str>, Vec<(Box<str>, Node, bool)>);

/// A variable or a computed value, followed by qualifiers.
#[derive(Debug)]
struct Attribute {
    root: Root,
    qualifiers: Vec<Qualifier>,
}

#[derive(Debug)]
enum Root {
    Variable(usize, Box<str>),
    /// A comprehension variable; `take`: this is its last use, so the value is moved.
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

/// A regular expression match whose pattern is a constant.
#[derive(Debug)]
struct Matches {
    regex: Regex,
    function: &'static str,
    price: Price,
    args: Box<[Node]>,
}

/// A set of constants for membership tests.
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
