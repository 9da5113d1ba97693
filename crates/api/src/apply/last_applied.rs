//! From `kubectl apply` to `kubectl apply --server-side`: what the annotation of the former says is not in conflict with
//! the latter, and the annotation is kept up to date for those who go on with the former.

use serde_json::json;

use super::{compare::Comparison, conflict::Conflict, fields, kind::Kind, set::Set};
use crate::{Value, meta};

/// The manager that the annotation belongs to.
pub const MANAGER: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// All annotations of an object together, keys included.
const MAX_ANNOTATIONS: usize = 256 << 10;

/// The conflicts that the annotation does not allow; `None` if there is no annotation that counts.
pub fn remaining(kind: &Kind, live: &Value, conflicts: &[Conflict]) -> Option<Vec<Conflict>> {
    let allowed = unchanged_since(kind, live)?;
    Some(conflicts.iter().filter(|conflict| !allowed.has(&conflict.path)).cloned().collect())
}

/// The fields of the annotation that still have its values.
fn unchanged_since(kind: &Kind, live: &Value) -> Option<Set> {
    let text = annotation(live)?;
    let applied: Value = serde_json::from_str(text).ok()?;
    if meta::text(&applied, &["apiVersion"]) != kind.api_version || meta::text(&applied, &["kind"]) != kind.kind {
        return None;
    }
    let view = kind.view();
    super::check::check(view, &applied, false).ok()?;
    super::check::check(view, live, false).ok()?;
    let since = Comparison::of(view, &applied, live).ok()?;
    let all = fields::of_object(view, &applied);
    Some(all.difference(&since.modified).difference(&since.added).difference(&since.removed))
}

/// Writes what was applied into the annotation of an object that has one.
pub fn refresh(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    let own = config.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(annotations) = own.and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION);
    }
    let annotations = meta::metadata_mut(object).entry("annotations").or_insert_with(|| json!({}));
    let annotations = meta::object_mut(annotations);
    annotations.insert(ANNOTATION.to_owned(), format!("{config}\n").into());
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(ANNOTATION);
    }
}

fn annotation(object: &Value) -> Option<&str> {
    Some(meta::text(object, &["metadata", "annotations", ANNOTATION])).filter(|text| !text.is_empty())
}
