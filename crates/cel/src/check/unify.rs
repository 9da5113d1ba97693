//! Type unification: assignability with type variables that are inferred along the way, by `cel-go`'s rules.

use std::sync::Arc;

use crate::types::Type;

/// Inferred substitutions of type variables.
#[derive(Default)]
pub(super) struct Mapping {
    known: Vec<Option<Type>>,
    /// Overwritten substitutions since the current attempt began, for rollback.
    trail: Vec<(u32, Option<Type>)>,
}

impl Mapping {
    pub(super) fn fresh(&mut self) -> Type {
        self.known.push(None);
        Type::Param((self.known.len() - 1) as u32)
    }

    /// Whether each type is assignable to its counterpart. Substitutions are kept only if all are.
    pub(super) fn assignable(&mut self, pairs: &[(&Type, &Type)]) -> bool {
        self.trail.clear();
        let fits = pairs.iter().all(|(a, b)| self.fits(a, b));
        if !fits {
            while let Some((param, old)) = self.trail.pop() {
                self.known[param as usize] = old;
            }
        }
        fits
    }

    fn find(&self, param: u32) -> Option<&Type> {
        self.known.get(param as usize)?.as_ref()
    }

    fn set(&mut self, param: u32, to: Type) {
        let old = self.known[param as usize].replace(to);
        self.trail.push((param, old));
    }

    fn fits(&mut self, a: &Type, b: &Type) -> bool {
        if let Type::Param(param) = b {
            match self.substitutes(a, *param) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Param(param) = a {
            return self.substitutes(b, *param).0;
        }
        if a.is_dyn_or_error() || b.is_dyn_or_error() {
            return true;
        }
        match (a, b) {
            (Type::Null, other) | (other, Type::Null) => nullable(other),
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.fits(a, b),
            (Type::Map(a), Type::Map(b)) => self.fits(&a.0, &b.0) && self.fits(&a.1, &b.1),
            (Type::Type(_), Type::Type(_)) => true,
            _ => a == b,
        }
    }

    /// Unifies a type variable with a type. Returns whether that succeeded, and whether the variable was already bound.
    fn substitutes(&mut self, ty: &Type, param: u32) -> (bool, bool) {
        if matches!(ty, Type::Param(other) if *other == param) {
            return (true, true);
        }
        let Some(known) = self.find(param).cloned() else {
            let free = !self.occurs(param, ty);
            if free {
                self.set(param, ty.clone());
            }
            return (free, false);
        };
        if *ty == known {
            return (true, true);
        }
        if !self.fits(ty, &known) {
            return (false, true);
        }
        let general = most_general(ty, &known).clone();
        if !self.occurs(param, &general) {
            self.set(param, general);
        }
        (true, true)
    }

    fn occurs(&self, param: u32, within: &Type) -> bool {
        match within {
            Type::Param(other) => *other == param || self.find(*other).is_some_and(|known| self.occurs(param, known)),
            Type::List(of) | Type::Optional(of) | Type::Type(Some(of)) => self.occurs(param, of),
            Type::Map(of) => self.occurs(param, &of.0) || self.occurs(param, &of.1),
            _ => false,
        }
    }

    /// Applies the inferred substitutions to a type; `finally` replaces unbound type variables by `dyn`.
    pub(super) fn substitute(&self, ty: &Type, finally: bool) -> Type {
        match ty {
            Type::Param(param) => match self.find(*param) {
                Some(known) => self.substitute(known, finally),
                None if finally => Type::Dyn,
                None => ty.clone(),
            },
            Type::List(of) => Type::list(self.substitute(of, finally)),
            Type::Optional(of) => Type::optional(self.substitute(of, finally)),
            Type::Map(of) => Type::map(self.substitute(&of.0, finally), self.substitute(&of.1, finally)),
            Type::Type(Some(of)) => Type::Type(Some(Arc::new(self.substitute(of, finally)))),
            _ => ty.clone(),
        }
    }
}

fn nullable(ty: &Type) -> bool {
    matches!(ty, Type::Null | Type::Optional(_) | Type::Native(_) | Type::Object(_) | Type::Duration | Type::Timestamp)
}

/// Returns the more general of two compatible types.
pub(super) fn most_general<'t>(a: &'t Type, b: &'t Type) -> &'t Type {
    if says_less(a, b) { a } else { b }
}

fn says_less(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Dyn | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Param(_)) => false,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => says_less(a, b),
        (Type::Map(a), Type::Map(b)) => says_less(&a.0, &b.0) && says_less(&a.1, &b.1),
        (Type::Type(_), Type::Type(_)) => true,
        _ => a == b,
    }
}
