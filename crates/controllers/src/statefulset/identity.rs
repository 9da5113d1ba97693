//! Identity of a StatefulSet's pods: ordinals, names, labels and the volumes of their claims.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetUpdateStrategy},
        core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, Volume},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{pod_control::pod_from_template, pod_view::PodView};

const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";
const REVISION_LABEL: &str = "controller-revision-hash";

/// Returns `spec.replicas`.
pub(super) fn desired_replicas(set: &StatefulSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Returns `spec.minReadySeconds`.
pub(super) fn min_ready_seconds(set: &StatefulSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
}

/// Whether pods are created and deleted without waiting for each other.
pub(super) fn is_parallel(set: &StatefulSet) -> bool {
    set.spec.as_ref().and_then(|spec| spec.pod_management_policy.as_deref()) == Some("Parallel")
}

fn update_strategy(set: &StatefulSet) -> Option<&StatefulSetUpdateStrategy> {
    set.spec.as_ref()?.update_strategy.as_ref()
}

/// Whether the update strategy has this type.
pub(super) fn has_strategy(set: &StatefulSet, type_: &str) -> bool {
    update_strategy(set).and_then(|strategy| strategy.type_.as_deref()) == Some(type_)
}

/// Returns the partition of a rolling update; `None` without `rollingUpdate`.
pub(super) fn partition(set: &StatefulSet) -> Option<i32> {
    update_strategy(set)?.rolling_update.as_ref().map(|rolling| rolling.partition.unwrap_or(0))
}

/// Returns the first ordinal.
pub(super) fn start_ordinal(set: &StatefulSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.ordinals.as_ref()).and_then(|ordinals| ordinals.start).unwrap_or(0)
}

/// Whether the set has a replica with this ordinal.
pub(super) fn is_in_range(set: &StatefulSet, ordinal: i32) -> bool {
    replica_index(set, ordinal).is_some()
}

/// Returns the position of the replica with this ordinal.
pub(super) fn replica_index(set: &StatefulSet, ordinal: i32) -> Option<usize> {
    let index = ordinal.checked_sub(start_ordinal(set)).filter(|index| *index < desired_replicas(set))?;
    usize::try_from(index).ok()
}

/// Splits a pod's name into that of its set and its ordinal, which is `None` if it is too large.
fn parent_and_ordinal(pod: &ObjectMeta) -> Option<(&str, Option<i32>)> {
    let (parent, digits) = pod.name.as_deref()?.rsplit_once('-')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| (parent, digits.parse().ok()))
}

/// Returns the pod's ordinal; `None` if its name has none.
pub(super) fn ordinal_of(pod: &ObjectMeta) -> Option<i32> {
    parent_and_ordinal(pod)?.1
}

/// Whether the pod's name derives from the set's.
pub(super) fn is_member(set: &StatefulSet, pod: &ObjectMeta) -> bool {
    parent_and_ordinal(pod).map(|(parent, _)| parent).unwrap_or("") == set.metadata.name.as_deref().unwrap_or("")
}

/// Returns the revision label of a pod; empty if absent.
pub(super) fn revision_of(pod: &PodView) -> &str {
    label(&pod.metadata, REVISION_LABEL).unwrap_or("")
}

fn label<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(name).map(String::as_str)
}

fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", set.metadata.name.as_deref().unwrap_or(""))
}

/// Returns the name of a pod's claim for a template.
pub(super) fn claim_name(set: &StatefulSet, template: &PersistentVolumeClaim, ordinal: i32) -> String {
    format!("{}-{}", template.metadata.name.as_deref().unwrap_or(""), pod_name(set, ordinal))
}

/// Returns the claim templates.
pub(super) fn claim_templates(set: &StatefulSet) -> &[PersistentVolumeClaim] {
    set.spec.as_ref().and_then(|spec| spec.volume_claim_templates.as_deref()).unwrap_or(&[])
}

/// Builds the claims of the pod with this ordinal, in the order of their templates.
pub(super) fn claims_of(set: &StatefulSet, ordinal: i32) -> Vec<PersistentVolumeClaim> {
    let selected = set.spec.as_ref().and_then(|spec| spec.selector.match_labels.clone());
    let build = |template: &PersistentVolumeClaim| {
        let mut claim = template.clone();
        claim.metadata.name = Some(claim_name(set, template, ordinal));
        claim.metadata.namespace = set.metadata.namespace.clone();
        match &mut claim.metadata.labels {
            Some(labels) => labels.extend(selected.clone().unwrap_or_default()),
            labels => *labels = selected.clone(),
        }
        claim
    };
    claim_templates(set).iter().map(build).collect()
}

