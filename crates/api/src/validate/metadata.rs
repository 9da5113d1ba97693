//! Validation of `metadata`, the same for every resource, and of conditions in the form that most kinds share.

use super::{prelude::*, selector};
use crate::meta;

/// The most bytes that annotations may have together.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;
/// Finalizers without a domain that Kubernetes itself uses.
const FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

/// How a kind sees metadata.
#[derive(Clone, Copy)]
pub(super) struct Scheme {
    /// The form of names.
    pub name: names::Form,
    /// Whether objects are in namespaces.
    pub namespaced: bool,
    /// Whether finalizers without a domain must be known.
    pub known_finalizers: bool,
}

/// The faults of the metadata of a whole object.
pub(super) fn object(object: &At, scheme: Scheme, e: &mut Errors) {
    let meta = object.get("metadata");
    let (name, prefix) = (meta.get("name"), meta.get("generateName"));
    if !prefix.is_empty() {
        (scheme.name)(&masked(prefix.text())).into_iter().for_each(|fault| prefix.invalid_text(e, fault));
    }
    if name.is_empty() {
        name.required(e, "name or generateName is required");
    } else {
        name.form(e, scheme.name);
    }
    namespace(&meta, scheme.namespaced, e);
    meta.get("generation").nonnegative(e);
    selector::labels(&meta.get("labels"), e);
    annotations(&meta.get("annotations"), e);
    owners(&meta.get("ownerReferences"), e);
    finalizers(&meta.get("finalizers"), e);
    if scheme.known_finalizers {
        known_finalizers(&meta, e);
    }
}

fn namespace(meta: &At, namespaced: bool, e: &mut Errors) {
    let namespace = meta.get("namespace");
    if !namespaced {
        if !namespace.is_empty() {
            namespace.forbidden(e, "not allowed on this type");
        }
    } else {
        namespace.required_form(e, names::label);
    }
}

/// A prefix of names as a name: a dash at its end is followed by something.
fn masked(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut shorter = rest.to_owned();
            shorter.pop();
            shorter + "a"
        }
        _ => prefix.to_owned(),
    }
}

/// The faults of changed metadata.
pub(super) fn update(object: &At, known: bool, e: &mut Errors) {
    let meta = object.get("metadata");
    let before = meta.before();
    if before.get("deletionTimestamp").exists() {
        no_new_finalizers(&meta.get("finalizers"), e);
    }
    let version = meta.get("resourceVersion");
    if version.is_empty() {
        version.invalid_text(e, "must be specified for an update");
    }
    if meta.get("generation").int() < before.get("generation").int() {
        meta.get("generation").invalid_int(e, "must not be decremented");
    }
    for field in ["name", "namespace", "uid"] {
        if meta.get(field).text() != before.get(field).text() {
            meta.get(field).invalid_text(e, IMMUTABLE);
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if meta.get(field).differs() {
            meta.get(field).invalid(e, IMMUTABLE);
        }
    }
    selector::labels(&meta.get("labels"), e);
    annotations(&meta.get("annotations"), e);
    owners(&meta.get("ownerReferences"), e);
    if known {
        known_finalizers(&meta, e);
    }
}

/// What is told whoever gives a custom resource finalizers that others might take for theirs.
pub(super) fn finalizer_warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let before: Vec<&str> = old.map(|old| meta::finalizers(old).collect()).unwrap_or_default();
    let mut new: Vec<&str> = meta::finalizers(object).filter(|name| !before.contains(name)).collect();
    new.sort_unstable();
    new.dedup();
    let told = |name: &str| {
        let place = format!("metadata.finalizers: {name:?}");
        let mut out: Vec<String> = names::qualified(name).iter().map(|fault| format!("{place}: {fault}")).collect();
        if !name.contains('/') && !FINALIZERS.contains(&name) {
            let path = if name.contains('.') { " including a path (/)" } else { "" };
            let why = "to avoid accidental conflicts with other finalizer writers";
            out.push(format!("{place}: prefer a domain-qualified finalizer name{path} {why}"));
        }
        out
    };
    new.into_iter().flat_map(told).collect()
}

fn no_new_finalizers(new: &At, e: &mut Errors) {
    let mut extra: Vec<&str> = new.texts().filter(|name| !new.before().has(name)).collect();
    extra.sort_unstable();
    extra.dedup();
    if !extra.is_empty() {
        let list = extra.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        let message = "no new finalizers can be added if the object is being deleted, found new finalizers";
        new.forbidden(e, format!("{message} []string{{{list}}}"));
    }
}

