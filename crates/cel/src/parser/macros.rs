//! Macros: calls that expand to comprehensions and presence tests. Each expands to the same AST as in `cel-go`, because
//! costs are counted on that AST.

use super::Parser;
use crate::ast::{ACCUMULATOR, Comprehension, Expr, ExprId, ListElement, Literal};

const NO_NAME: &str = "argument must be a simple name";
const NO_IDENTIFIER: &str = "argument is not an identifier";
const OVERWRITES: &str = "iteration variable overwrites accumulator variable";

/// The result of an expansion; the error is the source offset and the message.
type Expansion<T = ExprId> = Result<T, (u32, String)>;

/// One or two iteration variables.
type IterVars = (Box<str>, Option<Box<str>>);

/// Expands a call if it is a macro.
pub(super) fn expand_macro(
    parser: &mut Parser<'_>,
    offset: u32,
    function: &str,
    target: Option<ExprId>,
    args: &[ExprId],
) -> Option<ExprId> {
    let mut make = MacroExpander { parser, offset };
    let expanded = match (target, function, args.len()) {
        (None, "has", 1) => make.expand_has(args[0]),
        (Some(range), "all" | "exists" | "exists_one", 2) => make.expand_quantifier(function, range, args, 1),
        (Some(range), "all" | "exists" | "exists_one" | "existsOne", 3) => {
            make.expand_quantifier(function, range, args, 2)
        }
        (Some(range), "map", 2 | 3) => make.expand_map(range, args),
        (Some(range), "filter", 2) => make.expand_filter(range, args),
        (Some(range), "transformList" | "transformMap" | "transformMapEntry", 3 | 4) => {
            make.expand_transform(function, range, args)
        }
        (Some(target), "optMap" | "optFlatMap", 2) => make.expand_opt_map(function, target, args),
        (Some(range), "sortBy", 2) => make.expand_sort_by(range, args),
        _ => return None,
    };
    Some(expanded.unwrap_or_else(|(at, message)| {
        parser.issues.report_error(at, message);
        parser.ast.add_expr(Expr::Missing, offset)
    }))
}

/// Creates nodes at the source position of the macro call.
struct MacroExpander<'p, 's> {
    parser: &'p mut Parser<'s>,
    offset: u32,
}

impl MacroExpander<'_, '_> {
    fn add_expr(&mut self, expr: Expr) -> ExprId {
        self.parser.ast.add_expr(expr, self.offset)
    }

    fn add_literal(&mut self, literal: Literal) -> ExprId {
        self.add_expr(Expr::Literal(literal))
    }

    fn add_identifier(&mut self, name: &str) -> ExprId {
        self.add_expr(Expr::Ident(name.into()))
    }

    fn add_accu(&mut self) -> ExprId {
        self.add_identifier(ACCUMULATOR)
    }

    fn add_list(&mut self, values: &[ExprId]) -> ExprId {
        self.add_expr(Expr::List(values.iter().map(|value| ListElement { value: *value, optional: false }).collect()))
    }

    fn add_call(&mut self, function: &str, args: &[ExprId]) -> ExprId {
        self.add_expr(Expr::Call { function: function.into(), target: None, args: args.to_vec() })
    }

    fn add_member_call(&mut self, function: &str, target: ExprId) -> ExprId {
        self.add_expr(Expr::Call { function: function.into(), target: Some(target), args: Vec::new() })
    }

    fn expansion_error<T>(&self, id: ExprId, message: impl Into<String>) -> Expansion<T> {
        Err((self.parser.ast.source_offset(id), message.into()))
    }

    /// Returns the name of an iteration variable; `otherwise` is the error message if the argument is not an
    /// identifier.
    fn iter_var(&self, id: ExprId, otherwise: &str) -> Expansion<Box<str>> {
        match self.parser.ast.expr(id) {
            Expr::Ident(name) if &**name == "__result__" => self.expansion_error(id, OVERWRITES),
            Expr::Ident(name) => Ok(name.clone()),
            _ => self.expansion_error(id, otherwise),
        }
    }

