//! Type-checks calls: resolves the function and the overloads that match the argument types.

use std::sync::Arc;

use super::{Checker, Reference};
use crate::{
    ast::{Expr, ExprId, Literal},
    library::{self, FunctionDecl},
    types::Type,
};

impl<'a> Checker<'a> {
    pub(super) fn check_call(&mut self, id: ExprId, name: &str, target: Option<ExprId>, args: &'a [ExprId]) -> Type {
        if name == "_?._" {
            return self.check_optional_select(id, args);
        }
        for arg in args {
            self.check_expr(*arg);
        }
        let Some(target) = target else {
            let plain = name.strip_prefix('.').unwrap_or(name);
            return match self.environment.find_function(plain) {
                Some(function) => self.resolve_overload(id, function, None, args, false),
                None => self.report_undeclared_reference(id, name),
            };
        };
        let qualified = self.ast.qualified_name(target).map(|prefix| format!("{prefix}.{name}"));
        let qualified = qualified.as_deref().map(|name| name.strip_prefix('.').unwrap_or(name));
        if let Some(function) = qualified.and_then(|name| self.environment.find_function(name)) {
            return self.resolve_overload(id, function, None, args, true);
        }
        self.check_expr(target);
        match self.environment.find_function(name) {
            Some(function) => self.resolve_overload(id, function, Some(target), args, false),
            None => self.report_undeclared_reference(id, name),
        }
    }

    fn check_optional_select(&mut self, id: ExprId, args: &[ExprId]) -> Type {
        let &[operand, field] = args else { return Type::Error };
        let Expr::Literal(Literal::String(field)) = self.ast.expr(field) else { return Type::Error };
        let ty = self.check_field_selection(id, operand, field, true);
        if let Some(function) = library::find_function("_?._") {
            self.references[id as usize] =
                Reference::Function { function, overloads: [function.overloads[0].id].into(), spelled: false };
        }
        self.mapping.substitute_type(&ty, false)
    }

    fn resolve_overload(
        &mut self,
        id: ExprId,
        function: &'static FunctionDecl,
        target: Option<ExprId>,
        args: &[ExprId],
        spelled: bool,
    ) -> Type {
        if matches!(function.name, "_&&_" | "_||_") {
            return self.check_logical_operator(id, function, args);
        }
        let found: Vec<Type> = target.iter().chain(args).map(|arg| self.expr_type(*arg).clone()).collect();
        let mut overloads = Vec::new();
        let mut result: Option<Type> = None;
        for overload in &function.overloads {
            if overload.member != target.is_some() || overload.args.len() != found.len() {
                continue;
            }
            let fresh: Vec<_> = (0..overload.params).map(|_| self.mapping.fresh_type_variable()).collect();
            let expected: Vec<_> = overload.args.iter().map(|ty| instantiate_type(ty, &fresh)).collect();
            let pairs: Vec<_> = found.iter().zip(&expected).collect();
            if !self.mapping.is_assignable_list(&pairs) {
                continue;
            }
            overloads.push(overload.id);
            let ty = self.mapping.substitute_type(&instantiate_type(&overload.result, &fresh), false);
            result = Some(match result {
                None => ty,
                Some(Type::Dyn) => Type::Dyn,
                Some(before) if before == ty => before,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            return self.report_no_overload(id, function.name, target.is_some(), &found);
        };
        self.references[id as usize] = Reference::Function { function, overloads: overloads.into(), spelled };
        result
    }

    fn check_logical_operator(&mut self, id: ExprId, function: &'static FunctionDecl, args: &[ExprId]) -> Type {
        let mut fits = true;
        for arg in args {
            let ty = self.expr_type(*arg).clone();
            if !self.is_assignable(&ty, &Type::Bool) {
                self.report_type_mismatch(*arg, &Type::Bool, &ty);
                fits = false;
            }
        }
        let overloads = [function.overloads[0].id].into();
        self.references[id as usize] = Reference::Function { function, overloads, spelled: false };
        if fits { Type::Bool } else { Type::Error }
    }

    fn report_no_overload(&mut self, id: ExprId, name: &str, member: bool, found: &[Type]) -> Type {
        let found: Vec<_> = found.iter().map(|ty| self.mapping.substitute_type(ty, true).to_string()).collect();
        let (receiver, args) = found.split_at(usize::from(member));
        let receiver: String = receiver.iter().map(|ty| format!("{ty}.")).collect();
        let signature = format!("{receiver}({})", args.join(", "));
        self.report_error(id, format!("found no matching overload for '{name}' applied to '{signature}'"));
        Type::Error
    }
}

/// Substitutes fresh type variables for an overload's type parameters.
fn instantiate_type(ty: &Type, fresh: &[Type]) -> Type {
    match ty {
        Type::Param(number) => fresh[*number as usize].clone(),
        Type::List(of) => Type::list_of(instantiate_type(of, fresh)),
        Type::Optional(of) => Type::optional_of(instantiate_type(of, fresh)),
        Type::Map(of) => Type::map_of(instantiate_type(&of.0, fresh), instantiate_type(&of.1, fresh)),
        Type::Type(Some(of)) => Type::Type(Some(Arc::new(instantiate_type(of, fresh)))),
        other => other.clone(),
    }
}
