//! The API schema in memory: every type, field and resource, parsed once from `schema/*.txt`.
//!
//! [`schema`] is the entry point of the whole crate. The tables are compiled into the binary; a malformed table is a
//! bug that this module's tests find.

#[cfg(test)]
pub(crate) mod contributing_tests;
mod custom_resource;
mod field_index;
mod resource_table;
mod structural_view;
mod table_gate;
mod type_tables;
mod unserved_versions;

use std::{collections::HashMap, sync::LazyLock};

pub use custom_resource::{CustomResourceSchema, ObjectWrite, PrinterColumn, ResourceRef, intern_name};
pub use resource_table::{Resource, ResourceScope, SelectableField, Subresource, UnknownFieldError};
pub use structural_view::{ChildView, KeyOrigin, StructuralView, TypeView, ViewForm};
pub use table_gate::{GateOpenedTooLate, open_gate};
pub(crate) use unserved_versions::versions_without_resources;

use foldhash::fast::FixedState;

use self::field_index::FieldIndex;
use crate::{Map, Value};

/// All types and resources of the API.
#[derive(Debug)]
pub struct ApiSchema {
    types: Vec<StructType>,
    by_name: HashMap<String, TypeId>,
    resources: Vec<Resource>,
    /// Positions of resources by group, version and plural name.
    by_resource: ResourceIndex,
    /// Positions of the first resource of a group, version and kind.
    by_kind: ResourceIndex,
    gates: Vec<&'static str>,
}

/// Positions in the table of resources. The keys are those of the table, so a fast hash is safe.
type ResourceIndex = HashMap<(&'static str, &'static str, &'static str), usize, FixedState>;

/// The position of a type in the schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TypeId(usize);

impl TypeId {
    /// The position as an index for tables beside the schema.
    pub(crate) fn position(self) -> usize {
        self.0
    }
}

/// A struct type of the API.
#[derive(Debug)]
pub struct StructType {
    /// Package and type name, for example `core/v1.Container`.
    pub name: String,
    /// The fields in table order, with inlined types in place.
    pub fields: Vec<StructField>,
    /// Whether server-side apply treats the struct as one value.
    pub atomic: bool,
    /// The union of fields of which at most one is set.
    pub union: Option<UnionFields>,
    /// Whether objects carry `apiVersion` and `kind` in JSON.
    pub is_kind: bool,
    /// The protobuf fields, by number.
    pub slots: Vec<ProtobufSlot>,
    /// Positions of the fields that JSON has with their zero value when unset.
    pub zero_fields: Vec<usize>,
    index: FieldIndex,
}

/// One field number of a protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtobufSlot {
    /// The field number.
    pub number: u32,
    /// The content.
    pub content: SlotContent,
}

/// The content of a protobuf field number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotContent {
    /// The struct field at this position.
    Field(usize),
    /// A nested message whose fields are inline in JSON.
    Nested(TypeId),
}

/// A union: fields of which at most one is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnionFields {
    /// The discriminator field; empty for a union without one.
    pub discriminator: &'static str,
    /// The member fields.
    pub fields: Vec<&'static str>,
}

/// A field of a struct.
#[derive(Clone, Debug)]
pub struct StructField {
    /// The JSON name.
    pub name: &'static str,
    /// The protobuf number within its message; fields of JSON only have none.
    pub number: Option<u32>,
    /// The shape of an untagged JSON schema value, where the innermost type is [`FieldType::Raw`] and protobuf tags it.
    pub schema_shape: Option<SchemaShape>,
    /// Protobuf wraps the list in a message, with the elements as field 1.
    pub protobuf_wrapped: bool,
    /// Protobuf omits the field when unset; other singular fields are always written.
    pub protobuf_optional: bool,
    /// The type.
    pub ty: FieldType,
    /// The type name in the table, without list or map markers.
    pub type_name: &'static str,
    /// The topology of the table: `atomic`, `set`, `map` or `granular`.
    pub topology: Option<&'static str>,
    /// When JSON has the field.
    pub presence: FieldPresence,
    /// Whether OpenAPI lists it as required.
    pub required: bool,
    /// Whether it is written, as null or zero, even in an object without any field set.
    pub blank: bool,
    /// Whether JSON has null when unset: a pointer without `omitempty`.
    pub nullable: bool,
    /// The list type for server-side apply (`x-kubernetes-list-type`).
    pub list_type: ListType,
    /// The strategic merge patch strategy.
    pub patch_strategy: PatchStrategy,
    /// The value that defaulting sets.
    pub default: Option<Value>,
    /// Whether OpenAPI publishes the default.
    pub publishes_default: bool,
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// A string.
    String,
    /// A boolean.
    Bool,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A floating-point number.
    Double,
    /// Bytes, base64 in JSON.
    Bytes,
    /// A timestamp with seconds, RFC 3339 in JSON.
    Time,
    /// A timestamp with microseconds.
    MicroTime,
    /// A duration such as `1m30s`.
    Duration,
    /// A quantity such as `100m` or `1Gi`.
    Quantity,
    /// An integer or a string.
    IntOrString,
    /// Arbitrary JSON.
    Raw,
    /// A struct of the schema.
    Struct(TypeId),
    /// A list.
    List(Box<FieldType>),
    /// A map with string keys.
    Map(Box<FieldType>),
}

