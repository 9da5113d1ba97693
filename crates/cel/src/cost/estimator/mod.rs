//! The static cost estimate of an expression. Sizes that depend on a schema come from [`SizeEstimator`]; sizes of literals and
//! of values built from them are computed.

mod call_cost;

use std::collections::HashMap;

use super::{Estimate, LIST_COST, MAP_COST, STRUCT_COST};
use crate::{
    ast::{ACCUMULATOR, Ast, Comprehension, Expr, ExprId, Literal},
    checker::{CheckedExpr, Reference},
    types::Type,
};

/// Size estimates of the values reachable from variables.
pub trait SizeEstimator {
    /// Returns the size of the value at a path: a variable, then fields, `@items`, `@values` or `@keys`. `None` if
    /// unknown.
    fn estimate_size(&self, path: &[&str]) -> Option<Estimate>;
}

/// Size estimator without any size bounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnboundedSizes;

impl SizeEstimator for UnboundedSizes {
    fn estimate_size(&self, _: &[&str]) -> Option<Estimate> {
        None
    }
}

impl CheckedExpr {
    /// Estimates the minimum and maximum cost of evaluation.
    pub fn estimate_cost(&self, sizes: &dyn SizeEstimator) -> Estimate {
        let mut estimate = CostEstimator {
            checked: self,
            sizes,
            paths: HashMap::new(),
            computed: HashMap::new(),
            entries: HashMap::new(),
            locals: Vec::new(),
        };
        estimate.cost_expr(self.ast.root)
    }
}

/// Size estimates of the keys and values of a list or map.
#[derive(Clone, Copy)]
pub(super) struct EntrySizes {
    list: bool,
    key: Estimate,
    pub(super) value: Estimate,
}

impl EntrySizes {
    pub(super) fn union(self, other: Self) -> Self {
        Self { list: self.list, key: self.key.union(other.key), value: self.value.union(other.value) }
    }
}

/// The path of a value: a variable and the fields, items, values or keys selected from it.
pub(super) type NodePath<'a> = Vec<&'a str>;

struct LocalEstimate<'a> {
    name: &'a str,
    path: NodePath<'a>,
    size: Option<Estimate>,
    entries: Option<EntrySizes>,
}

pub(super) struct CostEstimator<'a> {
    pub(super) checked: &'a CheckedExpr,
    sizes: &'a dyn SizeEstimator,
    paths: HashMap<ExprId, NodePath<'a>>,
    computed: HashMap<ExprId, Estimate>,
    entries: HashMap<ExprId, EntrySizes>,
    locals: Vec<LocalEstimate<'a>>,
}

/// An argument of a call with its type, path and size estimate.
pub(super) struct CallArg<'a> {
    pub(super) id: ExprId,
    pub(super) path: NodePath<'a>,
    pub(super) size: Option<Estimate>,
    pub(super) cost: Estimate,
}

impl CallArg<'_> {
    pub(super) fn known_size(&self) -> Estimate {
        self.size.unwrap_or(Estimate::UNKNOWN)
    }
}

