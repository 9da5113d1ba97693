//! The static cost estimate of an expression. Sizes that depend on a schema come from [`Sizes`]; sizes of literals and
//! of values built from them are computed.

use std::collections::HashMap;

use super::{LIST, MAP, Range, STRUCT, calls};
use crate::{
    ast::{Ast, Expr, Fold, Id, Literal, RESULT},
    check::{Checked, Reference},
    types::Type,
};

/// Size estimates of the values reachable from variables.
pub trait Sizes {
    /// Returns the size of the value at a path: a variable, then fields, `@items`, `@values` or `@keys`. `None` if
    /// unknown.
    fn size(&self, path: &[&str]) -> Option<Range>;
}

/// Size estimator without any size bounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl Sizes for Unlimited {
    fn size(&self, _: &[&str]) -> Option<Range> {
        None
    }
}

impl Checked {
    /// Estimates the minimum and maximum cost of evaluation.
    pub fn estimate(&self, sizes: &dyn Sizes) -> Range {
        let mut estimate = Estimate {
            checked: self,
            sizes,
            paths: HashMap::new(),
            computed: HashMap::new(),
            entries: HashMap::new(),
            locals: Vec::new(),
        };
        estimate.cost(self.ast.root)
    }
}

/// Size estimates of the keys and values of a list or map.
#[derive(Clone, Copy)]
pub(super) struct Entries {
    list: bool,
    key: Range,
    pub(super) value: Range,
}

impl Entries {
    pub(super) fn or(self, other: Self) -> Self {
        Self { list: self.list, key: self.key.or(other.key), value: self.value.or(other.value) }
    }
}

/// The path of a value: a variable and the fields, items, values or keys selected from it.
pub(super) type Path<'a> = Vec<&'a str>;

struct Local<'a> {
    name: &'a str,
    path: Path<'a>,
    size: Option<Range>,
    entries: Option<Entries>,
}

pub(super) struct Estimate<'a> {
    pub(super) checked: &'a Checked,
    sizes: &'a dyn Sizes,
    paths: HashMap<Id, Path<'a>>,
    computed: HashMap<Id, Range>,
    entries: HashMap<Id, Entries>,
    locals: Vec<Local<'a>>,
}

/// An argument of a call with its type, path and size estimate.
pub(super) struct Argument<'a> {
    pub(super) id: Id,
    pub(super) path: Path<'a>,
    pub(super) size: Option<Range>,
    pub(super) cost: Range,
}

impl Argument<'_> {
    pub(super) fn size(&self) -> Range {
        self.size.unwrap_or(Range::UNKNOWN)
    }
}

