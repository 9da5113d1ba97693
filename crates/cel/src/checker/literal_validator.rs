//! Validators that run after type checking: invalid duration, timestamp, regex and format literals, and lists and maps
//! with mixed element types.

use super::Reference;
use crate::{
    ast::{Ast, Expr, ExprId, Literal},
    issue::Issues,
    library::{self, FormatClause, FormatError},
    types::Type,
    value::{Timestamp, time},
};

pub(super) fn validate_literals(ast: &Ast, types: &[Type], references: &[Reference], issues: &mut Issues) {
    let mut walk = LiteralValidator { ast, types, references, issues };
    walk.visit_expr(ast.root, false);
}

struct LiteralValidator<'a> {
    ast: &'a Ast,
    types: &'a [Type],
    references: &'a [Reference],
    issues: &'a mut Issues,
}

impl LiteralValidator<'_> {
    /// Visits a node. `formatted`: the node is inside the arguments of `format`, where mixed types are allowed.
    fn visit_expr(&mut self, id: ExprId, formatted: bool) {
        match self.ast.expr(id).clone() {
            Expr::Missing | Expr::Literal(_) | Expr::Ident(_) => {}
            Expr::Select { operand, .. } => {
                if matches!(self.references[id as usize], Reference::None) {
                    self.visit_expr(operand, formatted);
                }
            }
            Expr::Call { function, target, args } => {
                self.validate_call(id, &function, target, &args);
                let formatted = formatted || &*function == "format";
                target.iter().chain(&args).for_each(|part| self.visit_expr(*part, formatted));
            }
            Expr::List(items) => {
                if !formatted {
                    let found: Vec<_> =
                        items.iter().map(|item| (item.value, self.expr_type(item.value, item.optional))).collect();
                    self.check_homogeneous(&found, true);
                }
                items.iter().for_each(|item| self.visit_expr(item.value, formatted));
            }
            Expr::Map(entries) => {
                if !formatted {
                    let keys: Vec<_> =
                        entries.iter().map(|entry| (entry.key, self.expr_type(entry.key, false))).collect();
                    let values: Vec<_> = entries
                        .iter()
                        .map(|entry| (entry.value, self.expr_type(entry.value, entry.optional)))
                        .collect();
                    self.check_homogeneous(&keys, false);
                    self.check_homogeneous(&values, false);
                }
                for entry in entries {
                    self.visit_expr(entry.key, formatted);
                    self.visit_expr(entry.value, formatted);
                }
            }
            Expr::Struct { fields, .. } => fields.iter().for_each(|field| self.visit_expr(field.value, formatted)),
            Expr::Fold(fold) => {
                for part in [fold.range, fold.init, fold.condition, fold.step, fold.result] {
                    self.visit_expr(part, formatted);
                }
            }
        }
    }

    fn expr_type(&self, id: ExprId, optional: bool) -> Type {
        match &self.types[id as usize] {
            Type::Optional(of) if optional => (**of).clone(),
            ty => ty.clone(),
        }
    }

    /// Reports elements whose type differs from the first one's; with `once`, only the first mismatch.
    fn check_homogeneous(&mut self, found: &[(ExprId, Type)], once: bool) {
        let Some((_, first)) = found.first() else { return };
        for (id, ty) in found.iter().filter(|(_, ty)| ty != first) {
            self.issues.report_error(self.ast.source_offset(*id), format!("expected type '{first}' but found '{ty}'"));
            if once {
                return;
            }
        }
    }

    fn validate_call(&mut self, id: ExprId, function: &str, target: Option<ExprId>, args: &[ExprId]) {
        let Some(first) = args.first() else { return };
        if let Expr::Literal(literal) = self.ast.expr(*first) {
            let bad = match (function, literal) {
                ("duration", Literal::String(text)) => time::parse_duration(text).is_none(),
                ("duration", _) => true,
                ("timestamp", Literal::String(text)) => time::parse_timestamp(text).is_none_or(|time| !time.is_valid()),
                ("timestamp", Literal::Int(seconds)) => !Timestamp { seconds: *seconds, nanos: 0 }.is_valid(),
                ("matches", Literal::String(text)) => library::compile_regex(text).is_err(),
                _ => false,
            };
            if bad {
                self.issues.report_error(self.ast.source_offset(*first), format!("invalid {function} argument"));
            }
        }
        if let ("format", Some(target), [list]) = (function, target, args)
            && let (Expr::Literal(Literal::String(format)), Expr::List(items)) =
                (self.ast.expr(target), self.ast.expr(*list))
        {
            let items: Vec<_> = items.iter().map(|item| item.value).collect();
            self.validate_format(id, format, &items);
        }
    }

    fn validate_format(&mut self, id: ExprId, format: &str, items: &[ExprId]) {
        let mut used = 0;
        let mut argument = id;
        let scanned = library::scan_format(format, |at, clause| {
            used += 1;
            let Some(item) = items.get(at) else { return Err(FormatError::String(format!("index {at} out of range"))) };
            match self.find_unsupported(*item, clause) {
                None => Ok(String::new()),
                Some(bad) => {
                    argument = bad;
                    Err(FormatError::Argument(clause.unsupported_message(self.types[bad as usize].type_name())))
                }
            }
        });
        let message = match scanned {
            Err(error) => error.to_string(),
            Ok(_) if items.len() > used => {
                format!("too many arguments supplied to string.format (expected {used}, got {})", items.len())
            }
            Ok(_) => return,
        };
        self.issues.report_error(self.ast.source_offset(argument), message);
    }

    /// Returns the part of an argument whose type a format clause cannot print.
    fn find_unsupported(&self, id: ExprId, clause: FormatClause) -> Option<ExprId> {
        let ty = &self.types[id as usize];
        if matches!(ty, Type::Dyn) {
            return None;
        }
        if !clause.accepts_type(ty) {
            return Some(id);
        }
        if !matches!(clause, FormatClause::String) {
            return None;
        }
        match self.ast.expr(id) {
            Expr::List(items) => items.iter().find_map(|item| self.find_unsupported(item.value, clause)),
            Expr::Map(entries) => entries.iter().find_map(|entry| {
                self.find_unsupported(entry.key, clause).or_else(|| self.find_unsupported(entry.value, clause))
            }),
            _ => None,
        }
    }
}
