//! Structural schemas as CEL types and values, without copying them.

use std::sync::Arc;

use cel::{ObjectType, Schema, SchemaType, Type, unescape_identifier};

use crate::structural_schema::{AdditionalProperties, JsonType, ListType, Structural};

/// Returns the CEL type of a schema node; `None` if the node is untyped.
pub fn cel_type(node: &Arc<Structural>, name: &str) -> Option<Type> {
    if node.int_or_string {
        return Some(Type::Dyn);
    }
    Some(match (node.kind, &node.additional_properties) {
        (JsonType::Array, _) => Type::list_of(cel_type(node.items.as_ref()?, &format!("{name}.@idx"))?),
        (JsonType::Object, AdditionalProperties::Schema(inner)) => {
            Type::map_of(Type::String, cel_type(inner, &format!("{name}.@elem"))?)
        }
        (JsonType::Object, _) => Type::object_of(PropertiesType { node: node.clone(), name: name.to_owned() }),
        (JsonType::String, _) => match &*node.value_validation().format {
            "byte" => Type::Bytes,
            "duration" => Type::Duration,
            "date" | "date-time" => Type::Timestamp,
            _ => Type::String,
        },
        (JsonType::Boolean, _) => Type::Bool,
        (JsonType::Number, _) => Type::Double,
        (JsonType::Integer, _) => Type::Int,
        (JsonType::Any, _) => return None,
    })
}

/// Whether a schema node has a CEL type.
pub fn has_cel_type(node: &Structural) -> bool {
    node.int_or_string
        || match (node.kind, &node.additional_properties) {
            (JsonType::Any, _) => false,
            (JsonType::Array, _) => node.items.as_deref().is_some_and(has_cel_type),
            (JsonType::Object, AdditionalProperties::Schema(inner)) => has_cel_type(inner),
            _ => true,
        }
}

/// The CEL object type of a node with properties.
#[derive(Debug)]
struct PropertiesType {
    node: Arc<Structural>,
    name: String,
}

impl ObjectType for PropertiesType {
    fn type_name(&self) -> &str {
        &self.name
    }

    fn field_type(&self, name: &str) -> Option<Type> {
        let plain = unescape_identifier(name)?;
        cel_type(self.node.property(&plain)?, &format!("{}.{name}", self.name))
    }
}

impl Schema for Structural {
    fn schema_type(&self) -> SchemaType {
        if self.int_or_string {
            return SchemaType::IntOrString;
        }
        match (self.kind, &self.additional_properties) {
            (JsonType::Object, AdditionalProperties::Schema(_)) => SchemaType::Map,
            (JsonType::Object, _) if self.properties.is_empty() => SchemaType::Opaque,
            (JsonType::Object, _) => SchemaType::Object,
            (JsonType::Array, _) => match self.list_type {
                ListType::Atomic => SchemaType::List,
                ListType::Set => SchemaType::SetList,
                ListType::Map(..) => SchemaType::MapList,
            },
            (JsonType::String, _) => match &*self.value_validation().format {
                "byte" => SchemaType::Bytes,
                "duration" => SchemaType::Duration,
                "date" => SchemaType::Date,
                "date-time" => SchemaType::DateTime,
                _ => SchemaType::String,
            },
            (JsonType::Boolean, _) => SchemaType::Boolean,
            (JsonType::Number, _) => SchemaType::Number,
            (JsonType::Integer, _) => SchemaType::Integer,
            (JsonType::Any, _) => SchemaType::Unknown,
        }
    }

    fn is_nullable(&self) -> bool {
        self.nullable
    }

    fn property_schema(&self, name: &str) -> Option<&dyn Schema> {
        Structural::property(self, name).map(|node| &**node as &dyn Schema)
    }

    fn element_schema(&self) -> Option<&dyn Schema> {
        match &self.additional_properties {
            AdditionalProperties::Schema(node) => Some(&**node),
            _ => self.items.as_deref().map(|node| node as &dyn Schema),
        }
    }

    fn list_map_keys(&self) -> &[String] {
        match &self.list_type {
            ListType::Map(keys) => keys,
            ListType::Set | ListType::Atomic => &[],
        }
    }
}
