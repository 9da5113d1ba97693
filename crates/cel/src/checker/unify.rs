//! Type unification: assignability with type variables that are inferred along the way, by `cel-go`'s rules.

use std::sync::Arc;

use crate::types::Type;

/// Inferred substitutions of type variables.
#[derive(Default)]
pub(super) struct TypeMapping {
    known: Vec<Option<Type>>,
    /// Overwritten substitutions since the current attempt began, for rollback.
    trail: Vec<(u32, Option<Type>)>,
}

impl TypeMapping {
    pub(super) fn fresh_type_variable(&mut self) -> Type {
        self.known.push(None);
        Type::Param((self.known.len() - 1) as u32)
    }

    /// Whether each type is assignable to its counterpart. Substitutions are kept only if all are.
    pub(super) fn is_assignable_list(&mut self, pairs: &[(&Type, &Type)]) -> bool {
        self.trail.clear();
        let fits = pairs.iter().all(|(a, b)| self.is_assignable_to(a, b));
        if !fits {
            while let Some((param, old)) = self.trail.pop() {
                self.known[param as usize] = old;
            }
        }
        fits
    }

    fn find_substitution(&self, param: u32) -> Option<&Type> {
        self.known.get(param as usize)?.as_ref()
    }

    fn set_substitution(&mut self, param: u32, to: Type) {
        let old = self.known[param as usize].replace(to);
        self.trail.push((param, old));
    }

    fn is_assignable_to(&mut self, a: &Type, b: &Type) -> bool {
        if let Type::Param(param) = b {
            match self.is_valid_substitution(a, *param) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Param(param) = a {
            return self.is_valid_substitution(b, *param).0;
        }
        if a.is_dyn_or_error() || b.is_dyn_or_error() {
            return true;
        }
        match (a, b) {
            (Type::Null, other) | (other, Type::Null) => is_nullable(other),
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.is_assignable_to(a, b),
            (Type::Map(a), Type::Map(b)) => self.is_assignable_to(&a.0, &b.0) && self.is_assignable_to(&a.1, &b.1),
            (Type::Type(_), Type::Type(_)) => true,
            _ => a == b,
        }
    }

    /// Unifies a type variable with a type. Returns whether that succeeded, and whether the variable was already bound.
    fn is_valid_substitution(&mut self, ty: &Type, param: u32) -> (bool, bool) {
        if matches!(ty, Type::Param(other) if *other == param) {
            return (true, true);
        }
        let Some(known) = self.find_substitution(param).cloned() else {
            let free = !self.occurs_within(param, ty);
            if free {
                self.set_substitution(param, ty.clone());
            }
            return (free, false);
        };
        if *ty == known {
            return (true, true);
        }
        if !self.is_assignable_to(ty, &known) {
            return (false, true);
        }
        let general = most_general(ty, &known).clone();
        if !self.occurs_within(param, &general) {
            self.set_substitution(param, general);
        }
        (true, true)
    }

    fn occurs_within(&self, param: u32, within: &Type) -> bool {
        match within {
            Type::Param(other) => {
                *other == param || self.find_substitution(*other).is_some_and(|known| self.occurs_within(param, known))
            }
            Type::List(of) | Type::Optional(of) | Type::Type(Some(of)) => self.occurs_within(param, of),
            Type::Map(of) => self.occurs_within(param, &of.0) || self.occurs_within(param, &of.1),
            _ => false,
        }
    }

    /// Applies the inferred substitutions to a type; `finally` replaces unbound type variables by `dyn`.
    pub(super) fn substitute_type(&self, ty: &Type, finally: bool) -> Type {
        match ty {
            Type::Param(param) => match self.find_substitution(*param) {
                Some(known) => self.substitute_type(known, finally),
                None if finally => Type::Dyn,
                None => ty.clone(),
            },
            Type::List(of) => Type::list_of(self.substitute_type(of, finally)),
            Type::Optional(of) => Type::optional_of(self.substitute_type(of, finally)),
            Type::Map(of) => Type::map_of(self.substitute_type(&of.0, finally), self.substitute_type(&of.1, finally)),
            Type::Type(Some(of)) => Type::Type(Some(Arc::new(self.substitute_type(of, finally)))),
            _ => ty.clone(),
        }
    }
}

fn is_nullable(ty: &Type) -> bool {
    matches!(ty, Type::Null | Type::Optional(_) | Type::Native(_) | Type::Object(_) | Type::Duration | Type::Timestamp)
}

/// Returns the more general of two compatible types.
pub(super) fn most_general<'t>(a: &'t Type, b: &'t Type) -> &'t Type {
    if is_less_specific(a, b) { a } else { b }
}

fn is_less_specific(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Dyn | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Param(_)) => false,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => is_less_specific(a, b),
        (Type::Map(a), Type::Map(b)) => is_less_specific(&a.0, &b.0) && is_less_specific(&a.1, &b.1),
        (Type::Type(_), Type::Type(_)) => true,
        _ => a == b,
    }
}
