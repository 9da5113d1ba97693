//! Programs: planned expressions, with the parts that do not depend on variables evaluated in advance.

mod attribute;
mod composition;
mod comprehension;
mod interpreter;
mod planner;

use std::{rc::Rc, sync::atomic::AtomicBool};

use regex::Regex;

use crate::{
    checker::CheckedExpr,
    cost::runtime_cost::CostRule,
    error::EvalError,
    library::FunctionDecl,
    types::Type,
    value::{MapKey, MapValue, Value, fuel},
};

/// A planned expression, ready to run. It can be shared between threads.
#[derive(Debug)]
pub struct Program {
    root: PlanNode,
    /// Number of slots for comprehension variables.
    locals: usize,
}

pub use composition::Composition;

/// The values of an environment's variables.
#[derive(Clone, Debug, Default)]
pub struct Activation<'a> {
    values: Vec<Option<Value<'a>>>,
    composed: Option<Rc<composition::CompositionState<'a>>>,
}

impl<'a> Activation<'a> {
    /// Creates an activation without values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Binds a variable, given by its number in the environment, to a value.
    pub fn bind_value(&mut self, variable: usize, value: Value<'a>) -> &mut Self {
        if self.values.len() <= variable {
            self.values.resize(variable + 1, None);
        }
        self.values[variable] = Some(value);
        self
    }

    /// Binds a variable to a composition: each of its fields is evaluated with this activation on first use, at most
    /// once, with the cost limit `limit`.
    pub fn bind_composition(&mut self, variable: usize, composition: &'a Composition, limit: u64) -> &mut Self {
        self.composed = Some(Rc::new(composition::CompositionState::new(composition, limit)));
        self.bind_value(variable, Value::Map(MapValue::Composed))
    }

    /// Returns the cost of composed variables since the last call, and resets it.
    pub fn take_composed_cost(&self) -> u64 {
        self.composed.as_ref().map_or(0, |composed| composed.take_cost())
    }
}

/// The cost limit of an evaluation, and its cost so far.
#[derive(Debug)]
pub struct CostTracker<'a> {
    limit: u64,
    spent: u64,
    stop: Option<&'a AtomicBool>,
}

impl<'a> CostTracker<'a> {
    /// Creates a budget with a cost limit.
    pub fn new(limit: u64) -> Self {
        Self { limit, spent: 0, stop: None }
    }

    /// Cancels the evaluation when `stop` is set.
    pub fn with_interrupt(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Returns the cost so far.
    pub fn actual_cost(&self) -> u64 {
        self.spent
    }

    fn charge_cost(&mut self, cost: u64) -> Result<(), EvalError> {
        self.spent = self.spent.saturating_add(cost);
        if self.spent > self.limit || fuel::is_empty() { Err(EvalError::CostLimit) } else { Ok(()) }
    }
}

impl CheckedExpr {
    /// Plans the program; fails if constant folding of an unconditionally evaluated part fails.
    pub fn plan_program(&self) -> Result<Program, EvalError> {
        planner::plan_expression(self)
    }
}

impl Program {
    /// Evaluates the program.
    pub fn run<'a>(
        &'a self,
        activation: &Activation<'a>,
        budget: &mut CostTracker<'_>,
    ) -> Result<Value<'a>, EvalError> {
        interpreter::run_program(self, activation, budget)
    }
}

#[derive(Debug)]
enum PlanNode {
    Constant(Value<'static>),
    Attribute(Box<Attribute>),
    /// Whether the last qualifier of an attribute is present.
    Has(Box<Attribute>),
    And(Box<[PlanNode]>),
    Or(Box<[PlanNode]>),
    Equal(Box<(PlanNode, PlanNode)>),
    NotEqual(Box<(PlanNode, PlanNode)>),
    Call(Box<FunctionCall>),
    Matches(Box<RegexMatch>),
    NotStrictlyFalse(Box<PlanNode>),
    /// Membership in a set of constants.
    In(Box<(PlanNode, ConstantSet)>),
    List(Box<[(PlanNode, bool)]>),
    Map(Box<[(PlanNode, PlanNode, bool)]>),
    Struct(Box<StructPlan>),
    Fold(Box<FoldPlan>),
    /// The first of two optionals that has a value; `true`: unwrapped.
    OrElse(Box<(PlanNode, PlanNode)>, bool),
}

/// The type of a constructed object, and its fields with whether they are optional.
type StructPlan = (Box<str>, Vec<(Box<str>, PlanNode, bool)>);

/// A variable or a computed value, followed by qualifiers.
#[derive(Debug)]
struct Attribute {
    root: AttributeRoot,
    qualifiers: Vec<Qualifier>,
}

#[derive(Debug)]
enum AttributeRoot {
    Variable(usize, Box<str>),
    /// A comprehension variable; `take`: this is its last use, so the value is moved.
    Local {
        slot: usize,
        take: bool,
    },
    Computed(PlanNode),
    Either(Box<(PlanNode, Attribute, Attribute)>),
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
    Computed(PlanNode),
}

#[derive(Debug)]
struct FunctionCall {
    function: &'static FunctionDecl,
    price: CostRule,
    args: Box<[PlanNode]>,
}

/// A regular expression match whose pattern is a constant.
#[derive(Debug)]
struct RegexMatch {
    regex: Regex,
    function: &'static str,
    price: CostRule,
    args: Box<[PlanNode]>,
}

/// A set of constants for membership tests.
#[derive(Debug, Default)]
struct ConstantSet {
    keys: std::collections::BTreeSet<MapKey<'static>>,
    doubles: Vec<f64>,
}

#[derive(Debug)]
struct FoldPlan {
    range: PlanNode,
    two: bool,
    slot: usize,
    init: PlanNode,
    condition: PlanNode,
    step: PlanNode,
    result: PlanNode,
}

impl From<&Type> for PlanNode {
    fn from(ty: &Type) -> Self {
        Self::Constant(Value::Type(ty.clone()))
    }
}
