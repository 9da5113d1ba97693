//! The planner: turns checked expressions into programs with `cel-go`'s optimizations, because costs depend on them:
//! lists, maps and conversions of constants are folded, membership in constants uses a set, constant patterns are
//! precompiled.

use super::{
    Attribute, AttributeRoot, ConstantSet, FoldPlan, FunctionCall, PlanNode, Program, Qualifier, QualifierKey,
    RegexMatch, attribute::go_type_name,
};
use crate::{
    ast::{self, ACCUMULATOR, Expr, ExprId, Literal},
    checker::{CheckedExpr, Reference},
    cost::runtime_cost,
    error::EvalError,
    library::{self, FunctionDecl},
    value::{ListValue, MapKey, MapValue, StringValue, Value, map},
};

pub(super) fn plan_expression(checked: &CheckedExpr) -> Result<Program, EvalError> {
    let mut planner = Planner { checked, scopes: Vec::new(), slots: 0, locals: 0 };
    let root = planner.plan_node(checked.ast.root)?;
    Ok(Program { root, locals: planner.locals })
}

/// Conversion functions that are folded if their argument is a constant.
const CONVERSIONS: [&str; 10] =
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

struct FoldScope<'a> {
    name: &'a str,
    slot: usize,
    /// Whether the next use of the variable is its last.
    take: bool,
}

struct Planner<'a> {
    checked: &'a CheckedExpr,
    scopes: Vec<FoldScope<'a>>,
    slots: usize,
    locals: usize,
}

impl<'a> Planner<'a> {
    fn plan_node(&mut self, id: ExprId) -> Result<PlanNode, EvalError> {
        let checked = self.checked;
        let reference = &checked.references[id as usize];
        match (checked.ast.expr(id), reference) {
            (_, Reference::Type(ty)) if !matches!(checked.ast.expr(id), Expr::Struct { .. }) => Ok(PlanNode::from(ty)),
            (Expr::Missing, _) => Err(EvalError::new("incomplete expression")),
            (Expr::Literal(literal), _) => Ok(PlanNode::Constant(literal_value(literal))),
            (Expr::Ident(name), Reference::Variable(number)) => {
                Ok(attribute_node(AttributeRoot::Variable(*number, name.clone())))
            }
            (Expr::Ident(name), _) => self.resolve_local(name).map(attribute_node),
            (Expr::Select { .. }, Reference::Variable(number)) => {
                let name = checked.ast.qualified_name(id).unwrap_or_default();
                Ok(attribute_node(AttributeRoot::Variable(*number, name.into())))
            }
            (Expr::Select { operand, field, test }, _) => {
                let operand = self.plan_node(*operand)?;
                let mut attribute = into_attribute(operand);
                attribute.qualifiers.push(Qualifier { key: QualifierKey::Field(field.clone()), optional: false });
                Ok(if *test { PlanNode::Has(Box::new(attribute)) } else { PlanNode::Attribute(Box::new(attribute)) })
            }
            (Expr::Call { target, args, .. }, Reference::Function { function, overloads, spelled }) => {
                let target = if *spelled { None } else { *target };
                let args = target.iter().chain(args).map(|arg| self.plan_node(*arg)).collect::<Result<Vec<_>, _>>()?;
                plan_call(function, overloads, args)
            }
            (Expr::Call { function, .. }, _) => Err(EvalError::new(format!("no such overload: {function}"))),
            (Expr::List(items), _) => self.plan_list(items),
            (Expr::Map(entries), _) => self.plan_map(entries),
            (Expr::Struct { name, fields }, _) => {
                let mut planned = Vec::new();
                for field in fields {
                    planned.push((field.name.clone(), self.plan_node(field.value)?, field.optional));
                }
                let name = name.strip_prefix('.').unwrap_or(name);
                Ok(PlanNode::Struct(Box::new((name.into(), planned))))
            }
            (Expr::Fold(fold), _) => self.plan_comprehension(fold),
        }
    }

    fn resolve_local(&self, name: &str) -> Result<AttributeRoot, EvalError> {
        let scope = self.scopes.iter().rev().find(|scope| scope.name == name);
        let scope = scope.ok_or_else(|| EvalError::new(format!("no such attribute(s): {name}")))?;
        Ok(AttributeRoot::Local { slot: scope.slot, take: scope.take })
    }

