//! Revisions: matching ReplicaSets to templates, and the revision and size annotations.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::PodTemplateSpec,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::limits::{desired_replicas, max_surge};

pub(super) const HASH_LABEL: &str = "pod-template-hash";
pub(super) const REVISION_ANNOTATION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY_ANNOTATION: &str = "deployment.kubernetes.io/revision-history";
const DESIRED_REPLICAS_ANNOTATION: &str = "deployment.kubernetes.io/desired-replicas";
const ROLLBACK_ANNOTATION: &str = "deprecated.deployment.rollback.to";
const MAX_REPLICAS_ANNOTATION: &str = "deployment.kubernetes.io/max-replicas";
/// Annotations that are not copied to ReplicaSets.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION_ANNOTATION,
    REVISION_HISTORY_ANNOTATION,
    DESIRED_REPLICAS_ANNOTATION,
    MAX_REPLICAS_ANNOTATION,
    ROLLBACK_ANNOTATION,
];
/// Maximum length of the revision history annotation.
const HISTORY_LENGTH: usize = 2000;

/// Splits into the ReplicaSet with the Deployment's template (the oldest of several) and the others, oldest first.
pub(super) fn split_replica_sets(
    deployment: &Deployment,
    mut all: Vec<ReplicaSet>,
) -> (Option<ReplicaSet>, Vec<ReplicaSet>) {
    all.sort_by(compare_by_age);
    let template = deployment.spec.as_ref().map(|spec| &spec.template);
    let new = all.iter().position(|replica_set| {
        let other = replica_set.spec.as_ref().and_then(|spec| spec.template.as_ref());
        template.zip(other).is_some_and(|(a, b)| is_same_template(a, b))
    });
    (new.map(|index| all.remove(index)), all)
}

/// Orders by creation time, then by name.
pub(super) fn compare_by_age(a: &ReplicaSet, b: &ReplicaSet) -> std::cmp::Ordering {
    let key = |rs: &ReplicaSet| rs.metadata.creation_timestamp.as_ref().map(|time| time.0);
    key(a).cmp(&key(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name))
}

/// Whether two templates are equal apart from the hash label.
pub(super) fn is_same_template(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    without_hash_label(a.metadata.as_ref()) == without_hash_label(b.metadata.as_ref()) && a.spec == b.spec
}

/// Returns the metadata without the hash label and with absent maps as empty ones.
fn without_hash_label(meta: Option<&ObjectMeta>) -> ObjectMeta {
    let mut meta = meta.cloned().unwrap_or_default();
    let mut labels = meta.labels.take().unwrap_or_default();
    labels.remove(HASH_LABEL);
    meta.labels = Some(labels);
    meta.annotations.get_or_insert_default();
    meta
}

/// Returns the revision annotation; zero if absent or no number.
pub(super) fn revision_of(meta: &ObjectMeta) -> i64 {
    parse_revision(meta).unwrap_or(0)
}

/// Returns the revision annotation, which is zero if absent; `None` if it is no number.
fn parse_revision(meta: &ObjectMeta) -> Option<i64> {
    match get_annotation(meta, REVISION_ANNOTATION) {
        None | Some("") => Some(0),
        Some(revision) => revision.parse().ok(),
    }
}

/// Returns the second highest revision, which an unspecific rollback restores; zero if there is none.
pub(super) fn last_revision<'a>(all: impl IntoIterator<Item = &'a ReplicaSet>) -> i64 {
    let mut revisions: Vec<i64> = all.into_iter().filter_map(|rs| parse_revision(&rs.metadata)).collect();
    revisions.sort_unstable_by(|a, b| b.cmp(a));
    revisions.get(1).copied().unwrap_or(0).max(0)
}

/// Returns the revision that the annotation `deprecated.deployment.rollback.to` asks for; zero for the last one.
pub(super) fn rollback_revision(deployment: &Deployment) -> Option<i64> {
    get_annotation(&deployment.metadata, ROLLBACK_ANNOTATION)?.parse().ok()
}

/// Removes the request for a rollback.
pub(super) fn clear_rollback(deployment: &mut Deployment) {
    if let Some(annotations) = &mut deployment.metadata.annotations {
        annotations.remove(ROLLBACK_ANNOTATION);
    }
}

