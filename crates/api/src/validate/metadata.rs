//! Validation of object metadata, common to all resources, and of `metav1.Condition` lists.

use super::{prelude::*, selector};
use crate::meta;

/// The size limit of all annotations.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;
/// The finalizers of Kubernetes without a domain.
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

/// The metadata rules of a kind.
#[derive(Clone, Copy)]
pub(super) struct MetadataRules {
    /// The name format.
    pub name: names::NameRule,
    /// Whether objects are namespaced.
    pub namespaced: bool,
    /// Whether unqualified finalizers must be standard ones.
    pub known_finalizers: bool,
}

/// Validates the metadata of an object.
pub(super) fn validate_object_meta(object: &FieldCursor, scheme: MetadataRules, e: &mut ErrorList) {
    let meta = object.get("metadata");
    let (name, prefix) = (meta.get("name"), meta.get("generateName"));
    if !prefix.is_empty() {
        (scheme.name)(&mask_trailing_dash(prefix.text())).into_iter().for_each(|fault| prefix.invalid_text(e, fault));
    }
    if name.is_empty() {
        name.required(e, "name or generateName is required");
    } else {
        name.check_format(e, scheme.name);
    }
    validate_namespace(&meta, scheme.namespaced, e);
    meta.get("generation").require_nonnegative(e);
    selector::validate_labels(&meta.get("labels"), e);
    validate_annotations(&meta.get("annotations"), e);
    validate_owner_references(&meta.get("ownerReferences"), e);
    validate_finalizers(&meta.get("finalizers"), e);
    if scheme.known_finalizers {
        validate_known_finalizers(&meta, e);
    }
}

fn validate_namespace(meta: &FieldCursor, namespaced: bool, e: &mut ErrorList) {
    let namespace = meta.get("namespace");
    if !namespaced {
        if !namespace.is_empty() {
            namespace.forbidden(e, "not allowed on this type");
        }
    } else {
        namespace.require_format(e, names::check_dns_label);
    }
}

/// Replaces a trailing dash of a name prefix. Upstream: `maskTrailingDash`.
fn mask_trailing_dash(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut shorter = rest.to_owned();
            shorter.pop();
            shorter + "a"
        }
        _ => prefix.to_owned(),
    }
}

/// Validates a metadata update.
pub(super) fn validate_object_meta_update(object: &FieldCursor, known: bool, e: &mut ErrorList) {
    let meta = object.get("metadata");
    let before = meta.old_cursor();
    if before.get("deletionTimestamp").exists() {
        forbid_new_finalizers(&meta.get("finalizers"), e);
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
        if meta.get(field).is_changed() {
            meta.get(field).invalid(e, IMMUTABLE);
        }
    }
    selector::validate_labels(&meta.get("labels"), e);
    validate_annotations(&meta.get("annotations"), e);
    validate_owner_references(&meta.get("ownerReferences"), e);
    if known {
        validate_known_finalizers(&meta, e);
    }
}

/// Warns about unqualified finalizers of custom resources.
pub(super) fn finalizer_warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let before: Vec<&str> = old.map(|old| meta::finalizers(old).collect()).unwrap_or_default();
    let mut new: Vec<&str> = meta::finalizers(object).filter(|name| !before.contains(name)).collect();
    new.sort_unstable();
    new.dedup();
    let told = |name: &str| {
        let place = format!("metadata.finalizers: {name:?}");
        let mut out: Vec<String> =
            names::check_qualified_name(name).iter().map(|fault| format!("{place}: {fault}")).collect();
        if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
            let path = if name.contains('.') { " including a path (/)" } else { "" };
            let why = "to avoid accidental conflicts with other finalizer writers";
            out.push(format!("{place}: prefer a domain-qualified finalizer name{path} {why}"));
        }
        out
    };
    new.into_iter().flat_map(told).collect()
}

fn forbid_new_finalizers(new: &FieldCursor, e: &mut ErrorList) {
    let mut extra: Vec<&str> = new.texts().filter(|name| !new.old_cursor().contains_text(name)).collect();
    extra.sort_unstable();
    extra.dedup();
    if !extra.is_empty() {
        let list = extra.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        let message = "no new finalizers can be added if the object is being deleted, found new finalizers";
        new.forbidden(e, format!("{message} []string{{{list}}}"));
    }
}

/// Allows only labels and annotations in template metadata.
pub fn validate_only_labels(meta: &FieldCursor, e: &mut ErrorList) {
    for (field, _) in meta.value.as_object().into_iter().flatten() {
        if field != "annotations" && field != "labels" {
            // Upstream derives the names from Go fields.
            let shown = if field == "uid" { "uID" } else { field };
            meta.get(shown).forbidden(e, "cannot be set");
        }
    }
}

/// Validates annotations.
pub fn validate_annotations(at: &FieldCursor, e: &mut ErrorList) {
    let mut size = 0;
    for (key, value) in at.entries() {
        for fault in names::check_qualified_name(&key.to_lowercase()) {
            at.invalid_as(e, key, fault);
        }
        size += key.len() + value.text().len();
    }
    if size > ANNOTATIONS_LIMIT {
        at.too_long(e, ANNOTATIONS_LIMIT);
    }
}

fn validate_owner_references(at: &FieldCursor, e: &mut ErrorList) {
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
            let shown = render_bad_value("meta/v1.OwnerReference", owner.value);
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

fn validate_finalizers(at: &FieldCursor, e: &mut ErrorList) {
    at.texts().for_each(|finalizer| at.check_format_as(e, finalizer, names::check_qualified_name));
    if at.contains_text("orphan") && at.contains_text("foregroundDeletion") {
        at.invalid(e, "finalizer orphan and foregroundDeletion cannot be both set");
    }
}

fn validate_known_finalizers(meta: &FieldCursor, e: &mut ErrorList) {
    for finalizer in meta.get("finalizers").items() {
        validate_known_finalizer(&finalizer, e);
    }
}

/// Requires a qualified or standard finalizer.
pub fn validate_known_finalizer(at: &FieldCursor, e: &mut ErrorList) {
    if !at.text().contains('/') && !STANDARD_FINALIZERS.contains(&at.text()) {
        at.invalid_text(e, "name is neither a standard finalizer name nor is it fully qualified");
    }
}

const REASON_FORMAT: &str = "a condition reason must start with alphabetic character, optionally followed by a string of \
    alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or \
    'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

/// Requires unique condition types.
pub fn validate_condition_types(list: &FieldCursor, e: &mut ErrorList) {
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

/// Returns the errors about a condition reason.
pub(super) fn condition_reason(text: &str) -> Vec<String> {
    let right = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_,:".contains(c));
    names::error_unless(right, REASON_FORMAT)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn finalizer_without_domain_is_warned_about() {
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
