//! API types as CEL types, derived lazily from the schema tables.
//!
//! They equal those of upstream's published OpenAPI: quantities and free-form JSON are untyped, so that expressions
//! cannot select them; a recursive type is an object without known fields.

use api::schema::{FieldType, StructField, TypeId, schema};
use cel::{ObjectType, Type, unescape_identifier};

/// Returns the CEL type of a kind's objects; `None` if the kind is unknown.
pub fn type_of_kind(group: &str, version: &str, kind: &str) -> Option<Type> {
    let ty = schema().type_of_kind(group, version, kind)?;
    Some(Type::object_of(StructObjectType { name: kind.to_owned(), ty, within: Vec::new(), whole: true }))
}

/// An API struct at some path of an object.
#[derive(Debug)]
struct StructObjectType {
    /// The kind, followed by the field path.
    name: String,
    ty: TypeId,
    /// The enclosing structs.
    within: Vec<TypeId>,
    /// Whether this is a whole object, with `apiVersion` and `kind`.
    whole: bool,
}

/// An object without known fields.
#[derive(Debug)]
struct OpaqueObjectType(String);

impl ObjectType for OpaqueObjectType {
    fn type_name(&self) -> &str {
        &self.0
    }

    fn field_type(&self, _: &str) -> Option<Type> {
        None
    }
}

impl ObjectType for StructObjectType {
    fn type_name(&self) -> &str {
        &self.name
    }

    fn field_type(&self, name: &str) -> Option<Type> {
        let ty = schema().get(self.ty);
        let unescaped = unescape_identifier(name)?;
        if self.whole && matches!(&*unescaped, "apiVersion" | "kind") {
            return Some(Type::String);
        }
        let field = ty.field(&unescaped)?;
        self.type_of_field(&field.ty, field, &format!("{}.{name}", self.name))
    }
}

impl StructObjectType {
    fn type_of_field(&self, ty: &FieldType, field: &StructField, name: &str) -> Option<Type> {
        Some(match ty {
            FieldType::String | FieldType::Duration => Type::String,
            FieldType::Bool => Type::Bool,
            FieldType::Int32 | FieldType::Int64 => Type::Int,
            FieldType::Double => Type::Double,
            FieldType::Bytes => Type::Bytes,
            FieldType::Time | FieldType::MicroTime => Type::Timestamp,
            FieldType::IntOrString => Type::Dyn,
            FieldType::Quantity => return None,
            FieldType::Raw if matches!(field.type_name, "Raw" | "FieldsV1") => {
                Type::object_of(OpaqueObjectType(name.to_owned()))
            }
            FieldType::Raw => return None,
            FieldType::List(of) => Type::list_of(self.type_of_field(of, field, &format!("{name}.@idx"))?),
            FieldType::Map(of) => Type::map_of(Type::String, self.type_of_field(of, field, &format!("{name}.@elem"))?),
            FieldType::Struct(ty) if *ty == self.ty || self.within.contains(ty) => {
                Type::object_of(OpaqueObjectType(name.to_owned()))
            }
            FieldType::Struct(ty) => {
                let mut within = self.within.clone();
                within.push(self.ty);
                Type::object_of(StructObjectType { name: name.to_owned(), ty: *ty, within, whole: false })
            }
        })
    }
}
