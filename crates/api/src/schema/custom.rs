//! Rows that are made at run time, from the definitions of custom resources: the same [`Resource`], whose schema is known to
//! somebody else.
//!
//! [`Custom`] is all that this crate knows of such a schema; decoding, defaults, validation, apply, tables and conversion
//! ask it where they would read the tables for a built-in row.

use std::{
    any::Any,
    borrow::Cow,
    collections::HashSet,
    fmt,
    ops::Deref,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use jiff::Timestamp;

use super::Resource;
use crate::{Value, apply::Structure, validate::FieldError};

/// What is particular to the rows of a definition: one version of a custom resource.
pub trait Custom: fmt::Debug + Send + Sync + 'static {
    /// Drops what the schema does not know, and gives the paths of that, sorted. Metadata is left alone at the top.
    fn prune(&self, object: &mut Value) -> Result<Vec<String>, FieldError>;

    /// Fills in what the schema says.
    fn default(&self, object: &mut Value);

    /// How apply sees an object of a version, such as `example.com/v1`; `None` if there is no such version.
    fn structure(&self, api_version: &str) -> Option<&dyn Structure>;

    /// An object in another version, by name alone; `None` if there is no such version.
    fn renamed<'v>(&self, object: &'v Value, api_version: &str) -> Option<Cow<'v, Value>>;

    /// Whether versions differ in nothing but their names.
    fn is_only_renamed(&self) -> bool;

    /// A stored object in this version, with what the schemas say about it by now.
    fn read(&self, object: Value) -> Value;

    /// What is wrong with an object, besides its metadata.
    fn faults(&self, change: Change<'_>) -> Vec<FieldError>;

    /// What stands in a table.
    fn columns(&self) -> Vec<Column>;

    /// What stands in the row of an object.
    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value>;

    /// The kind of lists.
    fn list_kind(&self) -> &str;

    /// What is told whoever uses this version.
    fn deprecation(&self) -> Option<String>;

    /// For who made it.
    fn any(&self) -> &dyn Any;
}

/// An object that is to be written.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The object.
    pub object: &'a Value,
    /// What is there; `None`: nothing.
    pub old: Option<&'a Value>,
    /// Through which part of its path; empty: through the whole.
    pub subresource: &'a str,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// What stands above it.
    pub name: String,
    /// `string`, `integer`, `date`, …
    pub ty: String,
    /// A hint how to show it.
    pub format: String,
    /// What it means.
    pub description: String,
    /// Shown only to who wants more, where it is not zero.
    pub priority: i64,
}

/// A row of the API: built in, or made from a definition. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Row {
    /// A row of the tables.
    BuiltIn(&'static Resource),
    /// A row that exists as long as somebody uses it.
    Custom(Arc<Resource>),
}

impl Deref for Row {
    type Target = Resource;

    #[inline]
    fn deref(&self) -> &Resource {
        match self {
            Row::BuiltIn(resource) => resource,
            Row::Custom(resource) => resource,
        }
    }
}

impl From<&'static Resource> for Row {
    fn from(resource: &'static Resource) -> Self {
        Row::BuiltIn(resource)
    }
}

/// The one copy of a name. Names of the API are few and come again and again, so they are kept for good.
pub fn interned(name: &str) -> &'static str {
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
    fn a_name_is_kept_once() {
        let (first, again) = (interned(&String::from("boats")), interned(&String::from("boats")));
        assert_eq!(first.as_ptr(), again.as_ptr());
    }
}
