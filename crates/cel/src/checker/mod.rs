//! The type checker: assigns a type to every node and overloads to every call, and reports mismatches with `cel-go`'s
//! messages.

mod calls;
mod literal_validator;
mod unify;

use std::sync::Arc;

use self::unify::{TypeMapping, most_general};
use crate::{
    ast::{Ast, Comprehension, Expr, ExprId, Literal},
    environment::Environment,
    issue::Issues,
    library::{self, FunctionDecl},
    parser::parse_expression,
    types::{ObjectType, Type},
};

/// A parsed and type-checked expression: its output type, cost estimate and program derive from it.
#[derive(Debug)]
pub struct CheckedExpr {
    pub(crate) ast: Ast,
    pub(crate) types: Vec<Type>,
    pub(crate) references: Vec<Reference>,
}

/// The declaration that a node resolves to.
#[derive(Clone, Debug, Default)]
pub(crate) enum Reference {
    #[default]
    None,
    /// A declared variable, by its number in the environment.
    Variable(usize),
    /// A type identifier.
    Type(Type),
    /// A function. `spelled`: the apparent receiver is a namespace that is part of the function's qualified name.
    Function { function: &'static FunctionDecl, overloads: Box<[&'static str]>, spelled: bool },
}

impl std::fmt::Debug for FunctionDecl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl CheckedExpr {
    /// Returns the type of the result.
    pub fn output_type(&self) -> &Type {
        &self.types[self.ast.root as usize]
    }

    /// Whether the expression accesses a field of an identifier: `operand.field`, `operand.?field` or
    /// `has(operand.field)`.
    pub fn selects_field(&self, operand: &str, field: &str) -> bool {
        let is_operand = |id: ExprId| matches!(self.ast.expr(id), Expr::Ident(name) if **name == *operand);
        let is_field =
            |id: ExprId| matches!(self.ast.expr(id), Expr::Literal(Literal::String(name)) if **name == *field);
        (0..self.ast.len()).any(|id| match self.ast.expr(id as ExprId) {
            Expr::Select { operand, field: name, .. } => **name == *field && is_operand(*operand),
            Expr::Call { function, target: None, args } if **function == *"_?._" => {
                matches!(args.as_slice(), [of, name] if is_operand(*of) && is_field(*name))
            }
            _ => false,
        })
    }

    /// Whether the expression uses a variable, given by its number in the environment.
    pub fn uses_variable(&self, variable: usize) -> bool {
        self.references.iter().any(|reference| matches!(reference, Reference::Variable(number) if *number == variable))
    }
}

impl Environment {
    /// Parses and type-checks an expression.
    pub fn compile(&self, source: &str) -> Result<CheckedExpr, Issues> {
        let ast = parse_expression(source)?;
        let len = ast.len();
        let mut checker = Checker {
            environment: self,
            ast: &ast,
            issues: Issues::new(source),
            types: vec![Type::Error; len],
            references: vec![Reference::None; len],
            mapping: TypeMapping::default(),
            scopes: Vec::new(),
        };
        checker.check_expr(ast.root);
        let Checker { mut issues, types, references, mapping, .. } = checker;
        let types: Vec<_> = types.iter().map(|ty| mapping.substitute_type(ty, true)).collect();
        if issues.is_empty() {
            literal_validator::validate_literals(&ast, &types, &references, &mut issues);
        }
        if issues.is_empty() { Ok(CheckedExpr { ast, types, references }) } else { Err(issues.into_sorted()) }
    }
}

struct Checker<'a> {
    environment: &'a Environment,
    ast: &'a Ast,
    issues: Issues,
    types: Vec<Type>,
    references: Vec<Reference>,
    mapping: TypeMapping,
    /// Comprehension variables in scope, innermost last.
    scopes: Vec<(&'a str, Type)>,
}