/// Whether the pod has the name and label of a member of the set.
pub(super) fn identity_matches(set: &StatefulSet, pod: &ObjectMeta) -> bool {
    let name = ordinal_of(pod).map(|ordinal| pod_name(set, ordinal));
    name.is_some()
        && name == pod.name
        && pod.namespace == set.metadata.namespace
        && label(pod, POD_NAME_LABEL) == name.as_deref()
}

/// Whether the pod's volumes include the claims of the set.
pub(super) fn storage_matches(set: &StatefulSet, pod: &PodView) -> bool {
    let Some(ordinal) = ordinal_of(&pod.metadata) else { return false };
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or(&[]);
    claim_templates(set).iter().all(|template| {
        // The last of several volumes with one name counts.
        let volume = volumes.iter().rfind(|volume| Some(&volume.name) == template.metadata.name.as_ref());
        let claim = volume.and_then(|volume| volume.persistent_volume_claim.as_ref());
        claim.is_some_and(|claim| claim.claim_name == claim_name(set, template, ordinal))
    })
}

/// Sets the name and labels of a member of the set.
pub(super) fn update_identity(set: &StatefulSet, pod: &mut Pod) {
    let ordinal = ordinal_of(&pod.metadata).unwrap_or(-1);
    let name = pod_name(set, ordinal);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME_LABEL.into(), name.clone());
    labels.insert(POD_INDEX_LABEL.into(), ordinal.to_string());
    pod.metadata.name = Some(name);
    pod.metadata.namespace = set.metadata.namespace.clone();
}

/// Replaces the volumes with the names of claim templates by the pod's claims.
pub(super) fn update_storage(set: &StatefulSet, pod: &mut Pod) {
    let ordinal = ordinal_of(&pod.metadata).unwrap_or(-1);
    let volume = |template: &PersistentVolumeClaim| {
        let name = template.metadata.name.clone().unwrap_or_default();
        let claim_name = claim_name(set, template, ordinal);
        let persistent_volume_claim = Some(PersistentVolumeClaimVolumeSource { claim_name, read_only: None });
        (name.clone(), Volume { name, persistent_volume_claim, ..Default::default() })
    };
    let claims: BTreeMap<String, Volume> = claim_templates(set).iter().map(volume).collect();
    let spec = pod.spec.get_or_insert_default();
    let others =
        spec.volumes.take().unwrap_or_default().into_iter().filter(|volume| !claims.contains_key(&volume.name));
    let others: Vec<Volume> = others.collect();
    let volumes: Vec<Volume> = claims.into_values().chain(others).collect();
    spec.volumes = (!volumes.is_empty()).then_some(volumes);
}

/// A set restored to one of its revisions.
pub(super) struct RevisedSet {
    /// The set with the revision's template.
    pub(super) set: StatefulSet,
    /// The revision's name.
    pub(super) revision: String,
}

/// Builds the pod for a missing replica: at the current revision below the partition, otherwise at the update revision.
pub(super) fn new_versioned_pod(current: &RevisedSet, update: &RevisedSet, ordinal: i32) -> Pod {
    let start = start_ordinal(&current.set);
    let replicas = current.set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or(0);
    let keeps_current = match partition(&current.set) {
        Some(partition) => ordinal < start.saturating_add(partition),
        None => has_strategy(&current.set, "RollingUpdate") && ordinal < start.saturating_add(replicas),
    };
    new_pod(if keeps_current { current } else { update }, ordinal)
}

