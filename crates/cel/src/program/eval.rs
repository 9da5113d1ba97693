//! Evaluation. `&&` and `||` may absorb errors; costs are always charged.

use super::{Bindings, Budget, Call, Matches, Node, Program, Set};
use crate::{
    cost::{LIST, MAP, STRUCT, price::Price},
    error::Error,
    library,
    value::{Map, Value, fuel, map},
};

/// Minimum number of elements that an evaluation may traverse, regardless of its cost limit.
const LEAST_FUEL: u64 = 1 << 20;

pub(super) type Outcome<'a> = Result<Value<'a>, Error>;

/// A comprehension variable.
pub(super) enum Local<'a> {
    Value(Value<'a>),
    Failed(Error),
    /// Evaluated on first use.
    Pending(&'a Node),
}

pub(super) struct Machine<'a, 'm> {
    pub(super) bindings: &'m Bindings<'a>,
    pub(super) locals: Vec<Local<'a>>,
    pub(super) budget: Budget<'m>,
}

pub(super) fn run<'a>(program: &'a Program, bindings: &Bindings<'a>, budget: &mut Budget<'_>) -> Outcome<'a> {
    let own = Budget { limit: budget.limit, spent: 0, stop: budget.stop };
    let locals = (0..program.locals).map(|_| Local::Value(Value::Null)).collect();
    let mut machine = Machine { bindings, locals, budget: own };
    let before = fuel::refill(budget.limit.saturating_mul(4).saturating_add(LEAST_FUEL));
    let mut outcome = machine.eval(&program.root);
    if let Ok(value) = &outcome {
        value.visit();
    }
    if fuel::is_empty() {
        outcome = Err(Error::CostLimit);
    }
    // Restores the fuel of the enclosing evaluation, which a nested one does not consume.
    fuel::refill(before);
    budget.spent = machine.budget.spent;
    outcome
}