    /// Returns the names of one or two iteration variables.
    fn iter_vars(&self, args: &[ExprId], count: usize) -> Expansion<IterVars> {
        if count == 1 {
            return Ok((self.iter_var(args[0], NO_NAME)?, None));
        }
        let name = |id: ExprId| match self.parser.ast.expr(id) {
            Expr::Ident(name) => Ok(name.clone()),
            _ => self.expansion_error(id, NO_NAME),
        };
        let (first, second) = (name(args[0])?, name(args[1])?);
        if first == second {
            return self.expansion_error(args[1], format!("duplicate variable name: {first}"));
        }
        Ok((self.iter_var(args[0], NO_NAME)?, Some(self.iter_var(args[1], NO_NAME)?)))
    }

    fn expand_has(&mut self, arg: ExprId) -> Expansion {
        match self.parser.ast.expr(arg).clone() {
            Expr::Select { operand, field, .. } => Ok(self.add_expr(Expr::Select { operand, field, test: true })),
            _ => self.expansion_error(arg, "invalid argument to has() macro"),
        }
    }

    fn expand_quantifier(&mut self, function: &str, range: ExprId, args: &[ExprId], variables: usize) -> Expansion {
        let (iter, iter2) = self.iter_vars(args, variables)?;
        let predicate = args[variables];
        let (init, condition, step, result);
        match function {
            "all" => {
                init = self.add_literal(Literal::Bool(true));
                let so_far = self.add_accu();
                condition = self.add_call("@not_strictly_false", &[so_far]);
                let so_far = self.add_accu();
                step = self.add_call("_&&_", &[so_far, predicate]);
                result = self.add_accu();
            }
            "exists" => {
                init = self.add_literal(Literal::Bool(false));
                let so_far = self.add_accu();
                let not = self.add_call("!_", &[so_far]);
                condition = self.add_call("@not_strictly_false", &[not]);
                let so_far = self.add_accu();
                step = self.add_call("_||_", &[so_far, predicate]);
                result = self.add_accu();
            }
            _ => {
                init = self.add_literal(Literal::Int(0));
                condition = self.add_literal(Literal::Bool(true));
                let (so_far, one) = (self.add_accu(), self.add_literal(Literal::Int(1)));
                let more = self.add_call("_+_", &[so_far, one]);
                let same = self.add_accu();
                step = self.add_call("_?_:_", &[predicate, more, same]);
                let (count, one) = (self.add_accu(), self.add_literal(Literal::Int(1)));
                result = self.add_call("_==_", &[count, one]);
            }
        }
        let fold = Comprehension { range, iter, iter2, accu: ACCUMULATOR.into(), init, condition, step, result };
        Ok(self.add_expr(Expr::Fold(Box::new(fold))))
    }

    /// Builds a comprehension that accumulates: `step` where `filter` holds, and the unchanged accumulator otherwise.
    fn add_fold(
        &mut self,
        range: ExprId,
        vars: IterVars,
        init: ExprId,
        filter: Option<ExprId>,
        step: ExprId,
    ) -> ExprId {
        let condition = self.add_literal(Literal::Bool(true));
        let step = match filter {
            Some(filter) => {
                let same = self.add_accu();
                self.add_call("_?_:_", &[filter, step, same])
            }
            None => step,
        };
        let result = self.add_accu();
        let (iter, iter2) = vars;
        let accu = ACCUMULATOR.into();
        self.add_expr(Expr::Fold(Box::new(Comprehension { range, iter, iter2, accu, init, condition, step, result })))
    }

    fn add_append(&mut self, value: ExprId) -> ExprId {
        let (so_far, one) = (self.add_accu(), self.add_list(&[value]));
        self.add_call("_+_", &[so_far, one])
    }

