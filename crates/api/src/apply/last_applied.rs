//! Migration from client-side to server-side apply: fields of the last-applied annotation do not conflict, and the
//! annotation is kept up to date for clients that continue with client-side apply.

use serde_json::json;

use super::{comparison::Comparison, conflict::FieldConflict, field_set::FieldSet, object_fields, target::ApplyTarget};
use crate::{Value, meta};

/// The field manager of the annotation.
pub const KUBECTL_MANAGER: &str = "kubectl";
const LAST_APPLIED_ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The size limit of all annotations of an object, keys included.
const MAX_ANNOTATIONS: usize = 256 << 10;

/// Returns the conflicts that the annotation does not cover; `None` without a usable annotation.
pub fn remaining_conflicts(
    kind: &ApplyTarget,
    live: &Value,
    conflicts: &[FieldConflict],
) -> Option<Vec<FieldConflict>> {
    let allowed = unchanged_fields(kind, live)?;
    Some(conflicts.iter().filter(|conflict| !allowed.has(&conflict.path)).cloned().collect())
}

/// The fields of the annotation whose values are unchanged.
fn unchanged_fields(kind: &ApplyTarget, live: &Value) -> Option<FieldSet> {
    let text = last_applied_annotation(live)?;
    let applied: Value = serde_json::from_str(text).ok()?;
    if meta::string_at(&applied, &["apiVersion"]) != kind.api_version
        || meta::string_at(&applied, &["kind"]) != kind.kind
    {
        return None;
    }
    let view = kind.type_view();
    super::schema_check::check_object(view, &applied, false).ok()?;
    super::schema_check::check_object(view, live, false).ok()?;
    let since = Comparison::between(view, &applied, live).ok()?;
    let all = object_fields::to_field_set(view, &applied);
    Some(all.difference(&since.modified).difference(&since.added).difference(&since.removed))
}

/// Updates the annotation of an object that has one.
pub fn refresh_annotation(object: &mut Value, config: &Value) {
    if last_applied_annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    let own = config.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(annotations) = own.and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED_ANNOTATION);
    }
    let annotations = meta::metadata_mut(object).entry("annotations").or_insert_with(|| json!({}));
    let annotations = meta::object_mut(annotations);
    annotations.insert(LAST_APPLIED_ANNOTATION.to_owned(), format!("{config}\n").into());
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(LAST_APPLIED_ANNOTATION);
    }
}

fn last_applied_annotation(object: &Value) -> Option<&str> {
    Some(meta::string_at(object, &["metadata", "annotations", LAST_APPLIED_ANNOTATION])).filter(|text| !text.is_empty())
}
