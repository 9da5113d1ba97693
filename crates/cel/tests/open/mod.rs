//! Types that may be created, as mutations have them.

use std::sync::Arc;

use ferry_cel::{ObjectType, Type, TypeResolver};

/// Every field of `Object.a` is an `Object.a.b` or anything.
#[derive(Debug)]
struct Open(String);

impl ObjectType for Open {
    fn name(&self) -> &str {
        &self.0
    }

    fn field(&self, name: &str) -> Option<Type> {
        match name {
            "spec" | "metadata" => Some(Type::object(Open(format!("{}.{name}", self.0)))),
            "op" => Some(Type::String),
            _ => Some(Type::Dyn),
        }
    }

    fn creatable(&self) -> bool {
        true
    }
}

/// Finds them.
pub struct Types;

impl TypeResolver for Types {
    fn find(&self, name: &str) -> Option<Arc<dyn ObjectType>> {
        let known = name == "JSONPatch" || name == "Object" || name.starts_with("Object.");
        known.then(|| Arc::new(Open(name.into())) as Arc<dyn ObjectType>)
    }
}