    fn plan_list(&mut self, items: &[ast::ListElement]) -> Result<PlanNode, EvalError> {
        let mut planned = Vec::new();
        for item in items {
            planned.push((self.plan_node(item.value)?, item.optional));
        }
        let constants: Option<Vec<_>> =
            planned.iter().map(|(node, optional)| constant_value(node, *optional)).collect();
        Ok(constants
            .map_or_else(|| PlanNode::List(planned.into()), |values| PlanNode::Constant(Value::from_list(values))))
    }

    fn plan_map(&mut self, entries: &[ast::MapEntry]) -> Result<PlanNode, EvalError> {
        let mut planned = Vec::new();
        for entry in entries {
            planned.push((self.plan_node(entry.key)?, self.plan_node(entry.value)?, entry.optional));
        }
        let constants: Option<Vec<_>> = planned
            .iter()
            .map(|(key, value, optional)| {
                map::to_map_key(&constant_value(key, false)?).zip(constant_value(value, *optional))
            })
            .collect();
        let made = |entries: Vec<_>| {
            PlanNode::Constant(Value::Map(MapValue::Made(std::sync::Arc::new(entries.into_iter().collect()))))
        };
        Ok(constants.map_or_else(|| PlanNode::Map(planned.into()), made))
    }

    fn plan_comprehension(&mut self, fold: &'a ast::Comprehension) -> Result<PlanNode, EvalError> {
        let init = self.plan_node(fold.init)?;
        let range = self.plan_node(fold.range)?;
        let slot = self.slots;
        self.slots += 3;
        self.locals = self.locals.max(self.slots);
        let depth = self.scopes.len();
        self.scopes.push(FoldScope { name: &fold.accu, slot, take: false });
        self.scopes.push(FoldScope { name: &fold.iter, slot: slot + 1, take: false });
        if let Some(name) = &fold.iter2 {
            self.scopes.push(FoldScope { name, slot: slot + 2, take: false });
        }
        let condition = self.plan_node(fold.condition)?;
        // A macro's accumulator is read once in each step and then replaced.
        self.scopes[depth].take = &*fold.accu == ACCUMULATOR;
        let step = self.plan_node(fold.step)?;
        self.scopes.truncate(depth + 1);
        let result = self.plan_node(fold.result)?;
        self.scopes.truncate(depth);
        self.slots = slot;
        let two = fold.iter2.is_some();
        Ok(PlanNode::Fold(Box::new(FoldPlan { range, two, slot, init, condition, step, result })))
    }
}

fn literal_value(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::String(StringValue::Shared(text.clone())),
        Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
    }
}

fn constant_value(node: &PlanNode, optional: bool) -> Option<Value<'static>> {
    match node {
        PlanNode::Constant(value) if !optional => Some(value.clone()),
        _ => None,
    }
}

fn attribute_node(root: AttributeRoot) -> PlanNode {
    PlanNode::Attribute(Box::new(Attribute { root, qualifiers: Vec::new() }))
}

fn into_attribute(node: PlanNode) -> Attribute {
    match node {
        PlanNode::Attribute(attribute) => *attribute,
        node => Attribute { root: AttributeRoot::Computed(node), qualifiers: Vec::new() },
    }
}