impl<'a> Machine<'a, '_> {
    pub(super) fn spend(&mut self, cost: u64) -> Result<(), Error> {
        self.budget.spend(cost)
    }

    pub(super) fn eval(&mut self, node: &'a Node) -> Outcome<'a> {
        match node {
            Node::Constant(value) => Ok(value.clone()),
            Node::Attribute(attribute) => self.attribute(attribute),
            Node::Has(attribute) => self.has(attribute),
            Node::And(terms) => self.logical(terms, false),
            Node::Or(terms) => self.logical(terms, true),
            Node::Equal(pair) => self.equal(pair, true),
            Node::NotEqual(pair) => self.equal(pair, false),
            Node::Call(call) => self.call(call),
            Node::Matches(call) => self.matches(call),
            Node::NotStrictlyFalse(node) => self.not_strictly_false(node),
            Node::In(pair) => Ok(Value::Bool(pair.1.contains(&self.eval(&pair.0)?))),
            Node::List(items) => self.list(items),
            Node::Map(entries) => self.map(entries),
            Node::Struct(made) => self.create(&made.0, &made.1),
            Node::Fold(fold) => self.fold(fold),
            Node::OrElse(pair, unwrap) => self.or_else(pair, *unwrap),
        }
    }

    /// Evaluates `&&` or `||`. A `decisive` operand short-circuits; an error is returned only if no operand is
    /// decisive.
    fn logical(&mut self, terms: &'a [Node], decisive: bool) -> Outcome<'a> {
        let mut failed = None;
        for term in terms {
            match self.eval(term) {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => drop(failed.get_or_insert_with(Error::no_such_overload)),
                Err(error) if error.is_final() => return Err(error),
                Err(error) => drop(failed.get_or_insert(error)),
            }
        }
        failed.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn equal(&mut self, pair: &'a (Node, Node), holds: bool) -> Outcome<'a> {
        let left = self.operand(&pair.0)?;
        let right = self.operand(&pair.1)?;
        let unit = matches!(left, Ok(Value::Native(_))) && holds;
        let size = |value: &Result<Value<'a>, Error>| value.as_ref().map_or(1, Value::size);
        let cost = if unit { 1 } else { crate::cost::scale(size(&left).min(size(&right)), crate::cost::PER_CHARACTER) };
        self.spend(cost)?;
        let (left, right) = (left?, right?);
        if !comparable(&left, &right) {
            return if holds { Err(Error::no_such_overload()) } else { Ok(Value::Bool(true)) };
        }
        Ok(Value::Bool((left == right) == holds))
    }

    /// Evaluates an operand to a value or an error that can be absorbed; final errors are returned as `Err`.
    fn operand(&mut self, node: &'a Node) -> Result<Outcome<'a>, Error> {
        match self.eval(node) {
            Err(error) if error.is_final() => Err(error),
            outcome => Ok(outcome),
        }
    }

    fn call(&mut self, call: &'a Call) -> Outcome<'a> {
        match &*call.args {
            [] => self.apply(call, &mut []),
            [arg] => {
                let arg = self.operand(arg)?;
                self.checked(call, [arg])
            }
            // Both operands are evaluated and charged, even if the first fails.
            [left, right] if call.function.name != "format" => {
                let args = [self.operand(left)?, self.operand(right)?];
                self.checked(call, args)
            }
            args => {
                let mut values = args.iter().map(|arg| self.eval(arg)).collect::<Result<Vec<_>, _>>()?;
                self.apply(call, &mut values)
            }
        }
    }

    fn checked<const N: usize>(&mut self, call: &'a Call, args: [Outcome<'a>; N]) -> Outcome<'a> {
        if let Some(error) = args.iter().find_map(|arg| arg.as_ref().err()).cloned() {
            let values = args.map(|arg| arg.unwrap_or(Value::Null));
            self.spend(call.price.before(&values) + call.price.after(None))?;
            return Err(error);
        }
        let mut values = args.map(|arg| arg.unwrap_or(Value::Null));
        self.apply(call, &mut values)
    }

    fn apply(&mut self, call: &'a Call, args: &mut [Value<'a>]) -> Outcome<'a> {
        self.spend(call.price.before(args))?;
        let Some(body) = call.function.body else { return Ok(args.first().cloned().unwrap_or(Value::Null)) };
        let result = library::call(call.function.name, body, args);
        if call.price == Price::Joined || call.price == Price::Made {
            self.spend(call.price.after(result.as_ref().ok()))?;
        }
        result
    }

    fn matches(&mut self, call: &'a Matches) -> Outcome<'a> {
        let args = call.args.iter().map(|arg| self.eval(arg)).collect::<Result<Vec<_>, _>>()?;
        self.spend(call.price.before(&args))?;
        match call.function {
            "matches" => Ok(Value::Bool(call.regex.is_match(library::text(&args[0])?))),
            "find" => library::find(&call.regex, &args),
            _ => library::find_all(&call.regex, &args),
        }
    }

    fn not_strictly_false(&mut self, node: &'a Node) -> Outcome<'a> {
        let value = self.operand(node)?;
        self.spend(1)?;
        Ok(Value::Bool(!matches!(value, Ok(Value::Bool(false)))))
    }

    fn list(&mut self, items: &'a [(Node, bool)]) -> Outcome<'a> {
        let mut values = Vec::with_capacity(items.len());
        let gathered = items.iter().try_for_each(|(node, optional)| {
            let value = self.eval(node)?;
            match (optional, value) {
                (false, value) => values.push(value),
                (true, Value::Optional(None)) => {}
                (true, Value::Optional(Some(value))) => values.push((*value).clone()),
                (true, other) => {
                    let shown = other.shown();
                    return Err(Error::failed(format!(
                        "cannot initialize optional list element from non-optional value {shown}"
                    )));
                }
            }
            Ok(())
        });
        self.spend(LIST)?;
        gathered.map(|()| Value::list(values))
    }

    fn map(&mut self, entries: &'a [(Node, Node, bool)]) -> Outcome<'a> {
        let mut made = std::collections::BTreeMap::new();
        let gathered = entries.iter().try_for_each(|(key, value, optional)| {
            let key = self.eval(key)?;
            let value = present(self.eval(value)?, *optional, || key.shown())?;
            let Some(key) = map::key(&key) else {
                return Err(Error::failed(format!("unsupported key type: {}", key.type_of().name())));
            };
            match value {
                Some(value) => drop(made.insert(key, value)),
                None => drop(made.remove(&key)),
            }
            Ok(())
        });
        self.spend(MAP)?;
        gathered.map(|()| Value::Map(Map::Made(std::sync::Arc::new(made))))
    }

    fn create(&mut self, name: &str, fields: &'a [(Box<str>, Node, bool)]) -> Outcome<'a> {
        let mut made: Vec<(Box<str>, Value<'a>)> = Vec::new();
        let gathered = fields.iter().try_for_each(|(name, node, optional)| {
            if let Some(value) = present(self.eval(node)?, *optional, || name.to_string())? {
                made.retain(|(known, _)| known != name);
                made.push((name.clone(), value));
            }
            Ok(())
        });
        self.spend(STRUCT)?;
        gathered.map(|()| Value::Struct(std::sync::Arc::new((name.into(), made))))
    }

    fn or_else(&mut self, pair: &'a (Node, Node), unwrap: bool) -> Outcome<'a> {
        match self.eval(&pair.0)? {
            Value::Optional(Some(value)) if unwrap => Ok((*value).clone()),
            Value::Optional(None) => self.eval(&pair.1),
            other => Ok(other),
        }
    }
}

/// Unwraps the value of an optional entry; `None` if it is absent.
fn present<'a>(value: Value<'a>, optional: bool, name: impl Fn() -> String) -> Result<Option<Value<'a>>, Error> {
    match (optional, value) {
        (false, value) => Ok(Some(value)),
        (true, Value::Optional(value)) => Ok(value.map(|value| (*value).clone())),
        (true, other) => Err(Error::failed(format!(
            "cannot initialize optional entry '{}' from non-optional value {}",
            name(),
            other.shown()
        ))),
    }
}

/// Whether two values may be compared: lists and maps of a document with a schema only compare with their own kind.
fn comparable(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left, right) {
        (_, Value::Null) => true,
        (Value::List(list), right) => list.schema().is_none() || matches!(right, Value::List(_)),
        (Value::Map(Map::Json(_, Some(_))), right) => matches!(right, Value::Map(_)),
        _ => true,
    }
}

impl Set {
    fn contains(&self, value: &Value<'_>) -> bool {
        match value {
            Value::Double(value) => self.doubles.contains(value),
            Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::String(_) => {
                map::key(value).is_some_and(|key| self.keys.contains(&key))
            }
            _ => false,
        }
    }
}
