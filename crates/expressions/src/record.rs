//! CEL object types with constant fields, for types that exist only in expressions.

use cel::{ObjectType, Type};

/// An object type with constant fields.
#[derive(Debug)]
pub struct Record {
    /// The type's name.
    pub name: &'static str,
    /// The fields' names and types.
    pub fields: &'static [(&'static str, Kind)],
}

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
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
    Record(&'static Record),
    /// A list of records.
    Records(&'static Record),
}

impl Kind {
    fn ty(self) -> Type {
        match self {
            Self::Text => Type::String,
            Self::Bool => Type::Bool,
            Self::Int => Type::Int,
            Self::Time => Type::Timestamp,
            Self::Any => Type::Dyn,
            Self::Texts => Type::list_of(Type::String),
            Self::TextMap => Type::map_of(Type::String, Type::String),
            Self::TextLists => Type::map_of(Type::String, Type::list_of(Type::String)),
            Self::Record(record) => record.ty(),
            Self::Records(record) => Type::list_of(record.ty()),
        }
    }
}

impl Record {
    /// Returns the CEL type.
    pub fn ty(&'static self) -> Type {
        Type::object_of(Of(self))
    }
}

#[derive(Debug)]
struct Of(&'static Record);

impl ObjectType for Of {
    fn type_name(&self) -> &str {
        self.0.name
    }

    fn field_type(&self, name: &str) -> Option<Type> {
        self.0.fields.iter().find(|(known, _)| *known == name).map(|(_, kind)| kind.ty())
    }
}
