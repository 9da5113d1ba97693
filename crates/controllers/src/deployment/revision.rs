//! Revisions: which ReplicaSet has the Deployment's template, and the annotations that number and describe them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::PodTemplateSpec,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::limits::{desired, max_surge};

pub(super) const HASH_LABEL: &str = "pod-template-hash";
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// Annotations of a Deployment that its ReplicaSets do not get.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];
/// The revision history annotation does not grow beyond this.
const HISTORY_LENGTH: usize = 2000;

/// The ReplicaSet with the Deployment's template (the oldest, if there are several) and all others, oldest first.
pub(super) fn split(deployment: &Deployment, mut all: Vec<ReplicaSet>) -> (Option<ReplicaSet>, Vec<ReplicaSet>) {
    all.sort_by(oldest_first);
    let template = deployment.spec.as_ref().map(|spec| &spec.template);
    let new = all.iter().position(|replica_set| {
        let other = replica_set.spec.as_ref().and_then(|spec| spec.template.as_ref());
        template.zip(other).is_some_and(|(a, b)| same_template(a, b))
    });
    (new.map(|index| all.remove(index)), all)
}

/// By time of creation, then by name.
pub(super) fn oldest_first(a: &ReplicaSet, b: &ReplicaSet) -> std::cmp::Ordering {
    let key = |rs: &ReplicaSet| rs.metadata.creation_timestamp.as_ref().map(|time| time.0);
    key(a).cmp(&key(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name))
}

/// Whether two templates make the same pods; the hash label does not count.
pub(super) fn same_template(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    without_hash(a.metadata.as_ref()) == without_hash(b.metadata.as_ref()) && a.spec == b.spec
}

/// Absent and empty maps are the same.
fn without_hash(meta: Option<&ObjectMeta>) -> ObjectMeta {
    let mut meta = meta.cloned().unwrap_or_default();
    let mut labels = meta.labels.take().unwrap_or_default();
    labels.remove(HASH_LABEL);
    meta.labels = Some(labels);
    meta.annotations.get_or_insert_default();
    meta
}

/// The revision that the ReplicaSet says it is; zero if it does not say.
pub(super) fn of(meta: &ObjectMeta) -> i64 {
    annotation(meta, REVISION).and_then(|revision| revision.parse().ok()).unwrap_or(0)
}

/// The revision that follows those of `old`.
pub(super) fn next(old: &[ReplicaSet]) -> i64 {
    old.iter().map(|replica_set| of(&replica_set.metadata)).max().unwrap_or(0) + 1
}

/// For how many replicas of the Deployment the ReplicaSet was last sized.
pub(super) fn sized_for(replica_set: &ReplicaSet) -> Option<i32> {
    annotation(&replica_set.metadata, DESIRED)?.parse().ok().filter(|size| *size >= 0)
}

/// The most pods that the Deployment could have when the ReplicaSet was last sized.
pub(super) fn sized_up_to(replica_set: &ReplicaSet) -> Option<i32> {
    annotation(&replica_set.metadata, MAX)?.parse().ok().filter(|size| *size >= 0)
}

fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Notes in the ReplicaSet for what size of the Deployment it was sized; says whether that is new.
pub(super) fn note_size(replica_set: &mut ReplicaSet, deployment: &Deployment) -> bool {
    let annotations = replica_set.metadata.annotations.get_or_insert_default();
    let (wanted, most) = (desired(deployment), desired(deployment) + max_surge(deployment));
    set(annotations, DESIRED, wanted.to_string()) | set(annotations, MAX, most.to_string())
}

/// Gives the ReplicaSet the Deployment's annotations and at least this revision; says whether that changed it. A
/// ReplicaSet that becomes the newest again keeps its earlier revisions in its history.
pub(super) fn annotate(replica_set: &mut ReplicaSet, deployment: &Deployment, revision: i64) -> bool {
    let old = of(&replica_set.metadata);
    let had_revision = annotation(&replica_set.metadata, REVISION).is_some();
    let annotations = replica_set.metadata.annotations.get_or_insert_default();
    let mut changed = false;
    for (name, value) in deployment.metadata.annotations.iter().flatten() {
        changed |= !NOT_COPIED.contains(&name.as_str()) && set(annotations, name, value.clone());
    }
    if old < revision {
        annotations.insert(REVISION.into(), revision.to_string());
        if had_revision {
            remember(annotations, old);
        }
        changed = true;
    }
    changed
}

/// Adds a revision to the history, dropping the oldest ones when it becomes too long.
fn remember(annotations: &mut BTreeMap<String, String>, revision: i64) {
    let mut history: Vec<String> =
        annotations.get(HISTORY).into_iter().flat_map(|all| all.split(',')).map(Into::into).collect();
    history.push(revision.to_string());
    while history.len() > 1 && history.join(",").len() > HISTORY_LENGTH {
        history.remove(0);
    }
    annotations.insert(HISTORY.into(), history.join(","));
}

fn set(annotations: &mut BTreeMap<String, String>, name: &str, value: String) -> bool {
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
        let annotations = json!({"kubernetes.io/change-cause": "because", REVISION: "9"});
        serde_json::from_value(json!({"metadata": {"annotations": annotations}, "spec": {"replicas": 3, "selector": {}, "template": template}}))
            .unwrap()
    }

    #[test]
    fn the_template_finds_its_replica_set() {
        let all = vec![replica_set("a", "nginx:1", json!({})), replica_set("b", "nginx:2", json!({}))];
        let (new, old) = split(&deployment("nginx:2"), all.clone());
        assert_eq!((new.unwrap().metadata.name.as_deref(), old.len()), (Some("b"), 1));
        assert!(split(&deployment("nginx:3"), all).0.is_none());
    }

    #[test]
    fn going_back_makes_a_new_revision_and_keeps_history() {
        let old = [replica_set("b", "nginx:2", json!({REVISION: "2"}))];
        let mut back = replica_set("a", "nginx:1", json!({REVISION: "1"}));
        assert!(annotate(&mut back, &deployment("nginx:1"), next(&old)));
        let annotations = back.metadata.annotations.clone().unwrap();
        assert_eq!((annotations[REVISION].as_str(), annotations[HISTORY].as_str()), ("3", "1"));
        assert_eq!(annotations["kubernetes.io/change-cause"], "because");
        assert!(!annotate(&mut back, &deployment("nginx:1"), 3));
        assert!(note_size(&mut back, &deployment("nginx:1")) && !note_size(&mut back, &deployment("nginx:1")));
        assert_eq!((sized_for(&back), sized_up_to(&back)), (Some(3), Some(3)));
    }
}