impl<'a> Checker<'a> {
    fn check_expr(&mut self, id: ExprId) {
        let ast = self.ast;
        let ty = match ast.expr(id) {
            Expr::Missing => Type::Error,
            Expr::Literal(literal) => literal_type(literal),
            Expr::Ident(name) => self.check_identifier(id, name),
            Expr::Select { operand, field, test } => self.check_select(id, *operand, field, *test),
            Expr::Call { function, target, args } => self.check_call(id, function, *target, args),
            Expr::List(items) => {
                let mut element = None;
                for item in items {
                    self.check_expr(item.value);
                    let ty = self.unwrap_optional_type(item.value, item.optional);
                    element = Some(self.join_types(element, ty));
                }
                Type::list_of(element.unwrap_or_else(|| self.mapping.fresh_type_variable()))
            }
            Expr::Map(entries) => self.check_map(entries),
            Expr::Struct { name, fields } => self.check_struct(id, name, fields),
            Expr::Fold(fold) => self.check_comprehension(fold),
        };
        self.types[id as usize] = ty;
    }

    fn expr_type(&self, id: ExprId) -> &Type {
        &self.types[id as usize]
    }

    fn report_error(&mut self, id: ExprId, message: String) {
        self.issues.report_error(self.ast.source_offset(id), message);
    }

    fn is_assignable(&mut self, to: &Type, from: &Type) -> bool {
        self.mapping.is_assignable_list(&[(to, from)])
    }

    fn report_type_mismatch(&mut self, id: ExprId, expected: &Type, found: &Type) {
        self.report_error(id, format!("expected type '{expected}' but found '{found}'"));
    }

    fn report_undeclared_reference(&mut self, id: ExprId, name: &str) -> Type {
        self.report_error(id, format!("undeclared reference to '{name}' (in container '')"));
        Type::Error
    }

    /// Resolves a possibly qualified identifier and returns its type.
    fn resolve_identifier(&mut self, id: ExprId, name: &str) -> Option<Type> {
        let plain = name.strip_prefix('.');
        if plain.is_none()
            && let Some((_, ty)) = self.scopes.iter().rev().find(|(known, _)| *known == name)
        {
            return Some(ty.clone());
        }
        let name = plain.unwrap_or(name);
        if let Some((number, ty)) = self.environment.find_variable(name) {
            self.references[id as usize] = Reference::Variable(*number);
            return Some(ty.clone());
        }
        let named = library::find_type_ident(name).or_else(|| self.environment.find_type(name).map(Type::Object))?;
        self.references[id as usize] = Reference::Type(named.clone());
        Some(match named {
            Type::Type(None) => Type::Type(Some(Arc::new(Type::Type(None)))),
            named => Type::Type(Some(Arc::new(named))),
        })
    }

    fn check_identifier(&mut self, id: ExprId, name: &str) -> Type {
        self.resolve_identifier(id, name).unwrap_or_else(|| self.report_undeclared_reference(id, name))
    }

    fn check_select(&mut self, id: ExprId, operand: ExprId, field: &str, test: bool) -> Type {
        let qualified = if test { None } else { self.ast.qualified_name(id) };
        if let Some(ty) = qualified.and_then(|name| self.resolve_identifier(id, &name)) {
            return ty;
        }
        let ty = self.check_field_selection(id, operand, field, false);
        if test { Type::Bool } else { self.mapping.substitute_type(&ty, false) }
    }

