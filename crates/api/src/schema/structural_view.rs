//! The view of a schema that server-side apply has: built-in types, structural schemas of CRDs and untyped content.

use std::fmt;

use super::{FieldType, StructType};
use crate::Value;

/// The schema of a part of an object.
#[derive(Clone, Copy, Debug)]
pub struct TypeView<'a> {
    /// The structure of the part.
    pub form: ViewForm<'a>,
    /// Whether it is owned as a whole.
    pub atomic: bool,
}

/// The structure of a part of an object.
#[derive(Clone, Copy, Debug)]
pub enum ViewForm<'a> {
    /// A scalar: string, number, time, …
    Scalar(&'a FieldType),
    /// Arbitrary JSON.
    Any,
    /// A struct.
    Struct(&'a StructType),
    /// A map with values of one type.
    Map(&'a FieldType),
    /// An associative list with these keys; a set if there are none.
    List(&'a FieldType, &'a [&'static str]),
    /// Fields or keys described by a structural schema.
    Fields(&'a dyn StructuralView),
    /// List items described by a structural schema.
    Items(&'a dyn StructuralView),
    /// Untyped content: keys of objects are owned separately, everything else is atomic.
    Deduced,
}

/// A part of an object described by a structural schema of a CRD.
pub trait StructuralView: fmt::Debug + Sync {
    /// The view of the part.
    fn type_view(&self) -> TypeView<'_>;

    /// The view of a key; `None` for an undeclared field.
    fn child_view(&self, name: &str) -> Option<ChildView<'_>>;

    /// The view of list items.
    fn item_view(&self) -> TypeView<'_>;

    /// The keys of an associative list.
    fn key_fields(&self) -> &[String];

    /// The default of a key field that an item omits.
    fn key_default(&self, key: &str) -> Option<Value>;
}

/// The view of a key.
#[derive(Clone, Copy, Debug)]
pub struct ChildView<'a> {
    /// The view.
    pub view: TypeView<'a>,
    /// The origin of the key.
    pub key_origin: KeyOrigin,
}

/// The origin of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrigin {
    /// A map key chosen by the author of the object.
    UserDefined,
    /// A field of a structural schema.
    SchemaField,
    /// A field of a struct in the tables.
    TableField(&'static str),
}