    fn expand_map(&mut self, range: ExprId, args: &[ExprId]) -> Expansion {
        let name = self.iter_var(args[0], NO_IDENTIFIER)?;
        let init = self.add_list(&[]);
        let step = self.add_append(args[args.len() - 1]);
        let filter = (args.len() == 3).then(|| args[1]);
        Ok(self.add_fold(range, (name, None), init, filter, step))
    }

    fn expand_filter(&mut self, range: ExprId, args: &[ExprId]) -> Expansion {
        let name = self.iter_var(args[0], NO_IDENTIFIER)?;
        let init = self.add_list(&[]);
        let step = self.add_append(args[0]);
        Ok(self.add_fold(range, (name, None), init, Some(args[1]), step))
    }

    fn expand_transform(&mut self, function: &str, range: ExprId, args: &[ExprId]) -> Expansion {
        let names = self.iter_vars(args, 2)?;
        let filter = (args.len() == 4).then(|| args[2]);
        let value = args[args.len() - 1];
        let (init, step);
        match function {
            "transformList" => {
                init = self.add_list(&[]);
                step = self.add_append(value);
            }
            "transformMap" => {
                init = self.add_expr(Expr::Map(Vec::new()));
                let (so_far, key) = (self.add_accu(), self.add_identifier(&names.0));
                step = self.add_call("cel.@mapInsert", &[so_far, key, value]);
            }
            _ => {
                init = self.add_expr(Expr::Map(Vec::new()));
                let so_far = self.add_accu();
                step = self.add_call("cel.@mapInsert", &[so_far, value]);
            }
        }
        Ok(self.add_fold(range, names, init, filter, step))
    }

    /// Binds a name to a value, as a comprehension over an empty list.
    fn add_binding(&mut self, name: Box<str>, init: ExprId, result: ExprId) -> ExprId {
        let range = self.add_list(&[]);
        let condition = self.add_literal(Literal::Bool(false));
        let step = self.add_identifier(&name);
        let fold =
            Comprehension { range, iter: "#unused".into(), iter2: None, accu: name, init, condition, step, result };
        self.add_expr(Expr::Fold(Box::new(fold)))
    }

    fn expand_opt_map(&mut self, function: &str, target: ExprId, args: &[ExprId]) -> Expansion {
        let Expr::Ident(name) = self.parser.ast.expr(args[0]).clone() else {
            return self.expansion_error(args[0], format!("{function}() variable name must be a simple identifier"));
        };
        let has = self.add_member_call("hasValue", target);
        let again = self.parser.ast.copy_expr(target);
        let value = self.add_member_call("value", again);
        let mut mapped = self.add_binding(name, value, args[1]);
        if function == "optMap" {
            mapped = self.add_call("optional.of", &[mapped]);
        }
        let none = self.add_call("optional.none", &[]);
        Ok(self.add_call("_?_:_", &[has, mapped, none]))
    }

    /// Expands `list.sortBy(x, key)`: computes the keys of all elements, then sorts the elements by them.
    fn expand_sort_by(&mut self, range: ExprId, args: &[ExprId]) -> Expansion {
        let spelled = matches!(
            self.parser.ast.expr(range),
            Expr::Select { .. } | Expr::List(_) | Expr::Ident(_) | Expr::Fold(_) | Expr::Call { .. }
        );
        if !spelled {
            return self.expansion_error(
                range,
                "sortBy can only be applied to a list, identifier, comprehension, call or select expression",
            );
        }
        let variable = self.iter_var(args[0], NO_IDENTIFIER)?;
        let init = self.add_list(&[]);
        let step = self.add_append(args[1]);
        let bound = self.add_identifier("@__sortBy_input__");
        let keys = self.add_fold(bound, (variable, None), init, None, step);
        let sorted = self.add_identifier("@__sortBy_input__");
        let function = "@sortByAssociatedKeys".into();
        let sorted = self.add_expr(Expr::Call { function, target: Some(sorted), args: vec![keys] });
        Ok(self.add_binding("@__sortBy_input__".into(), range, sorted))
    }
}
