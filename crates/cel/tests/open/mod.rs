//! Constructible object types, as in mutating admission policies.

use std::sync::Arc;

use ferry_cel::{ObjectType, Type, TypeResolver};

/// An object type whose fields `spec` and `metadata` are objects and whose other fields are `dyn`.
#[derive(Debug)]
struct OpenObjectType(String);

impl ObjectType for OpenObjectType {
    fn type_name(&self) -> &str {
        &self.0
    }

    fn field_type(&self, name: &str) -> Option<Type> {
        match name {
            "spec" | "metadata" => Some(Type::object_of(OpenObjectType(format!("{}.{name}", self.0)))),
            "op" => Some(Type::String),
            _ => Some(Type::Dyn),
        }
    }

    fn is_constructible(&self) -> bool {
        true
    }
}

/// Resolves `JSONPatch`, `Object` and `Object.…`.
pub struct OpenTypeResolver;

impl TypeResolver for OpenTypeResolver {
    fn resolve_type(&self, name: &str) -> Option<Arc<dyn ObjectType>> {
        let known = name == "JSONPatch" || name == "Object" || name.starts_with("Object.");
        known.then(|| Arc::new(OpenObjectType(name.into())) as Arc<dyn ObjectType>)
    }
}