/// A template gives its objects labels and annotations, nothing else.
pub fn only_labels(meta: &At, e: &mut Errors) {
    for (field, _) in meta.value.as_object().into_iter().flatten() {
        if field != "annotations" && field != "labels" {
            // Upstream makes the names from those in Go.
            let shown = if field == "uid" { "uID" } else { field };
            meta.get(shown).forbidden(e, "cannot be set");
        }
    }
}

/// The faults of annotations.
pub fn annotations(at: &At, e: &mut Errors) {
    let mut size = 0;
    for (key, value) in at.entries() {
        for fault in names::qualified(&key.to_lowercase()) {
            at.invalid_as(e, key, fault);
        }
        size += key.len() + value.text().len();
    }
    if size > ANNOTATIONS_LIMIT {
        at.too_long(e, ANNOTATIONS_LIMIT);
    }
}

fn owners(at: &At, e: &mut Errors) {
    let mut controller: Option<String> = None;
    for owner in at.items() {
        let text = |name: &str| owner.value.get(name).and_then(Value::as_str).unwrap_or_default();
        let version = text("apiVersion");
        if version.is_empty() || version.ends_with('/') || version.matches('/').count() > 1 {
            at.get("apiVersion").invalid_as(e, version, "version must not be empty");
        }
        for name in ["kind", "name", "uid"] {
            if text(name).is_empty() {
                at.get(name).invalid_as(e, "", "must not be empty");
            }
        }
        if version == "v1" && text("kind") == "Event" {
            let shown = Bad::of("meta/v1.OwnerReference", owner.value);
            at.invalid_as(e, shown, "/v1, Kind=Event is disallowed from being an owner");
        }
        if owner.get("controller").is_true() {
            let current = format!("{}/{}", text("kind"), text("name"));
            match &controller {
                Some(first) => {
                    let message =
                        "Only one reference can have Controller set to true. Found \"true\" in references for";
                    at.invalid_struct(e, "meta/v1.OwnerReference", format!("{message} {first} and {current}"));
                }
                None => controller = Some(current),
            }
        }
    }
}

fn finalizers(at: &At, e: &mut Errors) {
    at.texts().for_each(|finalizer| at.form_as(e, finalizer, names::qualified));
    if at.has("orphan") && at.has("foregroundDeletion") {
        at.invalid(e, "finalizer orphan and foregroundDeletion cannot be both set");
    }
}

fn known_finalizers(meta: &At, e: &mut Errors) {
    for finalizer in meta.get("finalizers").items() {
        known_finalizer(&finalizer, e);
    }
}

/// A finalizer has a domain, or is one of those that Kubernetes itself uses.
pub fn known_finalizer(at: &At, e: &mut Errors) {
    if !at.text().contains('/') && !FINALIZERS.contains(&at.text()) {
        at.invalid_text(e, "name is neither a standard finalizer name nor is it fully qualified");
    }
}

const REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of \
    alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or \
    'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

/// There is one condition of a type.
pub fn condition_types(list: &At, e: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for condition in list.items() {
        let kind = condition.get("type");
        if let Some(first) = seen.iter().position(|text| *text == kind.text()) {
            let message = format!("the type of the condition is not unique, it also appears in conditions[{first}]");
            kind.invalid_text(e, message);
        }
        seen.push(kind.text());
    }
}

/// What is wrong with the reason of a condition.
pub(super) fn condition_reason(text: &str) -> Vec<String> {
    let right = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_,:".contains(c));
    names::unless(right, REASON)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn finalizers_of_custom_resources_should_have_a_domain() {
        let check = |new: Value, old: Value| {
            let object = |list: Value| json!({"metadata": {"finalizers": list}});
            finalizer_warnings(&object(new), Some(&object(old)))
        };
        assert!(check(json!(["example.com/f", "orphan", "old"]), json!(["old"])).is_empty());
        let why = "metadata.finalizers: \"f\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other \
            finalizer writers";
        assert_eq!(check(json!(["f"]), json!([])), [why]);
        assert!(check(json!(["a.b"]), json!([]))[0].contains("including a path (/)"));
    }
}
