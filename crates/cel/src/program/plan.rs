//! The planner: turns checked expressions into programs with `cel-go`'s optimizations, because costs depend on them:
//! lists, maps and conversions of constants are folded, membership in constants uses a set, constant patterns are
//! precompiled.

use super::{Attribute, Call, Fold, Matches, Node, Program, Qualifier, QualifierKey, Root, Set, attribute::go_name};
use crate::{
    ast::{self, Expr, Id, Literal, RESULT},
    check::{Checked, Reference},
    cost::price,
    error::Error,
    library::{self, Function},
    value::{Key, List, Map, Text, Value, map},
};

pub(super) fn plan(checked: &Checked) -> Result<Program, Error> {
    let mut planner = Planner { checked, scopes: Vec::new(), slots: 0, locals: 0 };
    let root = planner.node(checked.ast.root)?;
    Ok(Program { root, locals: planner.locals })
}

/// Conversion functions that are folded if their argument is a constant.
const CONVERSIONS: [&str; 10] =
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

struct Scope<'a> {
    name: &'a str,
    slot: usize,
    /// Whether the next use of the variable is its last.
    take: bool,
}

struct Planner<'a> {
    checked: &'a Checked,
    scopes: Vec<Scope<'a>>,
    slots: usize,
    locals: usize,
}

impl<'a> Planner<'a> {
    fn node(&mut self, id: Id) -> Result<Node, Error> {
        let checked = self.checked;
        let reference = &checked.references[id as usize];
        match (checked.ast.expr(id), reference) {
            (_, Reference::Type(ty)) if !matches!(checked.ast.expr(id), Expr::Struct { .. }) => Ok(Node::from(ty)),
            (Expr::Missing, _) => Err(Error::failed("incomplete expression")),
            (Expr::Literal(literal), _) => Ok(Node::Constant(constant(literal))),
            (Expr::Ident(name), Reference::Variable(number)) => Ok(attribute(Root::Variable(*number, name.clone()))),
            (Expr::Ident(name), _) => self.local(name).map(attribute),
            (Expr::Select { .. }, Reference::Variable(number)) => {
                let name = checked.ast.qualified_name(id).unwrap_or_default();
                Ok(attribute(Root::Variable(*number, name.into())))
            }
            (Expr::Select { operand, field, test }, _) => {
                let operand = self.node(*operand)?;
                let mut attribute = as_attribute(operand);
                attribute.qualifiers.push(Qualifier { key: QualifierKey::Field(field.clone()), optional: false });
                Ok(if *test { Node::Has(Box::new(attribute)) } else { Node::Attribute(Box::new(attribute)) })
            }
            (Expr::Call { target, args, .. }, Reference::Function { function, overloads, spelled }) => {
                let target = if *spelled { None } else { *target };
                let args = target.iter().chain(args).map(|arg| self.node(*arg)).collect::<Result<Vec<_>, _>>()?;
                call(function, overloads, args)
            }
            (Expr::Call { function, .. }, _) => Err(Error::failed(format!("no such overload: {function}"))),
            (Expr::List(items), _) => self.list(items),
            (Expr::Map(entries), _) => self.map(entries),
            (Expr::Struct { name, fields }, _) => {
                let mut planned = Vec::new();
                for field in fields {
                    planned.push((field.name.clone(), self.node(field.value)?, field.optional));
                }
                let name = name.strip_prefix('.').unwrap_or(name);
                Ok(Node::Struct(Box::new((name.into(), planned))))
            }
            (Expr::Fold(fold), _) => self.fold(fold),
        }
    }

    fn local(&self, name: &str) -> Result<Root, Error> {
        let scope = self.scopes.iter().rev().find(|scope| scope.name == name);
        let scope = scope.ok_or_else(|| Error::failed(format!("no such attribute(s): {name}")))?;
        Ok(Root::Local { slot: scope.slot, take: scope.take })
    }

    fn list(&mut self, items: &[ast::Item]) -> Result<Node, Error> {
        let mut planned = Vec::new();
        for item in items {
            planned.push((self.node(item.value)?, item.optional));
        }
        let constants: Option<Vec<_>> = planned.iter().map(|(node, optional)| known(node, *optional)).collect();
        Ok(constants.map_or_else(|| Node::List(planned.into()), |values| Node::Constant(Value::list(values))))
    }

    fn map(&mut self, entries: &[ast::Entry]) -> Result<Node, Error> {
        let mut planned = Vec::new();
        for entry in entries {
            planned.push((self.node(entry.key)?, self.node(entry.value)?, entry.optional));
        }
        let constants: Option<Vec<_>> = planned
            .iter()
            .map(|(key, value, optional)| map::key(&known(key, false)?).zip(known(value, *optional)))
            .collect();
        let made =
            |entries: Vec<_>| Node::Constant(Value::Map(Map::Made(std::sync::Arc::new(entries.into_iter().collect()))));
        Ok(constants.map_or_else(|| Node::Map(planned.into()), made))
    }

    fn fold(&mut self, fold: &'a ast::Fold) -> Result<Node, Error> {
        let init = self.node(fold.init)?;
        let range = self.node(fold.range)?;
        let slot = self.slots;
        self.slots += 3;
        self.locals = self.locals.max(self.slots);
        let depth = self.scopes.len();
        self.scopes.push(Scope { name: &fold.accu, slot, take: false });
        self.scopes.push(Scope { name: &fold.iter, slot: slot + 1, take: false });
        if let Some(name) = &fold.iter2 {
            self.scopes.push(Scope { name, slot: slot + 2, take: false });
        }
        let condition = self.node(fold.condition)?;
        // A macro's accumulator is read once in each step and then replaced.
        self.scopes[depth].take = &*fold.accu == RESULT;
        let step = self.node(fold.step)?;
        self.scopes.truncate(depth + 1);
        let result = self.node(fold.result)?;
        self.scopes.truncate(depth);
        self.slots = slot;
        let two = fold.iter2.is_some();
        Ok(Node::Fold(Box::new(Fold { range, two, slot, init, condition, step, result })))
    }
}