impl<'a> CostEstimator<'a> {
    fn checked_ast(&self) -> &'a Ast {
        &self.checked.ast
    }

    pub(super) fn expr_type(&self, id: ExprId) -> &'a Type {
        &self.checked.types[id as usize]
    }

    fn find_local(&self, name: &str) -> Option<&LocalEstimate<'a>> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn cost_expr(&mut self, id: ExprId) -> Estimate {
        let ast = self.checked_ast();
        match ast.expr(id) {
            Expr::Missing | Expr::Literal(_) => Estimate::ZERO,
            // The estimate prices a type identifier as a variable, although evaluation treats it as a constant.
            Expr::Ident(name) => {
                let path = self.find_local(name).map_or_else(|| vec![&**name], |local| local.path.clone());
                self.paths.insert(id, path);
                Estimate::ONE
            }
            Expr::Select { operand, field, test } => self.cost_select(id, *operand, field, *test),
            Expr::Call { function, target, args } => self.cost_call(id, function, *target, args),
            Expr::List(items) => {
                let mut value = if items.is_empty() { Estimate::ZERO } else { Estimate { min: u64::MAX, max: 0 } };
                let mut sum = Estimate::fixed(LIST_COST);
                for item in items {
                    sum = sum.add(self.cost_expr(item.value));
                    value = value.union(self.known_size(item.value));
                }
                self.entries.insert(id, EntrySizes { list: true, key: Estimate::ONE, value });
                sum
            }
            Expr::Map(entries) => {
                let start = if entries.is_empty() { Estimate::ZERO } else { Estimate { min: u64::MAX, max: 0 } };
                let (mut key, mut value, mut sum) = (start, start, Estimate::fixed(MAP_COST));
                for entry in entries {
                    sum = sum.add(self.cost_expr(entry.key)).add(self.cost_expr(entry.value));
                    key = key.union(self.known_size(entry.key));
                    value = value.union(self.known_size(entry.value));
                }
                self.entries.insert(id, EntrySizes { list: false, key, value });
                sum
            }
            Expr::Struct { fields, .. } => {
                fields.iter().fold(Estimate::fixed(STRUCT_COST), |sum, field| sum.add(self.cost_expr(field.value)))
            }
            Expr::Fold(fold) if fold.is_binding(ast) => self.cost_binding(id, fold),
            Expr::Fold(fold) => self.cost_comprehension(id, fold),
        }
    }

    fn cost_select(&mut self, id: ExprId, operand: ExprId, field: &'a str, test: bool) -> Estimate {
        if !matches!(self.checked.references[id as usize], Reference::None) {
            // A variable or type with a qualified name; its size is unknown.
            return Estimate::ONE;
        }
        let cost = self.cost_expr(operand);
        if test {
            return cost;
        }
        let mut path = self.node_path(operand);
        path.push(field);
        self.paths.insert(id, path);
        match self.expr_type(operand) {
            Type::Map(_) | Type::Object(_) => cost.add(Estimate::ONE),
            Type::Native(_) if !self.expr_type(operand).is_opaque() => cost.add(Estimate::ONE),
            _ => cost,
        }
    }

    fn cost_call(&mut self, id: ExprId, name: &str, target: Option<ExprId>, args: &[ExprId]) -> Estimate {
        if let ("dyn", [arg]) = (name, args) {
            let cost = self.cost_expr(*arg);
            self.copy_estimates(id, *arg);
            return cost.add(Estimate::ONE);
        }
        let mut arguments: Vec<_> = args.iter().map(|arg| self.cost_argument(*arg)).collect();
        let Reference::Function { function, overloads, spelled } = &self.checked.references[id as usize] else {
            return Estimate::ZERO;
        };
        if name == "_&&_" || name == "_||_" {
            let max = arguments.iter().fold(0u64, |sum, arg| sum.saturating_add(arg.cost.max));
            return Estimate { min: arguments[0].cost.min, max };
        }
        let target = if *spelled { None } else { target.map(|target| self.cost_argument(target)) };
        let mut cost: Option<Estimate> = None;
        let mut size: Option<Estimate> = None;
        for overload in overloads.iter() {
            let (found, made) =
                call_cost::estimate_call(self, id, function.name, overload, target.as_ref(), &arguments);
            cost = Some(cost.map_or(found, |cost| cost.union(found)));
            size = match (size, made) {
                (Some(size), Some(made)) => Some(size.union(made)),
                (size, made) => size.or(made),
            };
            size = self.propagate_index(id, overload, args, size);
            if size.is_none() {
                size = self.estimate_size(id);
            }
        }
        if let Some(size) = size {
            self.computed.insert(id, size);
        }
        arguments.clear();
        target.map_or(Estimate::ZERO, |target| target.cost).add(cost.unwrap_or(Estimate::ZERO))
    }

    /// Propagates the element path and sizes of an index operation's operand to its result.
    fn propagate_index(
        &mut self,
        id: ExprId,
        overload: &str,
        args: &[ExprId],
        size: Option<Estimate>,
    ) -> Option<Estimate> {
        let step = match overload {
            "index_list" => "@items",
            "index_map" => "@values",
            _ => return size,
        };
        let Some(operand) = args.first() else { return size };
        let size = self.entries_of(*operand).map(|entries| entries.value);
        let mut path = self.node_path(*operand);
        path.push(step);
        self.paths.insert(id, path);
        size
    }

    fn cost_argument(&mut self, id: ExprId) -> CallArg<'a> {
        let cost = self.cost_expr(id);
        let path = self.node_path(id);
        let path = if path.first() == Some(&ACCUMULATOR) { Vec::new() } else { path };
        let size = self.estimate_size(id);
        CallArg { id, path, size, cost }
    }

    fn cost_binding(&mut self, id: ExprId, fold: &'a Comprehension) -> Estimate {
        let mut sum = self.cost_expr(fold.range).add(self.cost_expr(fold.init));
        self.push_local(&fold.accu, fold.init);
        sum = sum.add(self.cost_expr(fold.result));
        self.copy_estimates(id, fold.result);
        self.locals.pop();
        sum
    }

    fn push_local(&mut self, name: &'a str, init: ExprId) {
        let local = LocalEstimate {
            name,
            path: self.node_path(init),
            size: self.estimate_size(init),
            entries: self.entries_of(init),
        };
        self.locals.push(local);
    }

    fn cost_comprehension(&mut self, id: ExprId, fold: &'a Comprehension) -> Estimate {
        let ast = self.checked_ast();
        let mut sum = self.cost_expr(fold.range).add(self.cost_expr(fold.init));
        self.push_local(&fold.accu, fold.init);
        let depth = self.locals.len();
        let entries = self.entries_of(fold.range);
        let list = entries.map_or(matches!(self.expr_type(fold.range), Type::List(_)), |entries| entries.list);
        match &fold.iter2 {
            Some(second) => {
                let (first, rest) = if list { ("@indices", "@items") } else { ("@keys", "@values") };
                self.push_element(&fold.iter, fold.range, first, entries.map(|e| e.key));
                self.push_element(second, fold.range, rest, entries.map(|e| e.value));
            }
            None if list => self.push_element(&fold.iter, fold.range, "@items", entries.map(|e| e.value)),
            None => self.push_element(&fold.iter, fold.range, "@keys", entries.map(|e| e.key)),
        }
        let each = self.cost_expr(fold.condition).add(self.cost_expr(fold.step));
        self.locals.truncate(depth);
        sum = sum.add(self.cost_expr(fold.result));
        self.locals.pop();
        let count = self.known_size(fold.range);
        match ast.expr(fold.init) {
            Expr::Literal(_) => {
                if let Some(size) = self.estimate_size(fold.init) {
                    self.computed.insert(id, size);
                }
            }
            Expr::List(_) | Expr::Map(_) => {
                self.computed.insert(id, count);
                if let Some(entries) = self.entries_of(fold.step) {
                    self.entries.insert(id, entries);
                }
            }
            _ => {}
        }
        sum.add(count.multiply(each))
    }

    fn push_element(&mut self, name: &'a str, range: ExprId, step: &'static str, size: Option<Estimate>) {
        let mut path = self.node_path(range);
        path.push(step);
        self.locals.push(LocalEstimate { name, path, size, entries: None });
    }

    pub(super) fn node_path(&self, id: ExprId) -> NodePath<'a> {
        if let Expr::Ident(name) = self.checked_ast().expr(id)
            && let Some(local) = self.find_local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&id).cloned().unwrap_or_default()
    }

    /// Returns the size estimate of a node, if known.
    pub(super) fn estimate_size(&mut self, id: ExprId) -> Option<Estimate> {
        if let Some(size) = self.computed.get(&id) {
            return Some(*size);
        }
        let ast = self.checked_ast();
        let own = match ast.expr(id) {
            Expr::Literal(Literal::String(text)) => Some(text.chars().count()),
            Expr::Literal(Literal::Bytes(bytes)) => Some(bytes.len()),
            Expr::Literal(_) => Some(1),
            Expr::List(items) => Some(items.len()),
            Expr::Map(entries) => Some(entries.len()),
            _ => None,
        };
        if let Some(own) = own {
            return Some(Estimate::fixed(own as u64));
        }
        if let Some(size) = self.declared_size(&self.node_path(id)) {
            self.computed.insert(id, size);
            return Some(size);
        }
        if is_scalar(self.expr_type(id)) {
            return Some(Estimate::ONE);
        }
        match ast.expr(id) {
            Expr::Ident(name) => self.find_local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    /// Returns the size that the schema declares for a path.
    pub(super) fn declared_size(&self, path: &[&str]) -> Option<Estimate> {
        if path.is_empty() { None } else { self.sizes.estimate_size(path) }
    }

    fn known_size(&mut self, id: ExprId) -> Estimate {
        self.estimate_size(id).unwrap_or(Estimate::UNKNOWN)
    }

    pub(super) fn entries_of(&self, id: ExprId) -> Option<EntrySizes> {
        if let Some(entries) = self.entries.get(&id) {
            return Some(*entries);
        }
        match self.checked_ast().expr(id) {
            Expr::Ident(name) => self.find_local(name).and_then(|local| local.entries),
            _ => None,
        }
    }

    pub(super) fn set_entries(&mut self, id: ExprId, entries: Option<EntrySizes>) {
        if let Some(entries) = entries {
            self.entries.insert(id, entries);
        }
    }

    fn copy_estimates(&mut self, to: ExprId, from: ExprId) {
        if let Some(size) = self.estimate_size(from) {
            self.computed.insert(to, size);
        }
        self.set_entries(to, self.entries_of(from));
    }

    /// Returns the value of an argument that is an integer literal.
    pub(super) fn int_literal(&self, id: ExprId) -> Option<u64> {
        match self.checked_ast().expr(id) {
            Expr::Literal(Literal::Int(number)) => Some((*number).max(0) as u64),
            _ => None,
        }
    }
}

fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Optional(of) => is_scalar(of),
        _ => false,
    }
}