/// Gives the Deployment the template and the copied annotations of a ReplicaSet.
pub(super) fn restore_replica_set(deployment: &mut Deployment, replica_set: &ReplicaSet) {
    let template = replica_set.spec.as_ref().and_then(|spec| spec.template.clone());
    if let (Some(spec), Some(mut template)) = (&mut deployment.spec, template) {
        if let Some(labels) = template.metadata.as_mut().and_then(|meta| meta.labels.as_mut()) {
            labels.remove(HASH_LABEL);
        }
        spec.template = template;
    }
    let annotations = deployment.metadata.annotations.get_or_insert_default();
    annotations.retain(|name, _| NOT_COPIED.contains(&name.as_str()));
    let restored = replica_set.metadata.annotations.iter().flatten();
    let restored = restored.filter(|(name, _)| !NOT_COPIED.contains(&name.as_str()));
    annotations.extend(restored.map(|(name, value)| (name.clone(), value.clone())));
}

/// Returns the revision after those of `old`.
pub(super) fn next_revision(old: &[ReplicaSet]) -> i64 {
    old.iter().map(|replica_set| revision_of(&replica_set.metadata)).max().unwrap_or(0) + 1
}

/// Returns the desired replicas annotation.
pub(super) fn recorded_desired_replicas(replica_set: &ReplicaSet) -> Option<i32> {
    get_annotation(&replica_set.metadata, DESIRED_REPLICAS_ANNOTATION)?.parse().ok().filter(|size| *size >= 0)
}

/// Returns the max replicas annotation.
pub(super) fn recorded_max_replicas(replica_set: &ReplicaSet) -> Option<i32> {
    get_annotation(&replica_set.metadata, MAX_REPLICAS_ANNOTATION)?.parse().ok().filter(|size| *size >= 0)
}

fn get_annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Sets the desired and max replicas annotations; returns whether they changed.
pub(super) fn set_replicas_annotations(replica_set: &mut ReplicaSet, deployment: &Deployment) -> bool {
    let annotations = replica_set.metadata.annotations.get_or_insert_default();
    let (wanted, most) = (desired_replicas(deployment), desired_replicas(deployment) + max_surge(deployment));
    set_annotation(annotations, DESIRED_REPLICAS_ANNOTATION, wanted.to_string())
        | set_annotation(annotations, MAX_REPLICAS_ANNOTATION, most.to_string())
}

/// Copies the Deployment's annotations and raises the revision; returns whether anything changed. A ReplicaSet that
/// becomes current again keeps its earlier revisions in the history annotation. One whose revision is no number is left
/// alone.
pub(super) fn set_replica_set_annotations(
    replica_set: &mut ReplicaSet,
    deployment: &Deployment,
    revision: i64,
) -> bool {
    let had_revision = get_annotation(&replica_set.metadata, REVISION_ANNOTATION).is_some();
    let Some(old) = parse_revision(&replica_set.metadata) else { return false };
    let annotations = replica_set.metadata.annotations.get_or_insert_default();
    let mut changed = false;
    for (name, value) in deployment.metadata.annotations.iter().flatten() {
        changed |= !NOT_COPIED.contains(&name.as_str()) && set_annotation(annotations, name, value.clone());
    }
    if old < revision {
        annotations.insert(REVISION_ANNOTATION.into(), revision.to_string());
        if had_revision {
            append_revision_history(annotations, old);
        }
        changed = true;
    }
    changed
}

/// Appends a revision to the history, dropping the oldest beyond [`HISTORY_LENGTH`].
fn append_revision_history(annotations: &mut BTreeMap<String, String>, revision: i64) {
    let mut history: Vec<String> = annotations
        .get(REVISION_HISTORY_ANNOTATION)
        .into_iter()
        .flat_map(|all| all.split(','))
        .filter(|revision| !revision.is_empty())
        .map(Into::into)
        .collect();
    history.push(revision.to_string());
    while history.len() > 1 && history.join(",").len() > HISTORY_LENGTH {
        history.remove(0);
    }
    annotations.insert(REVISION_HISTORY_ANNOTATION.into(), history.join(","));
}

