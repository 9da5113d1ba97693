//! The tables in memory: every type, field and resource of the API, parsed once from `schema/*.txt`.
//!
//! [`schema`] is what everything else in this crate reads. The tables are part of the binary; a fault in them is a fault of
//! the program and found by this module's tests.

mod custom;
#[cfg(test)]
pub(crate) mod example;
mod gate;
mod index;
mod old_versions;
mod parse;
mod resources;

use std::{collections::HashMap, sync::LazyLock};

pub use custom::{Change, Column, Custom, Row, interned};
pub use gate::{TooLate, open_gate};
pub(crate) use old_versions::without_resources;
pub use resources::{Resource, Scope, SelectableField, Subresource, UnknownField};

use self::index::Index;
use crate::{Map, Value};

/// The whole API.
#[derive(Debug)]
pub struct Schema {
    types: Vec<Type>,
    by_name: HashMap<String, TypeId>,
    resources: Vec<Resource>,
    gates: Vec<&'static str>,
}

/// The position of a type in the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId(usize);

impl TypeId {
    /// The position as a number, for tables beside the schema.
    pub(crate) fn position(self) -> usize {
        self.0
    }
}

/// A struct of the API.
#[derive(Debug)]
pub struct Type {
    /// Package and name, for example `core/v1.Container`.
    pub name: String,
    /// In the order of the table, with inlined types in place.
    pub fields: Vec<Field>,
    /// Server-side apply treats the whole struct as one value.
    pub atomic: bool,
    /// At most one of some fields is meant to be set.
    pub union: Option<Union>,
    /// Objects of it say their `apiVersion` and `kind` in JSON.
    pub kind: bool,
    /// What protobuf has, by number.
    pub slots: Vec<Slot>,
    /// Positions of the fields that stand in JSON as their zero when they are not set.
    pub zeros: Vec<usize>,
    index: Index,
}

/// One number of a struct in protobuf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The number.
    pub number: u32,
    /// What it carries.
    pub part: Part,
}

/// What a number of a struct carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The field at this position.
    Field(usize),
    /// A message of this type, whose fields JSON has inline.
    Nested(TypeId),
}

/// Fields of which one is meant to be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Union {
    /// The field that says which; empty where none does.
    pub discriminator: &'static str,
    /// The fields.
    pub fields: Vec<&'static str>,
}

/// One field of a struct.
#[derive(Clone, Debug)]
pub struct Field {
    /// The name in JSON.
    pub name: &'static str,
    /// The number in protobuf, within the message that has it; JSON alone has fields without one.
    pub number: Option<u32>,
    /// Which of several shapes the innermost [`Ty::Raw`] of the type may have, where protobuf tells them apart.
    pub shapes: Option<Shapes>,
    /// Protobuf has the list in a message of its own, with the elements as field 1.
    pub wrapped: bool,
    /// Protobuf leaves it out when it is not set; other single fields are always written there.
    pub optional: bool,
    /// The type.
    pub ty: Ty,
    /// The name of the type in the table, without what makes it a list or a map.
    pub type_name: &'static str,
    /// How the table says it is merged: `atomic`, `set`, `map` or `granular`.
    pub topology: Option<&'static str>,
    /// When the field is written.
    pub presence: Presence,
    /// OpenAPI lists it as required.
    pub required: bool,
    /// It is written, as nothing, even in an object in which nothing is set.
    pub blank: bool,
    /// How a list is merged by server-side apply.
    pub list: ListKind,
    /// How a strategic merge patch changes it.
    pub patch: PatchRule,
    /// What it is when a client leaves it out.
    pub default: Option<Value>,
    /// Schemas name the default.
    pub published: bool,
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

/// A value of several shapes, in JSON without a tag; the type is that of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shapes {
    /// A schema, or whether anything is allowed.
    SchemaOrBool(TypeId),
    /// A schema or a list of them.
    SchemaOrArray(TypeId),
    /// A schema or a list of texts.
    SchemaOrStrings(TypeId),
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

#[cfg(not(test))]
static SCHEMA: LazyLock<Schema> = LazyLock::new(|| parse::load(parse::TYPES, resources::TABLE));
#[cfg(test)]
static SCHEMA: LazyLock<Schema> = LazyLock::new(example::schema);

/// The schema of Kubernetes 1.36.
pub fn schema() -> &'static Schema {
    &SCHEMA
}

