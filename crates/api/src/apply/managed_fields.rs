//! `metadata.managedFields`: the field sets that managers own.

use std::{cmp::Ordering, sync::LazyLock};

use super::{
    field_set::FieldSet,
    path_element::{MalformedElement, PathElement},
};
use crate::{Map, Value, meta};

/// The number of Update managers kept individually.
const MAX_UPDATERS: usize = 10;
/// The manager that older Update entries are merged into.
const ANCIENT_CHANGES: &str = "ancient-changes";

/// An entry of `managedFields`.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedFieldsEntry {
    /// The field manager.
    pub manager: String,
    /// Whether the operation is `Apply`; otherwise `Update`.
    pub applied: bool,
    /// The version of the field names.
    pub api_version: String,
    /// The subresource; empty for the object itself.
    pub subresource: String,
    /// The time of the last change.
    pub time: Option<String>,
    /// The owned fields.
    pub fields: FieldSet,
}

/// Malformed managed fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManagedFieldsError {
    /// The value is not a list of objects.
    #[error("managed fields must be a list of objects")]
    NoList,
    /// The operation is neither `Apply` nor `Update`.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// The `apiVersion` is empty.
    #[error("apiVersion must not be empty")]
    Version,
    /// The `fieldsType` is not `FieldsV1`.
    #[error("invalid fieldsType {0:?} in managed fields entry {1}")]
    FieldsType(String, usize),
    /// The field set is malformed.
    #[error("error decoding set: {0}")]
    Set(#[from] MalformedElement),
}

impl ManagedFieldsEntry {
    /// Whether both entries have the same manager. Apply entries keep their identity across versions.
    pub fn has_same_manager(&self, other: &ManagedFieldsEntry) -> bool {
        self.manager == other.manager
            && self.applied == other.applied
            && self.subresource == other.subresource
            && (self.applied || self.api_version == other.api_version)
    }

    /// The order of managers in messages and when merging old entries.
    pub fn identity_order(&self, other: &ManagedFieldsEntry) -> Ordering {
        let by_name = self.manager.cmp(&other.manager).then(other.applied.cmp(&self.applied));
        by_name
            .then_with(|| self.api_version.cmp(&other.api_version))
            .then_with(|| self.subresource.cmp(&other.subresource))
    }

    fn from_value(value: &Value, at: usize) -> Result<Self, ManagedFieldsError> {
        let text = |name: &str| meta::string_at(value, &[name]).to_owned();
        let applied = match meta::string_at(value, &["operation"]) {
            "Apply" => true,
            "Update" => false,
            _ => return Err(ManagedFieldsError::Operation),
        };
        let (api_version, fields_type) = (text("apiVersion"), text("fieldsType"));
        if api_version.is_empty() {
            return Err(ManagedFieldsError::Version);
        }
        if fields_type != "FieldsV1" {
            return Err(ManagedFieldsError::FieldsType(fields_type, at));
        }
        let time = Some(text("time")).filter(|time| !time.is_empty());
        let set = value.get("fieldsV1").map(FieldSet::from_value).transpose()?.unwrap_or_default();
        Ok(Self { manager: text("manager"), applied, api_version, subresource: text("subresource"), time, fields: set })
    }

    fn into_value(self) -> Value {
        let operation = if self.applied { "Apply" } else { "Update" };
        let mut map = Map::new();
        let mut put = |name: &str, value: String| {
            if !value.is_empty() {
                map.insert(name.to_owned(), value.into());
            }
        };
        put("manager", self.manager);
        put("operation", operation.to_owned());
        put("apiVersion", self.api_version);
        put("time", self.time.unwrap_or_default());
        put("fieldsType", "FieldsV1".to_owned());
        put("subresource", self.subresource);
        map.insert("fieldsV1".to_owned(), self.fields.to_value());
        Value::Object(map)
    }
}

/// All managed fields of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManagedFields {
    /// One entry per manager, unordered.
    pub entries: Vec<ManagedFieldsEntry>,
}

