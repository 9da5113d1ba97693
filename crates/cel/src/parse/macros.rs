//! Macros: calls that expand to comprehensions and presence tests. Each expands to the same AST as in `cel-go`, because
//! costs are counted on that AST.

use super::Parser;
use crate::ast::{Expr, Fold, Id, Item, Literal, RESULT};

const NO_NAME: &str = "argument must be a simple name";
const NO_IDENTIFIER: &str = "argument is not an identifier";
const OVERWRITES: &str = "iteration variable overwrites accumulator variable";

/// The result of an expansion; the error is the source offset and the message.
type Expanded<T = Id> = Result<T, (u32, String)>;

/// One or two iteration variables.
type Names = (Box<str>, Option<Box<str>>);

/// Expands a call if it is a macro.
pub(super) fn expand(
    parser: &mut Parser<'_>,
    place: u32,
    function: &str,
    target: Option<Id>,
    args: &[Id],
) -> Option<Id> {
    let mut make = Make { parser, place };
    let expanded = match (target, function, args.len()) {
        (None, "has", 1) => make.has(args[0]),
        (Some(range), "all" | "exists" | "exists_one", 2) => make.quantifier(function, range, args, 1),
        (Some(range), "all" | "exists" | "exists_one" | "existsOne", 3) => make.quantifier(function, range, args, 2),
        (Some(range), "map", 2 | 3) => make.map(range, args),
        (Some(range), "filter", 2) => make.filter(range, args),
        (Some(range), "transformList" | "transformMap" | "transformMapEntry", 3 | 4) => {
            make.transform(function, range, args)
        }
        (Some(target), "optMap" | "optFlatMap", 2) => make.opt_map(function, target, args),
        (Some(range), "sortBy", 2) => make.sort_by(range, args),
        _ => return None,
    };
    Some(expanded.unwrap_or_else(|(at, message)| {
        parser.issues.add(at, message);
        parser.ast.add(Expr::Missing, place)
    }))
}

/// Creates nodes at the source position of the macro call.
struct Make<'p, 's> {
    parser: &'p mut Parser<'s>,
    place: u32,
}

impl Make<'_, '_> {
    fn add(&mut self, expr: Expr) -> Id {
        self.parser.ast.add(expr, self.place)
    }

    fn literal(&mut self, literal: Literal) -> Id {
        self.add(Expr::Literal(literal))
    }

    fn ident(&mut self, name: &str) -> Id {
        self.add(Expr::Ident(name.into()))
    }

    fn result(&mut self) -> Id {
        self.ident(RESULT)
    }

    fn list(&mut self, values: &[Id]) -> Id {
        self.add(Expr::List(values.iter().map(|value| Item { value: *value, optional: false }).collect()))
    }

    fn call(&mut self, function: &str, args: &[Id]) -> Id {
        self.add(Expr::Call { function: function.into(), target: None, args: args.to_vec() })
    }

    fn method(&mut self, function: &str, target: Id) -> Id {
        self.add(Expr::Call { function: function.into(), target: Some(target), args: Vec::new() })
    }

    fn error<T>(&self, id: Id, message: impl Into<String>) -> Expanded<T> {
        Err((self.parser.ast.place(id), message.into()))
    }

    /// Returns the name of an iteration variable; `otherwise` is the error message if the argument is not an
    /// identifier.
    fn variable(&self, id: Id, otherwise: &str) -> Expanded<Box<str>> {
        match self.parser.ast.expr(id) {
            Expr::Ident(name) if &**name == "__result__" => self.error(id, OVERWRITES),
            Expr::Ident(name) => Ok(name.clone()),
            _ => self.error(id, otherwise),
        }
    }

    /// Returns the names of one or two iteration variables.
    fn variables(&self, args: &[Id], count: usize) -> Expanded<Names> {
        if count == 1 {
            return Ok((self.variable(args[0], NO_NAME)?, None));
        }
        let name = |id: Id| match self.parser.ast.expr(id) {
            Expr::Ident(name) => Ok(name.clone()),
            _ => self.error(id, NO_NAME),
        };
        let (first, second) = (name(args[0])?, name(args[1])?);
        if first == second {
            return self.error(args[1], format!("duplicate variable name: {first}"));
        }
        Ok((self.variable(args[0], NO_NAME)?, Some(self.variable(args[1], NO_NAME)?)))
    }

    fn has(&mut self, arg: Id) -> Expanded {
        match self.parser.ast.expr(arg).clone() {
            Expr::Select { operand, field, .. } => Ok(self.add(Expr::Select { operand, field, test: true })),
            _ => self.error(arg, "invalid argument to has() macro"),
        }
    }

