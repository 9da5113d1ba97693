//! Schemas of documents, as CRDs declare them.

use std::fmt;

/// The schema of a part of a document.
pub trait Schema: fmt::Debug + Sync {
    /// Returns the schema type of the part.
    fn schema_type(&self) -> SchemaType;

    /// Whether the part may be `null`.
    fn is_nullable(&self) -> bool {
        false
    }

    /// Returns the schema of a field, by its unescaped name.
    fn property_schema(&self, name: &str) -> Option<&dyn Schema>;

    /// Returns the schema of a list's elements or a map's values.
    fn element_schema(&self) -> Option<&dyn Schema>;

    /// The key fields of a [`SchemaType::MapList`] (`x-kubernetes-list-map-keys`).
    fn list_map_keys(&self) -> &[String] {
        &[]
    }
}

/// The schema type of a part of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaType {
    /// An object with properties, whose names are escaped for expressions.
    Object,
    /// A map with values of one type (`additionalProperties`).
    Map,
    /// An object without declared fields.
    Opaque,
    /// An atomic list.
    List,
    /// A list of type `set`, whose order is irrelevant.
    SetList,
    /// A list of type `map`, whose elements are identified by key fields.
    MapList,
    /// A string.
    String,
    /// A base64 string (`byte`), converted to bytes.
    Bytes,
    /// A `date` string, converted to a timestamp.
    Date,
    /// A `date-time` string, converted to a timestamp.
    DateTime,
    /// A `duration` string, converted to a duration.
    Duration,
    /// A floating-point number.
    Number,
    /// An integer.
    Integer,
    /// A boolean.
    Boolean,
    /// An integer or a string (`x-kubernetes-int-or-string`).
    IntOrString,
    /// A part with unknown fields preserved (`x-kubernetes-preserve-unknown-fields`) and no declared type.
    Unknown,
    /// An untyped part; field names at any depth may be written escaped.
    Open,
}