impl ManagedFields {
    /// Reads the entries of an object; the later of two with the same manager counts.
    pub fn from_object(object: &Value) -> Result<Self, ManagedFieldsError> {
        let mut managed = Self::default();
        let list = match meta::value_at(object, &["metadata", "managedFields"]) {
            None => return Ok(managed),
            Some(Value::Array(list)) => list,
            Some(_) => return Err(ManagedFieldsError::NoList),
        };
        for (at, value) in list.iter().enumerate() {
            if !value.is_object() {
                return Err(ManagedFieldsError::NoList);
            }
            managed.put_entry(ManagedFieldsEntry::from_value(value, at)?);
        }
        Ok(managed)
    }

    /// Whether a client resets the managed fields: an empty list, or a list of one empty entry.
    pub fn requests_reset(object: &Value) -> bool {
        match meta::value_at(object, &["metadata", "managedFields"]) {
            Some(Value::Array(list)) => match list.as_slice() {
                [] => true,
                [one] => one.as_object().is_some_and(|entry| entry.values().all(Value::is_null)),
                _ => false,
            },
            _ => false,
        }
    }

    /// Writes the entries into an object, sorted.
    pub fn write_to(mut self, object: &mut Value) {
        let metadata = meta::metadata_mut(object);
        if self.entries.is_empty() {
            metadata.remove("managedFields");
            return;
        }
        self.entries.sort_by(|a, b| {
            // Apply entries first, then by time; RFC 3339 times sort as strings.
            b.applied.cmp(&a.applied).then_with(|| a.time.cmp(&b.time)).then_with(|| a.identity_order(b))
        });
        let list = self.entries.into_iter().map(ManagedFieldsEntry::into_value).collect();
        metadata.insert("managedFields".into(), Value::Array(list));
    }

    /// Returns the entry with the same manager.
    pub fn find_entry(&self, like: &ManagedFieldsEntry) -> Option<&ManagedFieldsEntry> {
        self.entries.iter().find(|entry| entry.has_same_manager(like))
    }

    /// Inserts or replaces the entry of a manager.
    pub fn put_entry(&mut self, entry: ManagedFieldsEntry) {
        match self.entries.iter_mut().find(|known| known.has_same_manager(&entry)) {
            Some(known) => *known = entry,
            None => self.entries.push(entry),
        }
    }

    /// Merges the oldest Update entries until the limit holds.
    pub fn cap_update_managers(&mut self) {
        let mut many = self.entries.iter().filter(|entry| !entry.applied).count();
        if many <= MAX_UPDATERS {
            return;
        }
        let mut oldest: Vec<ManagedFieldsEntry> = self.entries.iter().filter(|entry| !entry.applied).cloned().collect();
        oldest.sort_by(|a, b| a.time.cmp(&b.time).then_with(|| a.identity_order(b)));
        let mut first: Vec<ManagedFieldsEntry> = Vec::new();
        for entry in oldest {
            if many <= MAX_UPDATERS {
                return;
            }
            let Some(earlier) = first.iter().find(|first| first.api_version == entry.api_version) else {
                first.push(entry);
                continue;
            };
            let mut bucket =
                ManagedFieldsEntry { manager: ANCIENT_CHANGES.to_owned(), subresource: String::new(), ..entry.clone() };
            let known = self.find_entry(&bucket).or_else(|| self.find_entry(earlier)).map(|known| known.fields.clone());
            if self.find_entry(&bucket).is_none() {
                self.entries.retain(|known| !known.has_same_manager(earlier));
            }
            self.entries.retain(|known| !known.has_same_manager(&entry));
            bucket.fields = entry.fields.union(known.unwrap_or_default());
            self.put_entry(bucket);
            many -= 1;
        }
    }
}

/// The fields without owners: set by the server, or part of the identity.
static UNOWNED_FIELDS: LazyLock<FieldSet> = LazyLock::new(|| {
    let paths = "apiVersion kind metadata metadata.name metadata.namespace metadata.creationTimestamp metadata.selfLink metadata.uid metadata.clusterName \
        metadata.generation metadata.managedFields metadata.resourceVersion";
    FieldSet::from_paths(&paths.split(' ').collect::<Vec<_>>())
});

/// Removes the fields that cannot be owned.
pub fn strip_unowned_fields(set: FieldSet) -> FieldSet {
    set.difference(&UNOWNED_FIELDS)
}

/// Formats a path for messages.
pub fn format_path(path: &[PathElement]) -> String {
    path.iter().map(PathElement::to_string).collect()
}
