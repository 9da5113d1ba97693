//! Custom resources as [`Resource`]s that are created at run time, with their schema behind a trait.
//!
//! [`CustomResourceSchema`] is all that this crate knows of such a schema; decoding, defaulting, validation, apply, tables and
//! conversion call it where they read the tables for a built-in resource.

use std::{
    any::Any,
    borrow::Cow,
    collections::HashSet,
    fmt,
    ops::Deref,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use jiff::Timestamp;

use super::{Resource, structural_view::StructuralView};
use crate::{Value, field_error::FieldError};

/// The schema of one version of a custom resource.
pub trait CustomResourceSchema: fmt::Debug + Send + Sync + 'static {
    /// Drops undeclared fields and returns their paths, sorted. Top-level metadata is left alone.
    fn prune_unknown_fields(&self, object: &mut Value) -> Result<Vec<String>, FieldError>;

    /// Applies the defaults of the schema.
    fn default(&self, object: &mut Value);

    /// Returns the structural view for server-side apply in a version such as `example.com/v1`; `None` for an unknown
    /// version.
    fn structural_view(&self, api_version: &str) -> Option<&dyn StructuralView>;

    /// Returns the object with another `apiVersion` and no other change; `None` for an unknown version.
    fn with_api_version<'v>(&self, object: &'v Value, api_version: &str) -> Option<Cow<'v, Value>>;

    /// Whether versions differ in their names only, so that no conversion is needed.
    fn has_identical_versions(&self) -> bool;

    /// Returns a stored object in this version, pruned and defaulted by the current schema.
    fn upgrade_stored(&self, object: Value) -> Value;

    /// Validates an object apart from its metadata.
    fn validate_write(&self, change: ObjectWrite<'_>) -> Vec<FieldError>;

    /// The printer columns of tables.
    fn printer_columns(&self) -> Vec<PrinterColumn>;

    /// The cells of an object's table row.
    fn table_cells(&self, object: &Value, now: Timestamp) -> Vec<Value>;

    /// The kind of lists.
    fn list_kind(&self) -> &str;

    /// The deprecation warning for users of this version.
    fn deprecation_warning(&self) -> Option<String>;

    /// Downcast hook for the crate that implements the trait.
    fn as_any(&self) -> &dyn Any;
}

/// An object about to be written.
#[derive(Clone, Copy, Debug)]
pub struct ObjectWrite<'a> {
    /// The object.
    pub object: &'a Value,
    /// The stored object; `None` on create.
    pub old: Option<&'a Value>,
    /// The subresource of the request; empty for the object itself.
    pub subresource: &'a str,
}

/// A printer column of a custom resource, as in `additionalPrinterColumns`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrinterColumn {
    /// The column header.
    pub name: String,
    /// The OpenAPI type: `string`, `integer`, `date`, …
    pub ty: String,
    /// The OpenAPI format, a display hint.
    pub format: String,
    /// The description of the column.
    pub description: String,
    /// Columns with a priority above zero are shown in wide output only.
    pub priority: i64,
}

/// A resource of the API: built in, or created from a CRD. Cheap to clone.
#[derive(Clone, Debug)]
pub enum ResourceRef {
    /// A resource of the tables.
    BuiltIn(&'static Resource),
    /// A custom resource, shared by its users.
    Custom(Arc<Resource>),
}

impl Deref for ResourceRef {
    type Target = Resource;

    #[inline]
    fn deref(&self) -> &Resource {
        match self {
            ResourceRef::BuiltIn(resource) => resource,
            ResourceRef::Custom(resource) => resource,
        }
    }
}

impl From<&'static Resource> for ResourceRef {
    fn from(resource: &'static Resource) -> Self {
        ResourceRef::BuiltIn(resource)
    }
}

/// Returns the interned copy of a name. API names are few and recur, so they are never freed.
pub fn intern_name(name: &str) -> &'static str {
    static NAMES: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_interned_once() {
        let (first, again) = (intern_name(&String::from("boats")), intern_name(&String::from("boats")));
        assert_eq!(first.as_ptr(), again.as_ptr());
    }
}