    fn quantifier(&mut self, function: &str, range: Id, args: &[Id], variables: usize) -> Expanded {
        let (iter, iter2) = self.variables(args, variables)?;
        let predicate = args[variables];
        let (init, condition, step, result);
        match function {
            "all" => {
                init = self.literal(Literal::Bool(true));
                let so_far = self.result();
                condition = self.call("@not_strictly_false", &[so_far]);
                let so_far = self.result();
                step = self.call("_&&_", &[so_far, predicate]);
                result = self.result();
            }
            "exists" => {
                init = self.literal(Literal::Bool(false));
                let so_far = self.result();
                let not = self.call("!_", &[so_far]);
                condition = self.call("@not_strictly_false", &[not]);
                let so_far = self.result();
                step = self.call("_||_", &[so_far, predicate]);
                result = self.result();
            }
            _ => {
                init = self.literal(Literal::Int(0));
                condition = self.literal(Literal::Bool(true));
                let (so_far, one) = (self.result(), self.literal(Literal::Int(1)));
                let more = self.call("_+_", &[so_far, one]);
                let same = self.result();
                step = self.call("_?_:_", &[predicate, more, same]);
                let (count, one) = (self.result(), self.literal(Literal::Int(1)));
                result = self.call("_==_", &[count, one]);
            }
        }
        let fold = Fold { range, iter, iter2, accu: RESULT.into(), init, condition, step, result };
        Ok(self.add(Expr::Fold(Box::new(fold))))
    }

    /// Builds a comprehension that accumulates: `step` where `filter` holds, and the unchanged accumulator otherwise.
    fn gather(&mut self, range: Id, names: Names, init: Id, filter: Option<Id>, step: Id) -> Id {
        let condition = self.literal(Literal::Bool(true));
        let step = match filter {
            Some(filter) => {
                let same = self.result();
                self.call("_?_:_", &[filter, step, same])
            }
            None => step,
        };
        let result = self.result();
        let (iter, iter2) = names;
        self.add(Expr::Fold(Box::new(Fold { range, iter, iter2, accu: RESULT.into(), init, condition, step, result })))
    }

    fn append(&mut self, value: Id) -> Id {
        let (so_far, one) = (self.result(), self.list(&[value]));
        self.call("_+_", &[so_far, one])
    }

    fn map(&mut self, range: Id, args: &[Id]) -> Expanded {
        let name = self.variable(args[0], NO_IDENTIFIER)?;
        let init = self.list(&[]);
        let step = self.append(args[args.len() - 1]);
        let filter = (args.len() == 3).then(|| args[1]);
        Ok(self.gather(range, (name, None), init, filter, step))
    }

    fn filter(&mut self, range: Id, args: &[Id]) -> Expanded {
        let name = self.variable(args[0], NO_IDENTIFIER)?;
        let init = self.list(&[]);
        let step = self.append(args[0]);
        Ok(self.gather(range, (name, None), init, Some(args[1]), step))
    }

    fn transform(&mut self, function: &str, range: Id, args: &[Id]) -> Expanded {
        let names = self.variables(args, 2)?;
        let filter = (args.len() == 4).then(|| args[2]);
        let value = args[args.len() - 1];
        let (init, step);
        match function {
            "transformList" => {
                init = self.list(&[]);
                step = self.append(value);
            }
            "transformMap" => {
                init = self.add(Expr::Map(Vec::new()));
                let (so_far, key) = (self.result(), self.ident(&names.0));
                step = self.call("cel.@mapInsert", &[so_far, key, value]);
            }
            _ => {
                init = self.add(Expr::Map(Vec::new()));
                let so_far = self.result();
                step = self.call("cel.@mapInsert", &[so_far, value]);
            }
        }
        Ok(self.gather(range, names, init, filter, step))
    }

    /// Binds a name to a value, as a comprehension over an empty list.
    fn bind(&mut self, name: Box<str>, init: Id, result: Id) -> Id {
        let range = self.list(&[]);
        let condition = self.literal(Literal::Bool(false));
        let step = self.ident(&name);
        let fold = Fold { range, iter: "#unused".into(), iter2: None, accu: name, init, condition, step, result };
        self.add(Expr::Fold(Box::new(fold)))
    }

    fn opt_map(&mut self, function: &str, target: Id, args: &[Id]) -> Expanded {
        let Expr::Ident(name) = self.parser.ast.expr(args[0]).clone() else {
            return self.error(args[0], format!("{function}() variable name must be a simple identifier"));
        };
        let has = self.method("hasValue", target);
        let again = self.parser.ast.copy(target);
        let value = self.method("value", again);
        let mut mapped = self.bind(name, value, args[1]);
        if function == "optMap" {
            mapped = self.call("optional.of", &[mapped]);
        }
        let none = self.call("optional.none", &[]);
        Ok(self.call("_?_:_", &[has, mapped, none]))
    }

    /// Expands `list.sortBy(x, key)`: computes the keys of all elements, then sorts the elements by them.
    fn sort_by(&mut self, range: Id, args: &[Id]) -> Expanded {
        let spelled = matches!(
            self.parser.ast.expr(range),
            Expr::Select { .. } | Expr::List(_) | Expr::Ident(_) | Expr::Fold(_) | Expr::Call { .. }
        );
        if !spelled {
            return self.error(
                range,
                "sortBy can only be applied to a list, identifier, comprehension, call or select expression",
            );
        }
        let variable = self.variable(args[0], NO_IDENTIFIER)?;
        let init = self.list(&[]);
        let step = self.append(args[1]);
        let bound = self.ident("@__sortBy_input__");
        let keys = self.gather(bound, (variable, None), init, None, step);
        let sorted = self.ident("@__sortBy_input__");
        let sorted =
            self.add(Expr::Call { function: "@sortByAssociatedKeys".into(), target: Some(sorted), args: vec![keys] });
        Ok(self.bind("@__sortBy_input__".into(), range, sorted))
    }
}