    /// Returns the type of a field of an operand; an optional type if the selection or the operand is optional.
    fn check_field_selection(&mut self, id: ExprId, operand: ExprId, field: &str, optional: bool) -> Type {
        self.check_expr(operand);
        let ty = self.mapping.substitute_type(self.expr_type(operand), false);
        let (target, was_optional) = match &ty {
            Type::Optional(of) => ((**of).clone(), true),
            _ => (ty, false),
        };
        let result = match &target {
            Type::Map(of) => of.1.clone(),
            Type::Object(object) => object.field_type(field).unwrap_or_else(|| {
                self.report_error(id, format!("undefined field '{field}'"));
                Type::Error
            }),
            Type::Param(_) => {
                self.is_assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Native(name) if !target.is_opaque() => {
                self.report_error(id, format!("unexpected failed resolution of '{name}'"));
                Type::Error
            }
            Type::Dyn | Type::Error => Type::Dyn,
            other => {
                self.report_error(id, format!("type '{other}' does not support field selection"));
                Type::Dyn
            }
        };
        if optional || was_optional { Type::optional_of(result) } else { result }
    }

    /// Returns the element type of an optional entry.
    fn unwrap_optional_type(&mut self, id: ExprId, optional: bool) -> Type {
        let ty = self.expr_type(id).clone();
        match ty {
            ty if !optional => ty,
            Type::Optional(of) => (*of).clone(),
            ty => {
                if !matches!(ty, Type::Dyn) {
                    self.report_type_mismatch(id, &Type::optional_of(ty.clone()), &ty);
                }
                ty
            }
        }
    }

    /// Returns the common type of the elements so far and one more element.
    fn join_types(&mut self, before: Option<Type>, ty: Type) -> Type {
        let Some(before) = before else { return ty };
        if self.is_assignable(&before, &ty) {
            return most_general(&before, &ty).clone();
        }
        // Mixed types are reported by the literal validators, and only where they are not allowed.
        Type::Dyn
    }

    fn check_map(&mut self, entries: &[crate::ast::MapEntry]) -> Type {
        let (mut key, mut value) = (None, None);
        for entry in entries {
            self.check_expr(entry.key);
            let ty = self.expr_type(entry.key).clone();
            key = Some(self.join_types(key, ty));
            self.check_expr(entry.value);
            let ty = self.unwrap_optional_type(entry.value, entry.optional);
            value = Some(self.join_types(value, ty));
        }
        let mut known = |ty: Option<Type>| ty.unwrap_or_else(|| self.mapping.fresh_type_variable());
        let key = known(key);
        Type::map_of(key, known(value))
    }

    fn check_struct(&mut self, id: ExprId, name: &str, fields: &[crate::ast::StructField]) -> Type {
        let object = match self.resolve_identifier(id, name) {
            None => return self.report_undeclared_reference(id, name),
            Some(Type::Type(Some(of))) => match &*of {
                Type::Object(object) if object.is_constructible() => object.clone(),
                other => {
                    self.report_error(id, format!("'{}' is not a message type", other.type_name()));
                    return self.check_field_values(fields);
                }
            },
            Some(other) => {
                self.report_error(id, format!("'{}' is not a type", other.type_name()));
                return self.check_field_values(fields);
            }
        };
        for field in fields {
            self.check_expr(field.value);
            self.check_field_value(&object, field);
        }
        Type::Object(object)
    }

    fn check_field_values(&mut self, fields: &[crate::ast::StructField]) -> Type {
        fields.iter().for_each(|field| self.check_expr(field.value));
        Type::Error
    }

    fn check_field_value(&mut self, object: &Arc<dyn ObjectType>, field: &crate::ast::StructField) {
        let found = self.unwrap_optional_type(field.value, field.optional);
        let Some(expected) = object.field_type(&field.name) else {
            return self.issues.report_error(field.offset, format!("undefined field '{}'", field.name));
        };
        if !self.is_assignable(&expected, &found) {
            let name = &field.name;
            let message = format!("expected type of field '{name}' is '{expected}' but provided type is '{found}'");
            self.issues.report_error(field.offset, message);
        }
    }

    fn check_comprehension(&mut self, fold: &'a Comprehension) -> Type {
        self.check_expr(fold.range);
        self.check_expr(fold.init);
        let range = self.mapping.substitute_type(self.expr_type(fold.range), false);
        let accu = self.expr_type(fold.init).clone();
        let (first, second) = match &range {
            Type::List(of) if fold.iter2.is_some() => (Type::Int, (**of).clone()),
            Type::List(of) => ((**of).clone(), Type::Error),
            Type::Map(of) => of.as_ref().clone(),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.is_assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report_error(fold.range, message);
                (Type::Error, Type::Error)
            }
        };
        self.scopes.push((&fold.accu, accu.clone()));
        let depth = self.scopes.len();
        self.scopes.push((&fold.iter, first));
        if let Some(name) = &fold.iter2 {
            self.scopes.push((name, second));
        }
        self.check_expr(fold.condition);
        self.expect_type(fold.condition, &Type::Bool);
        self.check_expr(fold.step);
        self.expect_type(fold.step, &accu);
        self.scopes.truncate(depth);
        self.check_expr(fold.result);
        self.scopes.pop();
        self.mapping.substitute_type(self.expr_type(fold.result), false)
    }

    fn expect_type(&mut self, id: ExprId, expected: &Type) {
        let found = self.expr_type(id).clone();
        if !self.is_assignable(expected, &found) {
            self.report_type_mismatch(id, expected, &found);
        }
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}
