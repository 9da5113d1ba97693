//! CEL object types with constant fields, for types that exist only in expressions.

use cel::{ObjectType, Type};

/// An object type with constant fields.
#[derive(Debug)]
pub struct RecordType {
    /// The type's name.
    pub name: &'static str,
    /// The fields' names and types.
    pub fields: &'static [(&'static str, RecordFieldType)],
}

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub enum RecordFieldType {
    /// A string.
    Text,
    /// A boolean.
    Bool,
    /// An integer.
    Int,
    /// A timestamp.
    Time,
    /// Any value (`dyn`).
    Any,
    /// A list of strings.
    Texts,
    /// A map of strings.
    TextMap,
    /// A map of string lists.
    TextLists,
    /// Another record.
    Record(&'static RecordType),
    /// A list of records.
    Records(&'static RecordType),
}

impl RecordFieldType {
    fn cel_type(self) -> Type {
        match self {
            Self::Text => Type::String,
            Self::Bool => Type::Bool,
            Self::Int => Type::Int,
            Self::Time => Type::Timestamp,
            Self::Any => Type::Dyn,
            Self::Texts => Type::list_of(Type::String),
            Self::TextMap => Type::map_of(Type::String, Type::String),
            Self::TextLists => Type::map_of(Type::String, Type::list_of(Type::String)),
            Self::Record(record) => record.cel_type(),
            Self::Records(record) => Type::list_of(record.cel_type()),
        }
    }
}

impl RecordType {
    /// Returns the CEL type.
    pub fn cel_type(&'static self) -> Type {
        Type::object_of(RecordObjectType(self))
    }
}

#[derive(Debug)]
struct RecordObjectType(&'static RecordType);

impl ObjectType for RecordObjectType {
    fn type_name(&self) -> &str {
        self.0.name
    }

    fn field_type(&self, name: &str) -> Option<Type> {
        self.0.fields.iter().find(|(known, _)| *known == name).map(|(_, kind)| kind.cel_type())
    }
}