/// An untagged union in JSON around a JSON schema; the type is `JSONSchemaProps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaShape {
    /// A schema or a boolean (`JSONSchemaPropsOrBool`).
    SchemaOrBool(TypeId),
    /// A schema or a list of schemas (`JSONSchemaPropsOrArray`).
    SchemaOrArray(TypeId),
    /// A schema or a list of strings (`JSONSchemaPropsOrStringArray`).
    SchemaOrStrings(TypeId),
}

/// When JSON has a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldPresence {
    /// Unless it is zero (`omitempty`).
    NonZero,
    /// Whenever it is set, zero or not (a pointer, or `omitzero`).
    Pointer,
    /// Always (no `omitempty`).
    Always,
}

/// The list type for server-side apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListType {
    /// One value with one owner.
    Atomic,
    /// A set of scalars.
    Set,
    /// An associative list with these keys.
    Map(Vec<&'static str>),
}

/// The strategic merge patch strategy of a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// Merges lists instead of replacing them: objects by this key, scalars as a set when it is empty.
    pub merge_key: Option<&'static str>,
    /// Keeps only the keys that `$retainKeys` lists.
    pub retain_keys: bool,
    /// Replaces an object as a whole.
    pub replace: bool,
}

#[cfg(not(test))]
static SCHEMA: LazyLock<ApiSchema> =
    LazyLock::new(|| type_tables::parse_schema(type_tables::TYPE_TABLES, resource_table::RESOURCE_TABLE));
#[cfg(test)]
static SCHEMA: LazyLock<ApiSchema> = LazyLock::new(contributing_tests::schema_with_example);

/// The schema of Kubernetes 1.36.
pub fn schema() -> &'static ApiSchema {
    &SCHEMA
}

impl ApiSchema {
    /// Whether a gate was open when the tables were parsed.
    pub fn has_gate(&self, name: &str) -> bool {
        self.gates.contains(&name)
    }

    /// Returns a type by package and name, for example `apps/v1.Deployment`.
    pub fn type_named(&self, name: &str) -> Option<TypeId> {
        self.by_name.get(name).copied()
    }

    /// Returns a type by its position.
    #[inline]
    pub fn get(&self, id: TypeId) -> &StructType {
        &self.types[id.0]
    }

    /// All types, in table order.
    pub fn types(&self) -> impl Iterator<Item = (TypeId, &StructType)> {
        self.types.iter().enumerate().map(|(at, ty)| (TypeId(at), ty))
    }

    /// All resources, in the order of discovery.
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// Returns the type of a kind; kinds such as `Status` and `DeleteOptions` are part of every group.
    pub fn type_of_kind(&self, group: &str, version: &str, kind: &str) -> Option<TypeId> {
        if let Some(resource) = self.resource_of_kind(group, version, kind) {
            return Some(resource.ty);
        }
        let package = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or(group) };
        self.type_named(&format!("{package}/{version}.{kind}")).or_else(|| self.type_named(&format!("meta/v1.{kind}")))
    }

    /// Whether a group-version has kinds, of resources or not.
    pub(crate) fn has_kinds(&self, group: &str, version: &str) -> bool {
        let resources = self.resources.iter().map(|resource| (resource.group, resource.version));
        resources.chain(versions_without_resources()).any(|known| known == (group, version))
    }

    /// Returns the resource of a group-version and plural name; the core group is empty.
    pub fn resource(&self, group: &str, version: &str, name: &str) -> Option<&Resource> {
        self.by_resource.get(&(group, version, name)).map(|&position| &self.resources[position])
    }

    /// Returns the resource of a kind.
    pub fn resource_of_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Resource> {
        self.by_kind.get(&(group, version, kind)).map(|&position| &self.resources[position])
    }
}

