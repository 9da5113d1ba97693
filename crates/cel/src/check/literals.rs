//! Validators that run after type checking: invalid duration, timestamp, regex and format literals, and lists and maps
//! with mixed element types.

use super::Reference;
use crate::{
    ast::{Ast, Expr, Id, Literal},
    issue::Issues,
    library::{self, Clause, FormatError},
    types::Type,
    value::{Timestamp, time},
};

pub(super) fn check(ast: &Ast, types: &[Type], references: &[Reference], issues: &mut Issues) {
    let mut walk = Walk { ast, types, references, issues };
    walk.visit(ast.root, false);
}

struct Walk<'a> {
    ast: &'a Ast,
    types: &'a [Type],
    references: &'a [Reference],
    issues: &'a mut Issues,
}

impl Walk<'_> {
    /// Visits a node. `formatted`: the node is inside the arguments of `format`, where mixed types are allowed.
    fn visit(&mut self, id: Id, formatted: bool) {
        match self.ast.expr(id).clone() {
            Expr::Missing | Expr::Literal(_) | Expr::Ident(_) => {}
            Expr::Select { operand, .. } => {
                if matches!(self.references[id as usize], Reference::None) {
                    self.visit(operand, formatted);
                }
            }
            Expr::Call { function, target, args } => {
                self.call(id, &function, target, &args);
                let formatted = formatted || &*function == "format";
                target.iter().chain(&args).for_each(|part| self.visit(*part, formatted));
            }
            Expr::List(items) => {
                if !formatted {
                    let found: Vec<_> =
                        items.iter().map(|item| (item.value, self.ty(item.value, item.optional))).collect();
                    self.alike(&found, true);
                }
                items.iter().for_each(|item| self.visit(item.value, formatted));
            }
            Expr::Map(entries) => {
                if !formatted {
                    let keys: Vec<_> = entries.iter().map(|entry| (entry.key, self.ty(entry.key, false))).collect();
                    let values: Vec<_> =
                        entries.iter().map(|entry| (entry.value, self.ty(entry.value, entry.optional))).collect();
                    self.alike(&keys, false);
                    self.alike(&values, false);
                }
                for entry in entries {
                    self.visit(entry.key, formatted);
                    self.visit(entry.value, formatted);
                }
            }
            Expr::Struct { fields, .. } => fields.iter().for_each(|field| self.visit(field.value, formatted)),
            Expr::Fold(fold) => {
                for part in [fold.range, fold.init, fold.condition, fold.step, fold.result] {
                    self.visit(part, formatted);
                }
            }
        }
    }

    fn ty(&self, id: Id, optional: bool) -> Type {
        match &self.types[id as usize] {
            Type::Optional(of) if optional => (**of).clone(),
            ty => ty.clone(),
        }
    }

    /// Reports elements whose type differs from the first one's; with `once`, only the first mismatch.
    fn alike(&mut self, found: &[(Id, Type)], once: bool) {
        let Some((_, first)) = found.first() else { return };
        for (id, ty) in found.iter().filter(|(_, ty)| ty != first) {
            self.issues.add(self.ast.place(*id), format!("expected type '{first}' but found '{ty}'"));
            if once {
                return;
            }
        }
    }

    fn call(&mut self, id: Id, function: &str, target: Option<Id>, args: &[Id]) {
        let Some(first) = args.first() else { return };
        if let Expr::Literal(literal) = self.ast.expr(*first) {
            let bad = match (function, literal) {
                ("duration", Literal::String(text)) => time::duration(text).is_none(),
                ("duration", _) => true,
                ("timestamp", Literal::String(text)) => time::timestamp(text).is_none_or(|time| !time.is_valid()),
                ("timestamp", Literal::Int(seconds)) => !Timestamp { seconds: *seconds, nanos: 0 }.is_valid(),
                ("matches", Literal::String(text)) => library::compile_regex(text).is_err(),
                _ => false,
            };
            if bad {
                self.issues.add(self.ast.place(*first), format!("invalid {function} argument"));
            }
        }
        if let ("format", Some(target), [list]) = (function, target, args)
            && let (Expr::Literal(Literal::String(format)), Expr::List(items)) =
                (self.ast.expr(target), self.ast.expr(*list))
        {
            let items: Vec<_> = items.iter().map(|item| item.value).collect();
            self.format(id, format, &items);
        }
    }

    fn format(&mut self, id: Id, format: &str, items: &[Id]) {
        let mut used = 0;
        let mut place = id;
        let scanned = library::scan_format(format, |at, clause| {
            used += 1;
            let Some(item) = items.get(at) else { return Err(FormatError::Outer(format!("index {at} out of range"))) };
            match self.unfit(*item, clause) {
                None => Ok(String::new()),
                Some(bad) => {
                    place = bad;
                    Err(FormatError::Inner(clause.refusal(self.types[bad as usize].name())))
                }
            }
        });
        let message = match scanned {
            Err(message) => message,
            Ok(_) if items.len() > used => {
                format!("too many arguments supplied to string.format (expected {used}, got {})", items.len())
            }
            Ok(_) => return,
        };
        self.issues.add(self.ast.place(place), message);
    }

    /// Returns the part of an argument whose type a format clause cannot print.
    fn unfit(&self, id: Id, clause: Clause) -> Option<Id> {
        let ty = &self.types[id as usize];
        if matches!(ty, Type::Dyn) {
            return None;
        }
        if !clause.accepts(ty) {
            return Some(id);
        }
        if !matches!(clause, Clause::String) {
            return None;
        }
        match self.ast.expr(id) {
            Expr::List(items) => items.iter().find_map(|item| self.unfit(item.value, clause)),
            Expr::Map(entries) => entries
                .iter()
                .find_map(|entry| self.unfit(entry.key, clause).or_else(|| self.unfit(entry.value, clause))),
            _ => None,
        }
    }
}