impl Schema {
    /// Whether it has what is behind a gate.
    pub fn has_gate(&self, name: &str) -> bool {
        self.gates.contains(&name)
    }

    /// A type by package and name, for example `apps/v1.Deployment`.
    pub fn type_named(&self, name: &str) -> Option<TypeId> {
        self.by_name.get(name).copied()
    }

    /// A type by its position.
    #[inline]
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

    /// The type of a kind; kinds such as `Status` and `DeleteOptions` are in every group.
    pub fn type_of_kind(&self, group: &str, version: &str, kind: &str) -> Option<TypeId> {
        let package = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or(group) };
        self.type_named(&format!("{package}/{version}.{kind}")).or_else(|| self.type_named(&format!("meta/v1.{kind}")))
    }

    /// Whether a group-version has kinds, be they of resources or not.
    pub(crate) fn has_kinds(&self, group: &str, version: &str) -> bool {
        let resources = self.resources.iter().map(|resource| (resource.group, resource.version));
        resources.chain(without_resources()).any(|known| known == (group, version))
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
    #[inline]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.position(name).map(|at| &self.fields[at])
    }

    /// The position of a field by its JSON name.
    #[inline]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.index.find(&self.fields, name)
    }

    /// The name without its package.
    pub fn short_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or_default()
    }
}

impl Field {
    /// The default that schemas publish: what the table says, or what a field that is no pointer holds when nothing is given,
    /// structs always, scalars where they are always written.
    pub fn published_default(&self) -> Option<Value> {
        match (&self.default, &self.ty) {
            (Some(default), _) if self.published => Some(default.clone()),
            _ if self.optional => None,
            (_, Ty::Struct(_)) => Some(Value::Object(Map::new())),
            (_, ty) if self.presence == Presence::Always => ty.zero(),
            _ => None,
        }
    }

    /// Whether it stands in JSON as its zero when it is not set: Go writes structs even when they are zero and "omitempty".
    #[inline]
    pub fn shows_zero(&self) -> bool {
        match self.presence {
            Presence::Pointer => false,
            Presence::Always => true,
            Presence::NonZero => self.ty.is_struct(),
        }
    }
}

impl Slot {
    /// The same slot in a struct in which fields stand before.
    fn moved(self, before: usize) -> Self {
        match self.part {
            Part::Field(at) => Slot { part: Part::Field(at + before), ..self },
            Part::Nested(_) => self,
        }
    }
}

impl Ty {
    /// What schemas say that an element is when nothing is given.
    pub fn zero(&self) -> Option<Value> {
        match self {
            Ty::String => Some("".into()),
            Ty::Bool => Some(false.into()),
            Ty::Int32 | Ty::Int64 | Ty::Double => Some(0.into()),
            Ty::Struct(_) => Some(Value::Object(Map::new())),
            _ => None,
        }
    }

    /// Whether Go has a struct for it.
    #[inline]
    pub fn is_struct(&self) -> bool {
        use Ty::{Duration, IntOrString, MicroTime, Quantity, Raw, Struct, Time};
        matches!(self, Struct(_) | Time | MicroTime | Quantity | IntOrString | Raw | Duration)
    }

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
        // One more than Kubernetes has: the example.
        assert_eq!(schema().resources().len(), 96);
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

    #[test]
    fn protobuf_nests_what_json_inlines() {
        let reference = schema().get(schema().type_named("core/v1.ConfigMapKeySelector").unwrap());
        let local = schema().type_named("core/v1.LocalObjectReference").unwrap();
        assert_eq!(reference.slots[0], Slot { number: 1, part: Part::Nested(local) });
        let key = reference.slots[1];
        assert_eq!((key.number, reference.field("key").unwrap().number), (2, Some(2)));
        for (_, ty) in schema().types() {
            assert!(ty.slots.is_sorted_by(|a, b| a.number < b.number), "{} has a number twice", ty.name);
            assert!(ty.fields.iter().all(|field| ty.field(field.name).is_some()), "{}", ty.name);
            assert!(ty.fields.len() <= 128, "decoding counts the fields of {} in bits", ty.name);
        }
    }
}
