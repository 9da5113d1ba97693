//! The environment of an expression: variables, constructible types, and the libraries of Kubernetes 1.36.

use std::{collections::HashMap, fmt, sync::Arc};

use crate::{
    library,
    types::{ObjectType, Type},
};

/// The environment that an expression is compiled in. Cloning is cheap, and clones can be extended independently.
#[derive(Clone, Default)]
pub struct Environment {
    variables: Arc<HashMap<Box<str>, (usize, Type)>>,
    /// Number of the next declared variable.
    next_variable: usize,
    types: Option<Arc<dyn TypeResolver>>,
    json_patch: bool,
}

/// Resolves the types that an expression may construct by name, such as `Object.spec` in a mutation.
pub trait TypeResolver: Send + Sync {
    /// Returns the type with a name.
    fn resolve_type(&self, name: &str) -> Option<Arc<dyn ObjectType>>;
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("variables", &self.variables).finish_non_exhaustive()
    }
}

impl Environment {
    /// The base environment: no variables, and all libraries except the opt-in ones.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a variable. Variables are numbered in declaration order; [`Activation`](crate::Activation) holds their
    /// values by number.
    pub fn with_variable(mut self, name: &str, ty: Type) -> Self {
        let variables = Arc::make_mut(&mut self.variables);
        let known = variables.get(name).map(|(number, _)| *number);
        variables.insert(name.into(), (known.unwrap_or(self.next_variable), ty));
        self.next_variable += usize::from(known.is_none());
        self
    }

    /// Removes a variable. The others keep their numbers, so that one activation serves both environments.
    pub fn without_variable(mut self, name: &str) -> Self {
        Arc::make_mut(&mut self.variables).remove(name);
        self
    }

    /// Sets the resolver of the types that expressions may construct.
    pub fn with_types(mut self, types: Arc<dyn TypeResolver>) -> Self {
        self.types = Some(types);
        self
    }

    /// Enables `jsonpatch.escapeKey`, for mutating admission policies.
    pub fn with_json_patch_library(mut self) -> Self {
        self.json_patch = true;
        self
    }

    /// Returns the number of a variable.
    pub fn variable_number(&self, name: &str) -> Option<usize> {
        self.variables.get(name).map(|(number, _)| *number)
    }

    pub(crate) fn find_variable(&self, name: &str) -> Option<&(usize, Type)> {
        self.variables.get(name)
    }

    pub(crate) fn find_type(&self, name: &str) -> Option<Arc<dyn ObjectType>> {
        self.types.as_ref()?.resolve_type(name)
    }

    pub(crate) fn find_function(&self, name: &str) -> Option<&'static library::FunctionDecl> {
        if name == "jsonpatch.escapeKey" && !self.json_patch {
            return None;
        }
        library::find_function(name)
    }
}
