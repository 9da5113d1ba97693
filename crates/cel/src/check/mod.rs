//! The type checker: assigns a type to every node and overloads to every call, and reports mismatches with `cel-go`'s
//! messages.

mod calls;
mod literals;
mod unify;

use std::sync::Arc;

use self::unify::{Mapping, most_general};
use crate::{
    ast::{Ast, Expr, Fold, Id, Literal},
    environment::Environment,
    issue::Issues,
    library::{self, Function},
    types::{ObjectType, Type},
};

/// A parsed and type-checked expression: its output type, cost estimate and program derive from it.
#[derive(Debug)]
pub struct Checked {
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
    Function { function: &'static Function, overloads: Box<[&'static str]>, spelled: bool },
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Checked {
    /// Returns the type of the result.
    pub fn output(&self) -> &Type {
        &self.types[self.ast.root as usize]
    }

    /// Whether the expression accesses a field of an identifier: `operand.field`, `operand.?field` or
    /// `has(operand.field)`.
    pub fn selects(&self, operand: &str, field: &str) -> bool {
        let is_operand = |id: Id| matches!(self.ast.expr(id), Expr::Ident(name) if **name == *operand);
        let is_field = |id: Id| matches!(self.ast.expr(id), Expr::Literal(Literal::String(name)) if **name == *field);
        (0..self.ast.len()).any(|id| match self.ast.expr(id as Id) {
            Expr::Select { operand, field: name, .. } => **name == *field && is_operand(*operand),
            Expr::Call { function, target: None, args } if **function == *"_?._" => {
                matches!(args.as_slice(), [of, name] if is_operand(*of) && is_field(*name))
            }
            _ => false,
        })
    }

    /// Whether the expression uses a variable, given by its number in the environment.
    pub fn uses(&self, variable: usize) -> bool {
        self.references.iter().any(|reference| matches!(reference, Reference::Variable(number) if *number == variable))
    }
}

pub(crate) fn check(environment: &Environment, source: &str, ast: Ast) -> Result<Checked, Issues> {
    let len = ast.len();
    let mut checker = Checker {
        environment,
        ast: &ast,
        issues: Issues::new(source),
        types: vec![Type::Error; len],
        references: vec![Reference::None; len],
        mapping: Mapping::default(),
        scopes: Vec::new(),
    };
    checker.check(ast.root);
    let Checker { mut issues, types, references, mapping, .. } = checker;
    let types: Vec<_> = types.iter().map(|ty| mapping.substitute(ty, true)).collect();
    if issues.is_empty() {
        literals::check(&ast, &types, &references, &mut issues);
    }
    if issues.is_empty() { Ok(Checked { ast, types, references }) } else { Err(issues.finish()) }
}

struct Checker<'a> {
    environment: &'a Environment,
    ast: &'a Ast,
    issues: Issues,
    types: Vec<Type>,
    references: Vec<Reference>,
    mapping: Mapping,
    /// Comprehension variables in scope, innermost last.
    scopes: Vec<(&'a str, Type)>,
}

impl<'a> Checker<'a> {
    fn check(&mut self, id: Id) {
        let ast = self.ast;
        let ty = match ast.expr(id) {
            Expr::Missing => Type::Error,
            Expr::Literal(literal) => literal_type(literal),
            Expr::Ident(name) => self.ident(id, name),
            Expr::Select { operand, field, test } => self.select(id, *operand, field, *test),
            Expr::Call { function, target, args } => self.call(id, function, *target, args),
            Expr::List(items) => {
                let mut element = None;
                for item in items {
                    self.check(item.value);
                    let ty = self.present(item.value, item.optional);
                    element = Some(self.join(element, ty));
                }
                Type::list(element.unwrap_or_else(|| self.mapping.fresh()))
            }
            Expr::Map(entries) => self.map(entries),
            Expr::Struct { name, fields } => self.create(id, name, fields),
            Expr::Fold(fold) => self.fold(fold),
        };
        self.types[id as usize] = ty;
    }

    fn ty(&self, id: Id) -> &Type {
        &self.types[id as usize]
    }

    fn report(&mut self, id: Id, message: String) {
        self.issues.add(self.ast.place(id), message);
    }

    fn assignable(&mut self, to: &Type, from: &Type) -> bool {
        self.mapping.assignable(&[(to, from)])
    }

    fn mismatch(&mut self, id: Id, expected: &Type, found: &Type) {
        self.report(id, format!("expected type '{expected}' but found '{found}'"));
    }

    fn undeclared(&mut self, id: Id, name: &str) -> Type {
        self.report(id, format!("undeclared reference to '{name}' (in container '')"));
        Type::Error
    }

    /// Resolves a possibly qualified identifier and returns its type.
    fn lookup(&mut self, id: Id, name: &str) -> Option<Type> {
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
        let named = library::type_named(name).or_else(|| self.environment.find_type(name).map(Type::Object))?;
        self.references[id as usize] = Reference::Type(named.clone());
        Some(match named {
            Type::Type(None) => Type::Type(Some(Arc::new(Type::Type(None)))),
            named => Type::Type(Some(Arc::new(named))),
        })
    }

    fn ident(&mut self, id: Id, name: &str) -> Type {
        self.lookup(id, name).unwrap_or_else(|| self.undeclared(id, name))
    }