impl StructType {
    /// Returns a field by its JSON name.
    #[inline]
    pub fn field(&self, name: &str) -> Option<&StructField> {
        self.field_position(name).map(|at| &self.fields[at])
    }

    /// Returns the position of a field by its JSON name.
    #[inline]
    pub fn field_position(&self, name: &str) -> Option<usize> {
        self.index.find_position(&self.fields, name)
    }

    /// The name without its package.
    pub fn short_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or_default()
    }
}

impl StructField {
    /// The default in OpenAPI: that of the table, or the zero value of a field that is no pointer (structs always,
    /// scalars where JSON always has them).
    pub fn published_default(&self) -> Option<Value> {
        match (&self.default, &self.ty) {
            (Some(default), _) if self.publishes_default => Some(default.clone()),
            _ if self.protobuf_optional => None,
            (_, FieldType::Struct(_)) => Some(Value::Object(Map::new())),
            (_, ty) if self.presence == FieldPresence::Always => ty.zero_value(),
            _ => None,
        }
    }

    /// Whether JSON has the zero value when unset: Go writes struct values even when they are zero and `omitempty`.
    #[inline]
    pub fn writes_zero(&self) -> bool {
        match self.presence {
            FieldPresence::Pointer => self.nullable,
            FieldPresence::Always => true,
            FieldPresence::NonZero => self.ty.is_struct(),
        }
    }
}

impl ProtobufSlot {
    /// The slot after `before` fields were inserted in front.
    fn shifted_by(self, before: usize) -> Self {
        match self.content {
            SlotContent::Field(at) => ProtobufSlot { content: SlotContent::Field(at + before), ..self },
            SlotContent::Nested(_) => self,
        }
    }
}

impl SchemaShape {
    /// The type of the JSON schema.
    pub fn schema(self) -> TypeId {
        let (SchemaShape::SchemaOrBool(id) | SchemaShape::SchemaOrArray(id) | SchemaShape::SchemaOrStrings(id)) = self;
        id
    }
}

impl FieldType {
    /// The default of list and map elements in OpenAPI.
    pub fn zero_value(&self) -> Option<Value> {
        match self {
            FieldType::String => Some("".into()),
            FieldType::Bool => Some(false.into()),
            FieldType::Int32 | FieldType::Int64 | FieldType::Double => Some(0.into()),
            FieldType::Struct(_) => Some(Value::Object(Map::new())),
            _ => None,
        }
    }

    /// Whether the Go type is a struct.
    #[inline]
    pub fn is_struct(&self) -> bool {
        use FieldType::{Duration, IntOrString, MicroTime, Quantity, Raw, Struct, Time};
        matches!(self, Struct(_) | Time | MicroTime | Quantity | IntOrString | Raw | Duration)
    }

    /// The struct type itself, or that of the elements.
    pub fn element_struct(&self) -> Option<TypeId> {
        match self {
            FieldType::Struct(id) => Some(*id),
            FieldType::List(inner) | FieldType::Map(inner) => inner.element_struct(),
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
    fn fields_carry_merge_keys_and_inlined_structs() {
        let container = schema().get(schema().type_named("core/v1.Container").unwrap());
        let ports = container.field("ports").unwrap();
        assert_eq!(ports.patch_strategy.merge_key, Some("containerPort"));
        assert_eq!(ports.list_type, ListType::Map(vec!["containerPort", "protocol"]));
        let reference = schema().get(schema().type_named("core/v1.ConfigMapKeySelector").unwrap());
        assert!(reference.atomic && reference.field("name").is_some(), "inlined fields stand in place");
    }

    #[test]
    fn inlined_structs_are_nested_in_protobuf() {
        let reference = schema().get(schema().type_named("core/v1.ConfigMapKeySelector").unwrap());
        let local = schema().type_named("core/v1.LocalObjectReference").unwrap();
        assert_eq!(reference.slots[0], ProtobufSlot { number: 1, content: SlotContent::Nested(local) });
        let key = reference.slots[1];
        assert_eq!((key.number, reference.field("key").unwrap().number), (2, Some(2)));
        for (_, ty) in schema().types() {
            assert!(ty.slots.is_sorted_by(|a, b| a.number < b.number), "{} has a number twice", ty.name);
            assert!(ty.fields.iter().all(|field| ty.field(field.name).is_some()), "{}", ty.name);
            assert!(ty.fields.len() <= 128, "decoding counts the fields of {} in bits", ty.name);
        }
    }
}