fn constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::String(Text::Shared(text.clone())),
        Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
    }
}

fn known(node: &Node, optional: bool) -> Option<Value<'static>> {
    match node {
        Node::Constant(value) if !optional => Some(value.clone()),
        _ => None,
    }
}

fn attribute(root: Root) -> Node {
    Node::Attribute(Box::new(Attribute { root, qualifiers: Vec::new() }))
}

fn as_attribute(node: Node) -> Attribute {
    match node {
        Node::Attribute(attribute) => *attribute,
        node => Attribute { root: Root::Computed(node), qualifiers: Vec::new() },
    }
}

fn call(function: &'static Function, overloads: &[&'static str], args: Vec<Node>) -> Result<Node, Error> {
    match (function.name, args.len()) {
        ("_&&_", _) => return Ok(Node::And(args.into())),
        ("_||_", _) => return Ok(Node::Or(args.into())),
        ("_?_:_", 3) => return Ok(conditional(args)),
        ("_==_", 2) => return Ok(Node::Equal(pair(args))),
        ("_!=_", 2) => return Ok(Node::NotEqual(pair(args))),
        ("_[_]", 2) => return index(args, false),
        ("_[?_]" | "_?._", 2) => return index(args, true),
        ("or", 2) => return Ok(Node::OrElse(pair(args), false)),
        ("orValue", 2) => return Ok(Node::OrElse(pair(args), true)),
        ("@not_strictly_false", 1) => return Ok(Node::NotStrictlyFalse(Box::new(pair_first(args)))),
        _ => {}
    }
    let overload = if let [overload] = overloads { overload } else { "" };
    let price = price::price(function.name, overload);
    if let ("@in", "in_list", [_, Node::Constant(Value::List(list))]) = (function.name, overload, &args[..]) {
        if list.is_empty() {
            return Ok(Node::Constant(Value::Bool(false)));
        }
        if let Some(set) = set(list) {
            return Ok(Node::In(Box::new((pair_first(args), set))));
        }
    }
    if let ([Node::Constant(value)], true) = (&args[..], CONVERSIONS.contains(&function.name)) {
        let value = value.clone();
        let converted =
            function.body.map_or(Ok(value.clone()), |body| library::call(function.name, body, &mut [value]))?;
        return Ok(Node::Constant(converted));
    }
    if let ("matches" | "find" | "findAll", [_, Node::Constant(Value::String(pattern)), ..]) =
        (function.name, &args[..])
    {
        let regex = library::compile_regex(pattern).map_err(Error::failed)?;
        return Ok(Node::Matches(Box::new(Matches { regex, function: function.name, price, args: args.into() })));
    }
    Ok(Node::Call(Box::new(Call { function, price, args: args.into() })))
}

fn pair(args: Vec<Node>) -> Box<(Node, Node)> {
    let mut args = args.into_iter();
    let mut next = || args.next().unwrap_or(Node::Constant(Value::Null));
    Box::new((next(), next()))
}

fn pair_first(args: Vec<Node>) -> Node {
    args.into_iter().next().unwrap_or(Node::Constant(Value::Null))
}

fn conditional(args: Vec<Node>) -> Node {
    let mut args = args.into_iter();
    let mut next = || args.next().unwrap_or(Node::Constant(Value::Null));
    let (condition, then, otherwise) = (next(), next(), next());
    attribute(Root::Either(Box::new((condition, as_attribute(then), as_attribute(otherwise)))))
}

fn index(args: Vec<Node>, optional: bool) -> Result<Node, Error> {
    let (operand, index) = *pair(args);
    let mut attribute = as_attribute(operand);
    let key = match index {
        Node::Constant(Value::String(text)) => QualifierKey::Field((&*text).into()),
        Node::Constant(value) if matches!(value, Value::Null) || map::key(&value).is_none() => {
            return Err(Error::failed(format!("invalid qualifier type: {}", go_name(&value))));
        }
        Node::Constant(value) => QualifierKey::Constant(value),
        Node::Attribute(inner) => QualifierKey::Attribute(*inner),
        node => QualifierKey::Computed(node),
    };
    attribute.qualifiers.push(Qualifier { key, optional });
    Ok(Node::Attribute(Box::new(attribute)))
}

/// Builds a set of constants; `None` if some element is not supported in a set.
fn set(list: &List<'static>) -> Option<Set> {
    let mut set = Set::default();
    for item in list.iter() {
        match item {
            Value::Bool(value) => drop(set.keys.insert(Key::Bool(value))),
            Value::Int(value) => {
                set.doubles.push(value as f64);
                set.keys.insert(Key::Int(value));
            }
            Value::Uint(value) => {
                set.doubles.push(value as f64);
                set.keys.insert(Key::Uint(value));
            }
            Value::String(text) => drop(set.keys.insert(Key::String(text))),
            Value::Double(value) => {
                set.doubles.push(value);
                set.keys.extend(map::key(&Value::Double(value)));
            }
            _ => return None,
        }
    }
    Some(set)
}