    fn select(&mut self, id: Id, operand: Id, field: &str, test: bool) -> Type {
        let qualified = if test { None } else { self.ast.qualified_name(id) };
        if let Some(ty) = qualified.and_then(|name| self.lookup(id, &name)) {
            return ty;
        }
        let ty = self.field(id, operand, field, false);
        if test { Type::Bool } else { self.mapping.substitute(&ty, false) }
    }

    /// Returns the type of a field of an operand; an optional type if the selection or the operand is optional.
    fn field(&mut self, id: Id, operand: Id, field: &str, optional: bool) -> Type {
        self.check(operand);
        let ty = self.mapping.substitute(self.ty(operand), false);
        let (target, was_optional) = match &ty {
            Type::Optional(of) => ((**of).clone(), true),
            _ => (ty, false),
        };
        let result = match &target {
            Type::Map(of) => of.1.clone(),
            Type::Object(object) => object.field(field).unwrap_or_else(|| {
                self.report(id, format!("undefined field '{field}'"));
                Type::Error
            }),
            Type::Param(_) => {
                self.assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Native(name) if !target.is_opaque() => {
                self.report(id, format!("unexpected failed resolution of '{name}'"));
                Type::Error
            }
            Type::Dyn | Type::Error => Type::Dyn,
            other => {
                self.report(id, format!("type '{other}' does not support field selection"));
                Type::Dyn
            }
        };
        if optional || was_optional { Type::optional(result) } else { result }
    }

    /// Returns the element type of an optional entry.
    fn present(&mut self, id: Id, optional: bool) -> Type {
        let ty = self.ty(id).clone();
        match ty {
            ty if !optional => ty,
            Type::Optional(of) => (*of).clone(),
            ty => {
                if !matches!(ty, Type::Dyn) {
                    self.mismatch(id, &Type::optional(ty.clone()), &ty);
                }
                ty
            }
        }
    }

    /// Returns the common type of the elements so far and one more element.
    fn join(&mut self, before: Option<Type>, ty: Type) -> Type {
        let Some(before) = before else { return ty };
        if self.assignable(&before, &ty) {
            return most_general(&before, &ty).clone();
        }
        // Mixed types are reported by the literal validators, and only where they are not allowed.
        Type::Dyn
    }

    fn map(&mut self, entries: &[crate::ast::Entry]) -> Type {
        let (mut key, mut value) = (None, None);
        for entry in entries {
            self.check(entry.key);
            let ty = self.ty(entry.key).clone();
            key = Some(self.join(key, ty));
            self.check(entry.value);
            let ty = self.present(entry.value, entry.optional);
            value = Some(self.join(value, ty));
        }
        let mut known = |ty: Option<Type>| ty.unwrap_or_else(|| self.mapping.fresh());
        let key = known(key);
        Type::map(key, known(value))
    }

    fn create(&mut self, id: Id, name: &str, fields: &[crate::ast::Field]) -> Type {
        let object = match self.lookup(id, name) {
            None => return self.undeclared(id, name),
            Some(Type::Type(Some(of))) => match &*of {
                Type::Object(object) if object.creatable() => object.clone(),
                other => {
                    self.report(id, format!("'{}' is not a message type", other.name()));
                    return self.values(fields);
                }
            },
            Some(other) => {
                self.report(id, format!("'{}' is not a type", other.name()));
                return self.values(fields);
            }
        };
        for field in fields {
            self.check(field.value);
            self.field_value(&object, field);
        }
        Type::Object(object)
    }

    fn values(&mut self, fields: &[crate::ast::Field]) -> Type {
        fields.iter().for_each(|field| self.check(field.value));
        Type::Error
    }

    fn field_value(&mut self, object: &Arc<dyn ObjectType>, field: &crate::ast::Field) {
        let found = self.present(field.value, field.optional);
        let Some(expected) = object.field(&field.name) else {
            return self.issues.add(field.place, format!("undefined field '{}'", field.name));
        };
        if !self.assignable(&expected, &found) {
            let name = &field.name;
            let message = format!("expected type of field '{name}' is '{expected}' but provided type is '{found}'");
            self.issues.add(field.place, message);
        }
    }

    fn fold(&mut self, fold: &'a Fold) -> Type {
        self.check(fold.range);
        self.check(fold.init);
        let range = self.mapping.substitute(self.ty(fold.range), false);
        let accu = self.ty(fold.init).clone();
        let (first, second) = match &range {
            Type::List(of) if fold.iter2.is_some() => (Type::Int, (**of).clone()),
            Type::List(of) => ((**of).clone(), Type::Error),
            Type::Map(of) => of.as_ref().clone(),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(fold.range, message);
                (Type::Error, Type::Error)
            }
        };
        self.scopes.push((&fold.accu, accu.clone()));
        let depth = self.scopes.len();
        self.scopes.push((&fold.iter, first));
        if let Some(name) = &fold.iter2 {
            self.scopes.push((name, second));
        }
        self.check(fold.condition);
        self.expect(fold.condition, &Type::Bool);
        self.check(fold.step);
        self.expect(fold.step, &accu);
        self.scopes.truncate(depth);
        self.check(fold.result);
        self.scopes.pop();
        self.mapping.substitute(self.ty(fold.result), false)
    }

    fn expect(&mut self, id: Id, expected: &Type) {
        let found = self.ty(id).clone();
        if !self.assignable(expected, &found) {
            self.mismatch(id, expected, &found);
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
