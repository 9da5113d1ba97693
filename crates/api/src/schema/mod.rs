//! The tables in memory: every type, field and resource of the API, parsed once from `schema/*.txt`.
//!
//! [`schema`] is what everything else in this crate reads. The tables are part of the binary; a fault in them is a fault of
//! the program and found by this module's tests.

mod parse;
mod resources;

use std::{collections::HashMap, sync::LazyLock};

pub use resources::{Resource, Scope, Subresource};

use crate::Value;

/// The whole API.
#[derive(Debug)]
pub struct Schema {
    types: Vec<Type>,
    by_name: HashMap<String, TypeId>,
    resources: Vec<Resource>,
}

/// The position of a type in the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId(usize);

/// A struct of the API.
#[derive(Debug)]
pub struct Type {
    /// Package and name, for example `core/v1.Container`.
    pub name: String,
    /// In the order of the table, with inlined types in place.
    pub fields: Vec<Field>,
    /// Server-side apply treats the whole struct as one value.
    pub atomic: bool,
}

/// One field of a struct.
#[derive(Clone, Debug)]
pub struct Field {
    /// The name in JSON.
    pub name: &'static str,
    /// The type.
    pub ty: Ty,
    /// When the field is written.
    pub presence: Presence,
    /// OpenAPI lists it as required.
    pub required: bool,
    /// How a list is merged by server-side apply.
    pub list: ListKind,
    /// How a strategic merge patch changes it.
    pub patch: PatchRule,
    /// What it is when a client leaves it out.
    pub default: Option<Value>,
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ty {
    /// Text.
    String,
    /// True or false.
    Bool,
    /// A number of 32 bits.
    Int32,
    /// A number of 64 bits.
    Int64,
    /// A floating-point number.
    Double,
    /// Bytes, base64 in JSON.
    Bytes,
    /// A time in seconds, RFC 3339 in JSON.
    Time,
    /// A time in microseconds.
    MicroTime,
    /// A duration such as `1m30s`.
    Duration,
    /// A quantity such as `100m` or `1Gi`.
    Quantity,
    /// A number or a text.
    IntOrString,
    /// Any JSON.
    Raw,
    /// A struct of the schema.
    Struct(TypeId),
    /// A list.
    List(Box<Ty>),
    /// A map with text as keys.
    Map(Box<Ty>),
}

/// When a field is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Unless it is zero.
    NonZero,
    /// Whenever it is set, zero or not.
    Pointer,
    /// Always.
    Always,
}

/// How server-side apply sees a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// As one value.
    Atomic,
    /// As a set of scalars.
    Set,
    /// As a map by these fields.
    Map(Vec<&'static str>),
}

/// How a strategic merge patch changes a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchRule {
    /// Lists are merged, not replaced; objects by this field, scalars as a set when it is empty.
    pub merge_key: Option<&'static str>,
    /// Only the keys that `$retainKeys` lists are kept.
    pub retain_keys: bool,
    /// An object is replaced as a whole.
    pub replace: bool,
}

static SCHEMA: LazyLock<Schema> = LazyLock::new(parse::load);

/// The schema of Kubernetes 1.36.
pub fn schema() -> &'static Schema {
    &SCHEMA
}

impl Schema {
    /// A type by package and name, for example `apps/v1.Deployment`.
    pub fn type_named(&self, name: &str) -> Option<TypeId> {
        self.by_name.get(name).copied()
    }

    /// A type by its position.
    pub fn get(&self, id: TypeId) -> &Type {
        &self.types[id.0]
    }

    /// All types, in no useful order.
    pub fn types(&self) -> impl Iterator<Item = (TypeId, &Type)> {
        self.types.iter().enumerate().map(|(at, ty)| (TypeId(at), ty))
    }

    /// All resources, in the order in which groups and versions are discovered.
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// The resource at a path such as `apps`, `v1`, `deployments`; the core group is empty.
    pub fn resource(&self, group: &str, version: &str, name: &str) -> Option<&Resource> {
        self.resources.iter().find(|r| r.name == name && r.group == group && r.version == version)
    }

    /// The resource whose objects are of a kind.
    pub fn resource_of_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Resource> {
        self.resources.iter().find(|r| r.kind == kind && r.group == group && r.version == version)
    }
}

impl Type {
    /// A field by its JSON name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl Ty {
    /// The struct that this is or that its elements are.
    pub fn element_struct(&self) -> Option<TypeId> {
        match self {
            Ty::Struct(id) => Some(*id),
            Ty::List(inner) | Ty::Map(inner) => inner.element_struct(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_has_a_type_and_every_name_resolves() {
        assert_eq!(schema().resources().len(), 95);
        for resource in schema().resources() {
            let ty = schema().get(resource.ty);
            assert!(ty.field("metadata").is_some(), "{}", ty.name);
        }
    }

    #[test]
    fn fields_carry_what_the_tables_say() {
        let container = schema().get(schema().type_named("core/v1.Container").unwrap());
        let ports = container.field("ports").unwrap();
        assert_eq!(ports.patch.merge_key, Some("containerPort"));
        assert_eq!(ports.list, ListKind::Map(vec!["containerPort", "protocol"]));
        let reference = schema().get(schema().type_named("core/v1.ConfigMapKeySelector").unwrap());
        assert!(reference.atomic && reference.field("name").is_some(), "inlined fields stand in place");
    }
}