fn set_annotation(annotations: &mut BTreeMap<String, String>, name: &str, value: String) -> bool {
    if annotations.get(name) == Some(&value) {
        return false;
    }
    annotations.insert(name.into(), value);
    true
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn replica_set(name: &str, image: &str, annotations: Value) -> ReplicaSet {
        let template = json!({"metadata": {"labels": {"app": "web", HASH_LABEL: name}}, "spec": {"containers": [{"name": "c", "image": image}]}});
        let spec = json!({"selector": {}, "template": template});
        serde_json::from_value(json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec})).unwrap()
    }

    fn deployment(image: &str) -> Deployment {
        let template =
            json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}});
        let annotations = json!({"kubernetes.io/change-cause": "because", REVISION_ANNOTATION: "9"});
        serde_json::from_value(json!({"metadata": {"annotations": annotations}, "spec": {"replicas": 3, "selector": {}, "template": template}}))
            .unwrap()
    }

    #[test]
    fn template_selects_its_replica_set() {
        let all = vec![replica_set("a", "nginx:1", json!({})), replica_set("b", "nginx:2", json!({}))];
        let (new, old) = split_replica_sets(&deployment("nginx:2"), all.clone());
        assert_eq!((new.unwrap().metadata.name.as_deref(), old.len()), (Some("b"), 1));
        assert!(split_replica_sets(&deployment("nginx:3"), all).0.is_none());
    }

    #[test]
    fn revision_that_is_no_number_is_left_alone() {
        let mut odd = replica_set("a", "nginx:1", json!({REVISION_ANNOTATION: "odd"}));
        let before = odd.clone();
        assert!(!set_replica_set_annotations(&mut odd, &deployment("nginx:1"), 3));
        assert_eq!(odd, before);
    }

    #[test]
    fn last_revision_is_the_second_highest() {
        let all =
            ["3", "x", "7", "5"].map(|revision| replica_set(revision, "i", json!({REVISION_ANNOTATION: revision})));
        assert_eq!((last_revision(&all), last_revision(&all[..1])), (5, 0));
    }

    #[test]
    fn rollback_restores_template_and_annotations() {
        let mut deployment = deployment("nginx:2");
        deployment.metadata.annotations.as_mut().unwrap().insert(ROLLBACK_ANNOTATION.into(), "1".into());
        assert_eq!(rollback_revision(&deployment), Some(1));
        let old = replica_set("a", "nginx:1", json!({REVISION_ANNOTATION: "1", "note": "first"}));
        restore_replica_set(&mut deployment, &old);
        clear_rollback(&mut deployment);
        let annotations = serde_json::to_value(&deployment.metadata.annotations).unwrap();
        assert_eq!(annotations, json!({"note": "first", REVISION_ANNOTATION: "9"}));
        let template = &deployment.spec.as_ref().unwrap().template;
        assert!(is_same_template(template, old.spec.as_ref().unwrap().template.as_ref().unwrap()));
        assert!(!template.metadata.as_ref().unwrap().labels.as_ref().unwrap().contains_key(HASH_LABEL));
    }

    #[test]
    fn rollback_gets_a_new_revision_and_keeps_history() {
        let old = [replica_set("b", "nginx:2", json!({REVISION_ANNOTATION: "2"}))];
        let mut back = replica_set("a", "nginx:1", json!({REVISION_ANNOTATION: "1"}));
        assert!(set_replica_set_annotations(&mut back, &deployment("nginx:1"), next_revision(&old)));
        let annotations = back.metadata.annotations.clone().unwrap();
        assert_eq!(
            (annotations[REVISION_ANNOTATION].as_str(), annotations[REVISION_HISTORY_ANNOTATION].as_str()),
            ("3", "1")
        );
        assert_eq!(annotations["kubernetes.io/change-cause"], "because");
        assert!(!set_replica_set_annotations(&mut back, &deployment("nginx:1"), 3));
        assert!(
            set_replicas_annotations(&mut back, &deployment("nginx:1"))
                && !set_replicas_annotations(&mut back, &deployment("nginx:1"))
        );
        assert_eq!((recorded_desired_replicas(&back), recorded_max_replicas(&back)), (Some(3), Some(3)));
    }
}
