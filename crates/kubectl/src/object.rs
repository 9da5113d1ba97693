//! Access to the fields of objects.

use api::{Map, Value};

/// The annotation that client-side apply keeps.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Reads objects by path.
pub trait ObjectFields {
    /// The value at a dotted path.
    fn at(&self, path: &str) -> Option<&Value>;
    /// The text at a path; empty if absent.
    fn text(&self, path: &str) -> &str;
    /// The integer at a path.
    fn integer(&self, path: &str) -> Option<i64>;
    /// Whether a path has `true`.
    fn flag(&self, path: &str) -> bool;
    /// The list at a path; empty if absent.
    fn list(&self, path: &str) -> &[Value];
    /// The map at a path; `None` if absent.
    fn map(&self, path: &str) -> Option<&Map>;
}

impl ObjectFields for Value {
    fn at(&self, path: &str) -> Option<&Value> {
        let mut value = self;
        for name in path.split('.').filter(|name| !name.is_empty()) {
            value = value.get(name)?;
        }
        (!value.is_null()).then_some(value)
    }

    fn text(&self, path: &str) -> &str {
        self.at(path).and_then(Value::as_str).unwrap_or_default()
    }

    fn integer(&self, path: &str) -> Option<i64> {
        self.at(path).and_then(Value::as_i64)
    }

    fn flag(&self, path: &str) -> bool {
        self.at(path) == Some(&Value::Bool(true))
    }

    fn list(&self, path: &str) -> &[Value] {
        self.at(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn map(&self, path: &str) -> Option<&Map> {
        self.at(path).and_then(Value::as_object)
    }
}

/// The name of an object.
pub fn name_of(object: &Value) -> &str {
    object.text("metadata.name")
}

/// The namespace of an object.
pub fn namespace_of(object: &Value) -> &str {
    object.text("metadata.namespace")
}

/// Splits `group/version`.
pub fn split_api_version(api_version: &str) -> (String, String) {
    match api_version.split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), api_version.to_owned()),
    }
}

/// Group, version and kind of an object.
pub fn group_version_kind(object: &Value) -> (String, String, String) {
    let (group, version) = split_api_version(object.text("apiVersion"));
    (group, version, object.text("kind").to_owned())
}

/// Whether an object is a list of objects.
pub fn is_list(object: &Value) -> bool {
    object.get("items").is_some_and(|items| items.is_array() || items.is_null())
        && object.text("kind").ends_with("List")
}

/// Sets a value at a dotted path, making objects on the way.
pub fn set_path(object: &mut Value, path: &str, new: Value) {
    let mut value = object;
    let mut names = path.split('.').peekable();
    while let Some(name) = names.next() {
        if !value.is_object() {
            *value = Value::Object(Map::new());
        }
        let Value::Object(map) = value else { return };
        if names.peek().is_none() {
            map.insert(name.to_owned(), new);
            return;
        }
        value = map.entry(name.to_owned()).or_insert(Value::Null);
    }
}

/// Removes the value at a dotted path.
pub fn remove_path(object: &mut Value, path: &str) {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    let mut value = object;
    for step in parent.split('.').filter(|step| !step.is_empty()) {
        let Some(next) = value.get_mut(step) else { return };
        value = next;
    }
    if let Value::Object(map) = value {
        map.remove(name);
    }
}
