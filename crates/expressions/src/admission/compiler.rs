//! Compiles the CEL expressions of one policy; each variable is available to the expressions after it.

use std::sync::{Arc, LazyLock};

use cel::{Composition, Environment, ObjectType, Type, TypeResolver};

use super::types::{NAMESPACE, REQUEST};
use crate::compile::{CompileError, CompiledExpr, compile_expression};

/// Indexes of the variables, shared by all admission environments.
pub(super) mod variable_number {
    pub const OBJECT: usize = 0;
    pub const OLD_OBJECT: usize = 1;
    pub const NAMESPACE: usize = 2;
    pub const REQUEST: usize = 3;
    pub const VARIABLES: usize = 4;
    pub const PARAMS: usize = 5;
    pub const AUTHORIZER: usize = 6;
    pub const REQUEST_RESOURCE: usize = 7;
}

/// The optional declarations that an expression may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalVars {
    /// `params`.
    pub params: bool,
    /// `authorizer`.
    pub authorizer: bool,
    /// The types of mutations, `Object{…}` and `JSONPatch{…}`.
    pub patches: bool,
}

/// The environment with all variables, in the order of their indexes.
static BASE_ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    Environment::new()
        .with_variable("object", Type::Dyn)
        .with_variable("oldObject", Type::Dyn)
        .with_variable("namespaceObject", NAMESPACE.cel_type())
        .with_variable("request", REQUEST.cel_type())
        .with_variable("variables", Type::Dyn)
        .with_variable("params", Type::Dyn)
        .with_variable("authorizer", Type::AUTHORIZER)
        .with_variable("authorizer.requestResource", Type::RESOURCE_CHECK)
});

/// The known types of the objects that a policy is type-checked with.
#[derive(Clone, Debug, Default)]
pub struct TypeOverwrites {
    /// Type of `object` and `oldObject`.
    pub object: Option<Type>,
    /// Type of `params`.
    pub params: Option<Type>,
}

/// Compiles expressions that may refer to previously compiled variables.
#[derive(Debug)]
pub struct ExpressionCompiler {
    base: Environment,
    variables: Option<Vec<(String, Type)>>,
}

impl ExpressionCompiler {
    /// Creates a compiler without `variables`, as for match conditions.
    pub fn without_variables() -> Self {
        Self { base: BASE_ENVIRONMENT.clone().without_variable("variables"), variables: None }
    }

    /// Creates a compiler for the expressions of a policy.
    pub fn with_variables() -> Self {
        Self { base: BASE_ENVIRONMENT.clone(), variables: Some(Vec::new()) }
    }

    /// Creates a compiler for the expressions of a policy whose objects have known types.
    pub fn with_types(subject: &TypeOverwrites) -> Self {
        let mut base = BASE_ENVIRONMENT.clone();
        if let Some(object) = &subject.object {
            base = base.with_variable("object", object.clone()).with_variable("oldObject", object.clone());
        }
        if let Some(params) = &subject.params {
            base = base.with_variable("params", params.clone());
        }
        Self { base, variables: Some(Vec::new()) }
    }

    /// Compiles an expression that must evaluate to one of the types `returns`.
    pub fn compile(&self, source: &str, uses: OptionalVars, returns: &[Type]) -> Result<CompiledExpr, CompileError> {
        compile_expression(&self.build_environment(uses), source, returns)
    }

    /// Compiles a variable. Later expressions may use it even if it failed to compile.
    pub fn compile_variable(
        &mut self,
        name: &str,
        source: &str,
        uses: OptionalVars,
    ) -> Result<CompiledExpr, CompileError> {
        let compiled = self.compile(source, uses, &[]);
        let ty = compiled.as_ref().map_or(Type::Dyn, |compiled| declared_type(&compiled.output));
        if let Some(variables) = &mut self.variables {
            variables.retain(|(known, _)| known != name);
            variables.push((name.to_owned(), ty));
        }
        compiled
    }

    /// Compiles variables into a composition, in which expressions look them up.
    pub fn compile_variables<'v>(
        &mut self,
        all: impl Iterator<Item = (&'v str, &'v str)>,
        uses: OptionalVars,
    ) -> Composition {
        let mut composition = Composition::new();
        for (name, source) in all {
            let compiled = self.compile_variable(name, source, uses);
            composition.add_variable(name, compiled.map(|compiled| compiled.program).map_err(|fault| fault.detail));
        }
        composition
    }

    /// Returns the environment that an expression is compiled in.
    pub fn build_environment(&self, uses: OptionalVars) -> Environment {
        let mut environment = self.base.clone();
        if let Some(variables) = &self.variables {
            environment = environment.with_variable("variables", Type::object_of(VariablesType(variables.clone())));
        }
        if !uses.params {
            environment = environment.without_variable("params");
        }
        if !uses.authorizer {
            environment = environment.without_variable("authorizer").without_variable("authorizer.requestResource");
        }
        if uses.patches {
            environment = environment.with_types(Arc::new(PatchTypeResolver)).with_json_patch_library();
        }
        environment
    }
}

/// Returns the declared type of a variable: primitive types and lists and maps of them are kept, others become `dyn`.
fn declared_type(ty: &Type) -> Type {
    match ty {
        Type::List(of) => Type::list_of(declared_type(of)),
        Type::Map(of) => Type::map_of(declared_type(&of.0), declared_type(&of.1)),
        Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => ty.clone(),
        _ => Type::Dyn,
    }
}

/// The type of `variables`.
#[derive(Debug)]
struct VariablesType(Vec<(String, Type)>);

impl ObjectType for VariablesType {
    fn type_name(&self) -> &str {
        "kubernetes.variables"
    }

    fn field_type(&self, name: &str) -> Option<Type> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, ty)| ty.clone())
    }
}

/// Resolves the types that mutations construct.
struct PatchTypeResolver;

impl TypeResolver for PatchTypeResolver {
    fn resolve_type(&self, name: &str) -> Option<Arc<dyn ObjectType>> {
        let object = name == "Object" || name.starts_with("Object.");
        (object || name == "JSONPatch").then(|| Arc::new(PatchObjectType(name.to_owned())) as Arc<dyn ObjectType>)
    }
}

/// The type of an apply configuration, of a field of one, or of a JSON patch operation.
#[derive(Debug)]
pub(super) struct PatchObjectType(pub String);

impl ObjectType for PatchObjectType {
    fn type_name(&self) -> &str {
        &self.0
    }

    fn field_type(&self, name: &str) -> Option<Type> {
        match (self.0.as_str(), name) {
            ("JSONPatch", "op" | "path" | "from") => Some(Type::String),
            ("JSONPatch", "value") => Some(Type::Dyn),
            ("JSONPatch", _) => None,
            _ => Some(Type::Dyn),
        }
    }

    fn is_constructible(&self) -> bool {
        true
    }
}
