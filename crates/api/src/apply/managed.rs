//! `metadata.managedFields`: who owns which fields of an object.

use std::{cmp::Ordering, sync::LazyLock};

use super::{
    element::{Element, Malformed},
    set::Set,
};
use crate::{Map, Value, meta};

/// How many managers of updates are remembered one by one.
const MAX_UPDATERS: usize = 10;
/// The manager of what older updates own together.
const ANCIENT: &str = "ancient-changes";

/// What one manager owns.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Who.
    pub manager: String,
    /// By apply; otherwise by any other write.
    pub applied: bool,
    /// The version in which the fields are named.
    pub api_version: String,
    /// Through which subresource; empty for the object itself.
    pub subresource: String,
    /// When that changed last.
    pub time: Option<String>,
    /// The fields.
    pub set: Set,
}

/// Why stored or given entries cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Not a list of objects.
    #[error("managed fields must be a list of objects")]
    NoList,
    /// Something else than `Apply` and `Update`.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// No version.
    #[error("apiVersion must not be empty")]
    Version,
    /// Not `FieldsV1`.
    #[error("invalid fieldsType {0:?} in managed fields entry {1}")]
    FieldsType(String, usize),
    /// The set.
    #[error("error decoding set: {0}")]
    Set(#[from] Malformed),
}

impl Entry {
    /// Whether both are of the same manager. Appliers stay the same when they use another version.
    pub fn is_same(&self, other: &Entry) -> bool {
        self.manager == other.manager
            && self.applied == other.applied
            && self.subresource == other.subresource
            && (self.applied || self.api_version == other.api_version)
    }

    /// The order in which managers are named in messages and merged when there are too many.
    pub fn identity_order(&self, other: &Entry) -> Ordering {
        let by_name = self.manager.cmp(&other.manager).then(other.applied.cmp(&self.applied));
        by_name
            .then_with(|| self.api_version.cmp(&other.api_version))
            .then_with(|| self.subresource.cmp(&other.subresource))
    }

    fn decode(value: &Value, at: usize) -> Result<Self, Unreadable> {
        let text = |name: &str| meta::text(value, &[name]).to_owned();
        let applied = match meta::text(value, &["operation"]) {
            "Apply" => true,
            "Update" => false,
            _ => return Err(Unreadable::Operation),
        };
        let (api_version, fields_type) = (text("apiVersion"), text("fieldsType"));
        if api_version.is_empty() {
            return Err(Unreadable::Version);
        }
        if fields_type != "FieldsV1" {
            return Err(Unreadable::FieldsType(fields_type, at));
        }
        let time = Some(text("time")).filter(|time| !time.is_empty());
        let set = value.get("fieldsV1").map(Set::from_value).transpose()?.unwrap_or_default();
        Ok(Self { manager: text("manager"), applied, api_version, subresource: text("subresource"), time, set })
    }

    fn encode(self) -> Value {
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
        map.insert("fieldsV1".to_owned(), self.set.to_value());
        Value::Object(map)
    }
}

/// All that is owned of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Managed {
    /// In no order; every manager once.
    pub entries: Vec<Entry>,
}

impl Managed {
    /// Reads the entries of an object. Of two with the same manager, the later one counts.
    pub fn of(object: &Value) -> Result<Self, Unreadable> {
        let mut managed = Self::default();
        let list = match meta::at(object, &["metadata", "managedFields"]) {
            None => return Ok(managed),
            Some(Value::Array(list)) => list,
            Some(_) => return Err(Unreadable::NoList),
        };
        for (at, value) in list.iter().enumerate() {
            if !value.is_object() {
                return Err(Unreadable::NoList);
            }
            managed.put(Entry::decode(value, at)?);
        }
        Ok(managed)
    }

    /// Whether a client asks to forget all owners: an empty list, or a list of one empty entry.
    pub fn is_reset(object: &Value) -> bool {
        match meta::at(object, &["metadata", "managedFields"]) {
            Some(Value::Array(list)) => match list.as_slice() {
                [] => true,
                [one] => one.as_object().is_some_and(|entry| entry.values().all(Value::is_null)),
                _ => false,
            },
            _ => false,
        }
    }

    /// Writes the entries into an object, in their order.
    pub fn write(mut self, object: &mut Value) {
        let metadata = meta::metadata_mut(object);
        if self.entries.is_empty() {
            metadata.remove("managedFields");
            return;
        }
        self.entries.sort_by(|a, b| {
            // Applies first; then by time; texts of times sort as times do.
            b.applied.cmp(&a.applied).then_with(|| a.time.cmp(&b.time)).then_with(|| a.identity_order(b))
        });
        let list = self.entries.into_iter().map(Entry::encode).collect();
        metadata.insert("managedFields".into(), Value::Array(list));
    }

    /// The entry of the manager of another one.
    pub fn find(&self, like: &Entry) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.is_same(like))
    }

    /// Puts an entry in the place of the one of its manager.
    pub fn put(&mut self, entry: Entry) {
        match self.entries.iter_mut().find(|known| known.is_same(&entry)) {
            Some(known) => *known = entry,
            None => self.entries.push(entry),
        }
    }

    /// Merges the oldest updates until there are not too many.
    pub fn cap(&mut self) {
        let mut many = self.entries.iter().filter(|entry| !entry.applied).count();
        if many <= MAX_UPDATERS {
            return;
        }
        let mut oldest: Vec<Entry> = self.entries.iter().filter(|entry| !entry.applied).cloned().collect();
        oldest.sort_by(|a, b| a.time.cmp(&b.time).then_with(|| a.identity_order(b)));
        let mut first: Vec<Entry> = Vec::new();
        for entry in oldest {
            if many <= MAX_UPDATERS {
                return;
            }
            let Some(earlier) = first.iter().find(|first| first.api_version == entry.api_version) else {
                first.push(entry);
                continue;
            };
            let mut bucket = Entry { manager: ANCIENT.to_owned(), subresource: String::new(), ..entry.clone() };
            let known = self.find(&bucket).or_else(|| self.find(earlier)).map(|known| known.set.clone());
            if self.find(&bucket).is_none() {
                self.entries.retain(|known| !known.is_same(earlier));
            }
            self.entries.retain(|known| !known.is_same(&entry));
            bucket.set = entry.set.union(known.unwrap_or_default());
            self.put(bucket);
            many -= 1;
        }
    }
}

/// Fields that nobody owns: they are the server's, or name the object.
static UNOWNED: LazyLock<Set> = LazyLock::new(|| {
    Set::of_fields(&[
        "apiVersion",
        "kind",
        "metadata",
        "metadata.name",
        "metadata.namespace",
        "metadata.creationTimestamp",
        "metadata.selfLink",
        "metadata.uid",
        "metadata.clusterName",
        "metadata.generation",
        "metadata.managedFields",
        "metadata.resourceVersion",
    ])
});

/// The fields of a set that can be owned.
pub fn ownable(set: Set) -> Set {
    set.difference(&UNOWNED)
}

/// A path as messages show it.
pub fn path_text(path: &[Element]) -> String {
    path.iter().map(Element::to_string).collect()
}