fn plan_call(
    function: &'static FunctionDecl,
    overloads: &[&'static str],
    args: Vec<PlanNode>,
) -> Result<PlanNode, EvalError> {
    match (function.name, args.len()) {
        ("_&&_", _) => return Ok(PlanNode::And(args.into())),
        ("_||_", _) => return Ok(PlanNode::Or(args.into())),
        ("_?_:_", 3) => return Ok(plan_conditional(args)),
        ("_==_", 2) => return Ok(PlanNode::Equal(argument_pair(args))),
        ("_!=_", 2) => return Ok(PlanNode::NotEqual(argument_pair(args))),
        ("_[_]", 2) => return plan_index(args, false),
        ("_[?_]" | "_?._", 2) => return plan_index(args, true),
        ("or", 2) => return Ok(PlanNode::OrElse(argument_pair(args), false)),
        ("orValue", 2) => return Ok(PlanNode::OrElse(argument_pair(args), true)),
        ("@not_strictly_false", 1) => return Ok(PlanNode::NotStrictlyFalse(Box::new(first_argument(args)))),
        _ => {}
    }
    let overload = if let [overload] = overloads { overload } else { "" };
    let price = runtime_cost::select_cost_rule(function.name, overload);
    if let ("@in", "in_list", [_, PlanNode::Constant(Value::List(list))]) = (function.name, overload, &args[..]) {
        if list.is_empty() {
            return Ok(PlanNode::Constant(Value::Bool(false)));
        }
        if let Some(set) = build_constant_set(list) {
            return Ok(PlanNode::In(Box::new((first_argument(args), set))));
        }
    }
    if let ([PlanNode::Constant(value)], true) = (&args[..], CONVERSIONS.contains(&function.name)) {
        let value = value.clone();
        let converted = function
            .body
            .map_or(Ok(value.clone()), |body| library::call_function(function.name, body, &mut [value]))?;
        return Ok(PlanNode::Constant(converted));
    }
    if let ("matches" | "find" | "findAll", [_, PlanNode::Constant(Value::String(pattern)), ..]) =
        (function.name, &args[..])
    {
        let regex = library::compile_regex(pattern)?;
        let (function, args) = (function.name, args.into());
        return Ok(PlanNode::Matches(Box::new(RegexMatch { regex, function, price, args })));
    }
    Ok(PlanNode::Call(Box::new(FunctionCall { function, price, args: args.into() })))
}

fn argument_pair(args: Vec<PlanNode>) -> Box<(PlanNode, PlanNode)> {
    let mut args = args.into_iter();
    let mut next = || args.next().unwrap_or(PlanNode::Constant(Value::Null));
    Box::new((next(), next()))
}

fn first_argument(args: Vec<PlanNode>) -> PlanNode {
    args.into_iter().next().unwrap_or(PlanNode::Constant(Value::Null))
}

fn plan_conditional(args: Vec<PlanNode>) -> PlanNode {
    let mut args = args.into_iter();
    let mut next = || args.next().unwrap_or(PlanNode::Constant(Value::Null));
    let (condition, then, otherwise) = (next(), next(), next());
    attribute_node(AttributeRoot::Either(Box::new((condition, into_attribute(then), into_attribute(otherwise)))))
}

fn plan_index(args: Vec<PlanNode>, optional: bool) -> Result<PlanNode, EvalError> {
    let (operand, index) = *argument_pair(args);
    let mut attribute = into_attribute(operand);
    let key = match index {
        PlanNode::Constant(Value::String(text)) => QualifierKey::Field((&*text).into()),
        PlanNode::Constant(value) if matches!(value, Value::Null) || map::to_map_key(&value).is_none() => {
            return Err(EvalError::new(format!("invalid qualifier type: {}", go_type_name(&value))));
        }
        PlanNode::Constant(value) => QualifierKey::Constant(value),
        PlanNode::Attribute(inner) => QualifierKey::Attribute(*inner),
        node => QualifierKey::Computed(node),
    };
    attribute.qualifiers.push(Qualifier { key, optional });
    Ok(PlanNode::Attribute(Box::new(attribute)))
}

/// Builds a set of constants; `None` if some element is not supported in a set.
fn build_constant_set(list: &ListValue<'static>) -> Option<ConstantSet> {
    let mut set = ConstantSet::default();
    for item in list.iter() {
        match item {
            Value::Bool(value) => drop(set.keys.insert(MapKey::Bool(value))),
            Value::Int(value) => {
                set.doubles.push(value as f64);
                set.keys.insert(MapKey::Int(value));
            }
            Value::Uint(value) => {
                set.doubles.push(value as f64);
                set.keys.insert(MapKey::Uint(value));
            }
            Value::String(text) => drop(set.keys.insert(MapKey::String(text))),
            Value::Double(value) => {
                set.doubles.push(value);
                set.keys.extend(map::to_map_key(&Value::Double(value)));
            }
            _ => return None,
        }
    }
    Some(set)
}