impl<'a> Estimate<'a> {
    fn ast(&self) -> &'a Ast {
        &self.checked.ast
    }

    pub(super) fn ty(&self, id: Id) -> &'a Type {
        &self.checked.types[id as usize]
    }

    fn local(&self, name: &str) -> Option<&Local<'a>> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn cost(&mut self, id: Id) -> Range {
        let ast = self.ast();
        match ast.expr(id) {
            Expr::Missing | Expr::Literal(_) => Range::ZERO,
            // The estimate prices a type identifier as a variable, although evaluation treats it as a constant.
            Expr::Ident(name) => {
                let path = self.local(name).map_or_else(|| vec![&**name], |local| local.path.clone());
                self.paths.insert(id, path);
                Range::ONE
            }
            Expr::Select { operand, field, test } => self.select(id, *operand, field, *test),
            Expr::Call { function, target, args } => self.call(id, function, *target, args),
            Expr::List(items) => {
                let mut value = if items.is_empty() { Range::ZERO } else { Range { min: u64::MAX, max: 0 } };
                let mut sum = Range::exactly(LIST);
                for item in items {
                    sum = sum.plus(self.cost(item.value));
                    value = value.or(self.known(item.value));
                }
                self.entries.insert(id, Entries { list: true, key: Range::ONE, value });
                sum
            }
            Expr::Map(entries) => {
                let start = if entries.is_empty() { Range::ZERO } else { Range { min: u64::MAX, max: 0 } };
                let (mut key, mut value, mut sum) = (start, start, Range::exactly(MAP));
                for entry in entries {
                    sum = sum.plus(self.cost(entry.key)).plus(self.cost(entry.value));
                    key = key.or(self.known(entry.key));
                    value = value.or(self.known(entry.value));
                }
                self.entries.insert(id, Entries { list: false, key, value });
                sum
            }
            Expr::Struct { fields, .. } => {
                fields.iter().fold(Range::exactly(STRUCT), |sum, field| sum.plus(self.cost(field.value)))
            }
            Expr::Fold(fold) if fold.is_binding(ast) => self.binding(id, fold),
            Expr::Fold(fold) => self.fold(id, fold),
        }
    }

    fn select(&mut self, id: Id, operand: Id, field: &'a str, test: bool) -> Range {
        if !matches!(self.checked.references[id as usize], Reference::None) {
            // A variable or type with a qualified name; its size is unknown.
            return Range::ONE;
        }
        let cost = self.cost(operand);
        if test {
            return cost;
        }
        let mut path = self.path(operand);
        path.push(field);
        self.paths.insert(id, path);
        match self.ty(operand) {
            Type::Map(_) | Type::Object(_) => cost.plus(Range::ONE),
            Type::Native(_) if !self.ty(operand).is_opaque() => cost.plus(Range::ONE),
            _ => cost,
        }
    }

    fn call(&mut self, id: Id, name: &str, target: Option<Id>, args: &[Id]) -> Range {
        if let ("dyn", [arg]) = (name, args) {
            let cost = self.cost(*arg);
            self.copy(id, *arg);
            return cost.plus(Range::ONE);
        }
        let mut arguments: Vec<_> = args.iter().map(|arg| self.argument(*arg)).collect();
        let Reference::Function { function, overloads, spelled } = &self.checked.references[id as usize] else {
            return Range::ZERO;
        };
        if name == "_&&_" || name == "_||_" {
            let max = arguments.iter().fold(0u64, |sum, arg| sum.saturating_add(arg.cost.max));
            return Range { min: arguments[0].cost.min, max };
        }
        let target = if *spelled { None } else { target.map(|target| self.argument(target)) };
        let mut cost: Option<Range> = None;
        let mut size: Option<Range> = None;
        for overload in overloads.iter() {
            let (found, made) = calls::estimate(self, id, function.name, overload, target.as_ref(), &arguments);
            cost = Some(cost.map_or(found, |cost| cost.or(found)));
            size = match (size, made) {
                (Some(size), Some(made)) => Some(size.or(made)),
                (size, made) => size.or(made),
            };
            size = self.indexed(id, overload, args, size);
            if size.is_none() {
                size = self.size(id);
            }
        }
        if let Some(size) = size {
            self.computed.insert(id, size);
        }
        arguments.clear();
        target.map_or(Range::ZERO, |target| target.cost).plus(cost.unwrap_or(Range::ZERO))
    }

    /// Propagates the element path and sizes of an index operation's operand to its result.
    fn indexed(&mut self, id: Id, overload: &str, args: &[Id], size: Option<Range>) -> Option<Range> {
        let step = match overload {
            "index_list" => "@items",
            "index_map" => "@values",
            _ => return size,
        };
        let Some(operand) = args.first() else { return size };
        let size = self.entries_of(*operand).map(|entries| entries.value);
        let mut path = self.path(*operand);
        path.push(step);
        self.paths.insert(id, path);
        size
    }

    fn argument(&mut self, id: Id) -> Argument<'a> {
        let cost = self.cost(id);
        let path = self.path(id);
        let path = if path.first() == Some(&RESULT) { Vec::new() } else { path };
        let size = self.size(id);
        Argument { id, path, size, cost }
    }

    fn binding(&mut self, id: Id, fold: &'a Fold) -> Range {
        let mut sum = self.cost(fold.range).plus(self.cost(fold.init));
        self.push(&fold.accu, fold.init);
        sum = sum.plus(self.cost(fold.result));
        self.copy(id, fold.result);
        self.locals.pop();
        sum
    }

    fn push(&mut self, name: &'a str, init: Id) {
        let local = Local { name, path: self.path(init), size: self.size(init), entries: self.entries_of(init) };
        self.locals.push(local);
    }

    fn fold(&mut self, id: Id, fold: &'a Fold) -> Range {
        let ast = self.ast();
        let mut sum = self.cost(fold.range).plus(self.cost(fold.init));
        self.push(&fold.accu, fold.init);
        let depth = self.locals.len();
        let entries = self.entries_of(fold.range);
        let list = entries.map_or(matches!(self.ty(fold.range), Type::List(_)), |entries| entries.list);
        match &fold.iter2 {
            Some(second) => {
                self.element(&fold.iter, fold.range, if list { "@indices" } else { "@keys" }, entries.map(|e| e.key));
                self.element(second, fold.range, if list { "@items" } else { "@values" }, entries.map(|e| e.value));
            }
            None if list => self.element(&fold.iter, fold.range, "@items", entries.map(|e| e.value)),
            None => self.element(&fold.iter, fold.range, "@keys", entries.map(|e| e.key)),
        }
        let each = self.cost(fold.condition).plus(self.cost(fold.step));
        self.locals.truncate(depth);
        sum = sum.plus(self.cost(fold.result));
        self.locals.pop();
        let count = self.known(fold.range);
        match ast.expr(fold.init) {
            Expr::Literal(_) => {
                if let Some(size) = self.size(fold.init) {
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
        sum.plus(count.times(each))
    }

    fn element(&mut self, name: &'a str, range: Id, step: &'static str, size: Option<Range>) {
        let mut path = self.path(range);
        path.push(step);
        self.locals.push(Local { name, path, size, entries: None });
    }

    pub(super) fn path(&self, id: Id) -> Path<'a> {
        if let Expr::Ident(name) = self.ast().expr(id)
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&id).cloned().unwrap_or_default()
    }

    /// Returns the size estimate of a node, if known.
    pub(super) fn size(&mut self, id: Id) -> Option<Range> {
        if let Some(size) = self.computed.get(&id) {
            return Some(*size);
        }
        let ast = self.ast();
        let own = match ast.expr(id) {
            Expr::Literal(Literal::String(text)) => Some(text.chars().count()),
            Expr::Literal(Literal::Bytes(bytes)) => Some(bytes.len()),
            Expr::Literal(_) => Some(1),
            Expr::List(items) => Some(items.len()),
            Expr::Map(entries) => Some(entries.len()),
            _ => None,
        };
        if let Some(own) = own {
            return Some(Range::exactly(own as u64));
        }
        if let Some(size) = self.declared(&self.path(id)) {
            self.computed.insert(id, size);
            return Some(size);
        }
        if is_scalar(self.ty(id)) {
            return Some(Range::ONE);
        }
        match ast.expr(id) {
            Expr::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    /// Returns the size that the schema declares for a path.
    pub(super) fn declared(&self, path: &[&str]) -> Option<Range> {
        if path.is_empty() { None } else { self.sizes.size(path) }
    }

    fn known(&mut self, id: Id) -> Range {
        self.size(id).unwrap_or(Range::UNKNOWN)
    }

    pub(super) fn entries_of(&self, id: Id) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&id) {
            return Some(*entries);
        }
        match self.ast().expr(id) {
            Expr::Ident(name) => self.local(name).and_then(|local| local.entries),
            _ => None,
        }
    }

    pub(super) fn set_entries(&mut self, id: Id, entries: Option<Entries>) {
        if let Some(entries) = entries {
            self.entries.insert(id, entries);
        }
    }

    fn copy(&mut self, to: Id, from: Id) {
        if let Some(size) = self.size(from) {
            self.computed.insert(to, size);
        }
        self.set_entries(to, self.entries_of(from));
    }

    /// Returns the value of an argument that is an integer literal.
    pub(super) fn literal(&self, id: Id) -> Option<u64> {
        match self.ast().expr(id) {
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
