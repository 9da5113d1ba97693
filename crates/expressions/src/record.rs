//! Types that are known here and nowhere else: a name and some fields, as constants.

use cel::{ObjectType, Type};

/// A type with a few fields.
#[derive(Debug)]
pub struct Record {
    /// Its name.
    pub name: &'static str,
    /// Its fields.
    pub fields: &'static [(&'static str, Kind)],
}

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Text.
    Text,
    /// Truth.
    Bool,
    /// A whole number.
    Int,
    /// A point in time.
    Time,
    /// Anything.
    Any,
    /// A list of texts.
    Texts,
    /// Texts by name.
    TextMap,
    /// Lists of texts by name.
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
            Self::Texts => Type::list(Type::String),
            Self::TextMap => Type::map(Type::String, Type::String),
            Self::TextLists => Type::map(Type::String, Type::list(Type::String)),
            Self::Record(record) => record.ty(),
            Self::Records(record) => Type::list(record.ty()),
        }
    }
}

impl Record {
    /// As a type of CEL.
    pub fn ty(&'static self) -> Type {
        Type::object(Of(self))
    }
}

#[derive(Debug)]
struct Of(&'static Record);

impl ObjectType for Of {
    fn name(&self) -> &str {
        self.0.name
    }

    fn field(&self, name: &str) -> Option<Type> {
        self.0.fields.iter().find(|(known, _)| *known == name).map(|(_, kind)| kind.ty())
    }
}
