//! Type-checks calls: resolves the function and the overloads that match the argument types.

use std::sync::Arc;

use super::{Checker, Reference};
use crate::{
    ast::{Expr, Id, Literal},
    library::{self, Function},
    types::Type,
};

impl<'a> Checker<'a> {
    pub(super) fn call(&mut self, id: Id, name: &str, target: Option<Id>, args: &'a [Id]) -> Type {
        if name == "_?._" {
            return self.optional_select(id, args);
        }
        for arg in args {
            self.check(*arg);
        }
        let Some(target) = target else {
            let plain = name.strip_prefix('.').unwrap_or(name);
            return match self.environment.find_function(plain) {
                Some(function) => self.resolve(id, function, None, args, false),
                None => self.undeclared(id, name),
            };
        };
        let qualified = self.ast.qualified_name(target).map(|prefix| format!("{prefix}.{name}"));
        let qualified = qualified.as_deref().map(|name| name.strip_prefix('.').unwrap_or(name));
        if let Some(function) = qualified.and_then(|name| self.environment.find_function(name)) {
            return self.resolve(id, function, None, args, true);
        }
        self.check(target);
        match self.environment.find_function(name) {
            Some(function) => self.resolve(id, function, Some(target), args, false),
            None => self.undeclared(id, name),
        }
    }

    fn optional_select(&mut self, id: Id, args: &[Id]) -> Type {
        let &[operand, field] = args else { return Type::Error };
        let Expr::Literal(Literal::String(field)) = self.ast.expr(field) else { return Type::Error };
        let ty = self.field(id, operand, field, true);
        if let Some(function) = library::function("_?._") {
            self.references[id as usize] =
                Reference::Function { function, overloads: [function.overloads[0].id].into(), spelled: false };
        }
        self.mapping.substitute(&ty, false)
    }

    fn resolve(&mut self, id: Id, function: &'static Function, target: Option<Id>, args: &[Id], spelled: bool) -> Type {
        if matches!(function.name, "_&&_" | "_||_") {
            return self.logical(id, function, args);
        }
        let found: Vec<Type> = target.iter().chain(args).map(|arg| self.ty(*arg).clone()).collect();
        let mut overloads = Vec::new();
        let mut result: Option<Type> = None;
        for overload in &function.overloads {
            if overload.member != target.is_some() || overload.args.len() != found.len() {
                continue;
            }
            let fresh: Vec<_> = (0..overload.params).map(|_| self.mapping.fresh()).collect();
            let expected: Vec<_> = overload.args.iter().map(|ty| instantiate(ty, &fresh)).collect();
            let pairs: Vec<_> = found.iter().zip(&expected).collect();
            if !self.mapping.assignable(&pairs) {
                continue;
            }
            overloads.push(overload.id);
            let ty = self.mapping.substitute(&instantiate(&overload.result, &fresh), false);
            result = Some(match result {
                None => ty,
                Some(Type::Dyn) => Type::Dyn,
                Some(before) if before == ty => before,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else { return self.no_overload(id, function.name, target.is_some(), &found) };
        self.references[id as usize] = Reference::Function { function, overloads: overloads.into(), spelled };
        result
    }

    fn logical(&mut self, id: Id, function: &'static Function, args: &[Id]) -> Type {
        let mut fits = true;
        for arg in args {
            let ty = self.ty(*arg).clone();
            if !self.assignable(&ty, &Type::Bool) {
                self.mismatch(*arg, &Type::Bool, &ty);
                fits = false;
            }
        }
        let overloads = [function.overloads[0].id].into();
        self.references[id as usize] = Reference::Function { function, overloads, spelled: false };
        if fits { Type::Bool } else { Type::Error }
    }

    fn no_overload(&mut self, id: Id, name: &str, member: bool, found: &[Type]) -> Type {
        let found: Vec<_> = found.iter().map(|ty| self.mapping.substitute(ty, true).to_string()).collect();
        let (receiver, args) = found.split_at(usize::from(member));
        let receiver: String = receiver.iter().map(|ty| format!("{ty}.")).collect();
        let signature = format!("{receiver}({})", args.join(", "));
        self.report(id, format!("found no matching overload for '{name}' applied to '{signature}'"));
        Type::Error
    }
}

/// Substitutes fresh type variables for an overload's type parameters.
fn instantiate(ty: &Type, fresh: &[Type]) -> Type {
    match ty {
        Type::Param(number) => fresh[*number as usize].clone(),
        Type::List(of) => Type::list(instantiate(of, fresh)),
        Type::Optional(of) => Type::optional(instantiate(of, fresh)),
        Type::Map(of) => Type::map(instantiate(&of.0, fresh), instantiate(&of.1, fresh)),
        Type::Type(Some(of)) => Type::Type(Some(Arc::new(instantiate(of, fresh)))),
        other => other.clone(),
    }
}
