//! What an expression may use: variables, types that it may create, and the libraries of Kubernetes 1.36.

use std::{collections::HashMap, fmt, sync::Arc};

use crate::{
    check::{self, Checked},
    issue::Issues,
    library, parse,
    types::{ObjectType, Type},
};

/// What an expression may use. Cheap to copy; copies can be extended on their own.
#[derive(Clone, Default)]
pub struct Environment {
    variables: Arc<HashMap<Box<str>, (usize, Type)>>,
    /// The number of the next variable.
    next: usize,
    types: Option<Arc<dyn TypeResolver>>,
    json_patch: bool,
}

/// Finds the types that an expression may create by name, such as `Object.spec` of a mutation.
pub trait TypeResolver: Send + Sync {
    /// The type of a name.
    fn find(&self, name: &str) -> Option<Arc<dyn ObjectType>>;
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("variables", &self.variables).finish_non_exhaustive()
    }
}

impl Environment {
    /// The environment that all uses share: no variables, all libraries but those that only some have.
    pub fn new() -> Self {
        Self::default()
    }

    /// With a variable. Variables are numbered in the order in which they are declared; [`Bindings`](crate::Bindings)
    /// has their values by these numbers or by name.
    pub fn variable(mut self, name: &str, ty: Type) -> Self {
        let variables = Arc::make_mut(&mut self.variables);
        let known = variables.get(name).map(|(number, _)| *number);
        variables.insert(name.into(), (known.unwrap_or(self.next), ty));
        self.next += usize::from(known.is_none());
        self
    }

    /// Without a variable. The others keep their numbers, so that one set of values serves both environments.
    pub fn without(mut self, name: &str) -> Self {
        Arc::make_mut(&mut self.variables).remove(name);
        self
    }

    /// With types that expressions may create.
    pub fn types(mut self, types: Arc<dyn TypeResolver>) -> Self {
        self.types = Some(types);
        self
    }

    /// With what mutations need to write patches.
    pub fn json_patch(mut self) -> Self {
        self.json_patch = true;
        self
    }

    /// Parses and checks an expression.
    pub fn compile(&self, source: &str) -> Result<Checked, Issues> {
        check::check(self, source, parse::parse(source)?)
    }

    /// The number of a variable.
    pub fn number(&self, name: &str) -> Option<usize> {
        self.variables.get(name).map(|(number, _)| *number)
    }

    pub(crate) fn find_variable(&self, name: &str) -> Option<&(usize, Type)> {
        self.variables.get(name)
    }

    pub(crate) fn find_type(&self, name: &str) -> Option<Arc<dyn ObjectType>> {
        self.types.as_ref()?.find(name)
    }

    pub(crate) fn find_function(&self, name: &str) -> Option<&'static library::Function> {
        if name == "jsonpatch.escapeKey" && !self.json_patch {
            return None;
        }
        library::function(name)
    }
}
