//! Structural schemas as CEL types and values, without copying them.

use std::sync::Arc;

use cel::{ObjectType, Schema, SchemaType, Type, unescape_identifier};

use crate::schema::{Kind, ListKind, Node, Others};

/// Returns the CEL type of a schema node; `None` if the node is untyped.
pub fn of(node: &Arc<Node>, name: &str) -> Option<Type> {
    if node.int_or_string {
        return Some(Type::Dyn);
    }
    Some(match (node.kind, &node.others) {
        (Kind::Array, _) => Type::list_of(of(node.items.as_ref()?, &format!("{name}.@idx"))?),
        (Kind::Object, Others::Node(inner)) => Type::map_of(Type::String, of(inner, &format!("{name}.@elem"))?),
        (Kind::Object, _) => Type::object_of(Fields { node: node.clone(), name: name.to_owned() }),
        (Kind::String, _) => match &*node.bounds().format {
            "byte" => Type::Bytes,
            "duration" => Type::Duration,
            "date" | "date-time" => Type::Timestamp,
            _ => Type::String,
        },
        (Kind::Boolean, _) => Type::Bool,
        (Kind::Number, _) => Type::Double,
        (Kind::Integer, _) => Type::Int,
        (Kind::Any, _) => return None,
    })
}

/// Whether a schema node has a CEL type.
pub fn is_typed(node: &Node) -> bool {
    node.int_or_string
        || match (node.kind, &node.others) {
            (Kind::Any, _) => false,
            (Kind::Array, _) => node.items.as_deref().is_some_and(is_typed),
            (Kind::Object, Others::Node(inner)) => is_typed(inner),
            _ => true,
        }
}

/// The CEL object type of a node with properties.
#[derive(Debug)]
struct Fields {
    node: Arc<Node>,
    name: String,
}

impl ObjectType for Fields {
    fn type_name(&self) -> &str {
        &self.name
    }

    fn field_type(&self, name: &str) -> Option<Type> {
        let plain = unescape_identifier(name)?;
        of(self.node.property(&plain)?, &format!("{}.{name}", self.name))
    }
}

impl Schema for Node {
    fn schema_type(&self) -> SchemaType {
        if self.int_or_string {
            return SchemaType::IntOrString;
        }
        match (self.kind, &self.others) {
            (Kind::Object, Others::Node(_)) => SchemaType::Map,
            (Kind::Object, _) if self.properties.is_empty() => SchemaType::Opaque,
            (Kind::Object, _) => SchemaType::Object,
            (Kind::Array, _) => match self.list {
                ListKind::Atomic => SchemaType::List,
                ListKind::Set => SchemaType::SetList,
                ListKind::Map(..) => SchemaType::MapList,
            },
            (Kind::String, _) => match &*self.bounds().format {
                "byte" => SchemaType::Bytes,
                "duration" => SchemaType::Duration,
                "date" => SchemaType::Date,
                "date-time" => SchemaType::DateTime,
                _ => SchemaType::String,
            },
            (Kind::Boolean, _) => SchemaType::Boolean,
            (Kind::Number, _) => SchemaType::Number,
            (Kind::Integer, _) => SchemaType::Integer,
            (Kind::Any, _) => SchemaType::Unknown,
        }
    }

    fn is_nullable(&self) -> bool {
        self.nullable
    }

    fn property_schema(&self, name: &str) -> Option<&dyn Schema> {
        Node::property(self, name).map(|node| &**node as &dyn Schema)
    }

    fn element_schema(&self) -> Option<&dyn Schema> {
        match &self.others {
            Others::Node(node) => Some(&**node),
            _ => self.items.as_deref().map(|node| node as &dyn Schema),
        }
    }

    fn list_map_keys(&self) -> &[String] {
        match &self.list {
            ListKind::Map(keys) => keys,
            ListKind::Set | ListKind::Atomic => &[],
        }
    }
}