fn new_pod(revised: &RevisedSet, ordinal: i32) -> Pod {
    let none = StatefulSetSpec::default();
    let spec = revised.set.spec.as_ref().unwrap_or(&none);
    let mut pod = pod_from_template(&spec.template, &revised.set);
    pod.metadata.name = Some(pod_name(&revised.set, ordinal));
    update_identity(&revised.set, &mut pod);
    let pod_spec = pod.spec.get_or_insert_default();
    pod_spec.hostname = pod.metadata.name.clone();
    pod_spec.subdomain = spec.service_name.clone();
    update_storage(&revised.set, &mut pod);
    pod.metadata.labels.get_or_insert_default().insert(REVISION_LABEL.into(), revised.revision.clone());
    pod
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(extra: Value) -> StatefulSet {
        let mut object = json!({"metadata": {"name": "web", "namespace": "ns", "uid": "u"}, "spec": {"replicas": 3,
            "serviceName": "svc", "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [],
                "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": {"tier": "db"}}}, {"metadata": {"name": "logs"}}]}});
        for (name, value) in extra.as_object().unwrap() {
            object["spec"][name] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    fn pod(name: &str) -> ObjectMeta {
        ObjectMeta { name: Some(name.into()), namespace: Some("ns".into()), ..Default::default() }
    }

    #[test]
    fn names_have_a_parent_and_an_ordinal() {
        let set = set(json!({}));
        let check = |name: &str, member: bool, ordinal: Option<i32>| {
            assert_eq!((is_member(&set, &pod(name)), ordinal_of(&pod(name))), (member, ordinal), "{name}");
        };
        check("web-0", true, Some(0));
        check("web-12", true, Some(12));
        check("web-x", false, None);
        check("web-a-1", false, Some(1));
        check("web-", false, None);
        check("web", false, None);
        check("web-99999999999", true, None);
    }

    #[test]
    fn ordinals_start_where_the_set_says() {
        let set = set(json!({"ordinals": {"start": 5}}));
        assert_eq!([4, 5, 7, 8].map(|ordinal| replica_index(&set, ordinal)), [None, Some(0), Some(2), None]);
    }

    #[test]
    fn new_pod_has_identity_storage_and_revision() {
        let set = set(json!({}));
        let revised = |revision: &str| RevisedSet { set: set.clone(), revision: revision.into() };
        let pod = new_versioned_pod(&revised("web-a"), &revised("web-b"), 2);
        let value = serde_json::to_value(&pod).unwrap();
        assert_eq!(value["metadata"]["name"], "web-2");
        assert_eq!(
            value["metadata"]["labels"],
            json!({"app": "web", POD_NAME_LABEL: "web-2", POD_INDEX_LABEL: "2", REVISION_LABEL: "web-b"})
        );
        assert_eq!((&value["spec"]["hostname"], &value["spec"]["subdomain"]), (&json!("web-2"), &json!("svc")));
        assert_eq!(
            value["spec"]["volumes"],
            json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-2"}},
                {"name": "logs", "persistentVolumeClaim": {"claimName": "logs-web-2"}}, {"name": "tmp", "emptyDir": {}}])
        );
        let view = |pod: &Pod| -> PodView { serde_json::from_value(json!(pod)).unwrap() };
        assert!(identity_matches(&set, &pod.metadata) && storage_matches(&set, &view(&pod)));
        let mut moved = pod.clone();
        moved.spec.as_mut().unwrap().volumes = None;
        moved.metadata.labels.as_mut().unwrap().remove(POD_NAME_LABEL);
        assert!(!identity_matches(&set, &moved.metadata) && !storage_matches(&set, &view(&moved)));
    }

    #[test]
    fn claims_have_the_labels_of_template_and_selector() {
        let claims = serde_json::to_value(claims_of(&set(json!({})), 1)).unwrap();
        assert_eq!(claims[0]["metadata"]["labels"], json!({"app": "web", "tier": "db"}));
        assert_eq!(
            (&claims[1]["metadata"]["name"], &claims[1]["metadata"]["labels"]),
            (&json!("logs-web-1"), &json!({"app": "web"}))
        );
    }

    #[test]
    fn partition_or_current_replicas_choose_the_revision() {
        let check = |strategy: Value, current_replicas: i32, expected: [&str; 3]| {
            let mut set = set(json!({"updateStrategy": strategy}));
            set.status = serde_json::from_value(json!({"replicas": 3, "currentReplicas": current_replicas})).unwrap();
            let revised = |revision: &str| RevisedSet { set: set.clone(), revision: revision.into() };
            let got = [0, 1, 2].map(|ordinal| {
                let pod = new_versioned_pod(&revised("a"), &revised("b"), ordinal);
                pod.metadata.labels.unwrap()[REVISION_LABEL].clone()
            });
            assert_eq!(got, expected);
        };
        check(json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}), 0, ["a", "a", "b"]);
        check(json!({"type": "RollingUpdate"}), 1, ["a", "b", "b"]);
        check(json!({"type": "OnDelete"}), 3, ["b", "b", "b"]);
    }
}
