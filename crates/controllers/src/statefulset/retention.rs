//! The retention policy of claims, enforced by their owner references: whatever owns a claim takes it along when it is
//! deleted.

use k8s_openapi::{
    api::{apps::v1::StatefulSet, core::v1::PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::Resource;

use super::identity;
use crate::controller_ref::new_controller_ref;
use crate::pod_view::PodView;

/// Whether claims are deleted when the pod is scaled down, and when the set is deleted.
struct RetentionPolicy {
    delete_when_scaled: bool,
    delete_when_deleted: bool,
}

fn retention_policy(set: &StatefulSet) -> RetentionPolicy {
    let policy = set.spec.as_ref().and_then(|spec| spec.persistent_volume_claim_retention_policy.as_ref());
    let is_delete = |when: Option<&String>| when.is_some_and(|when| when == "Delete");
    RetentionPolicy {
        delete_when_scaled: is_delete(policy.and_then(|policy| policy.when_scaled.as_ref())),
        delete_when_deleted: is_delete(policy.and_then(|policy| policy.when_deleted.as_ref())),
    }
}

/// Whether claims go with a pod that is scaled down.
pub(super) fn deletes_when_scaled(set: &StatefulSet) -> bool {
    retention_policy(set).delete_when_scaled
}

fn owners(claim: &PersistentVolumeClaim) -> &[OwnerReference] {
    claim.metadata.owner_references.as_deref().unwrap_or(&[])
}

/// Whether a reference names the object, with any uid.
fn names_object<K: Resource<DynamicType = ()>>(reference: &OwnerReference, object: &K) -> bool {
    reference.api_version == K::api_version(&())
        && reference.kind == K::kind(&())
        && Some(&reference.name) == object.meta().name.as_ref()
}

fn uid_of(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or("")
}

fn is_owner(claim: &PersistentVolumeClaim, owner: &ObjectMeta) -> bool {
    owners(claim).iter().any(|reference| reference.uid == uid_of(owner))
}

/// Whether the claim is owned by an earlier object of this name.
pub(super) fn has_stale_owner<K: Resource<DynamicType = ()>>(claim: &PersistentVolumeClaim, object: &K) -> bool {
    let reference = owners(claim).iter().find(|reference| names_object(reference, object));
    reference.is_some_and(|reference| reference.uid != uid_of(object.meta()))
}

/// Whether something else than the set and the pod controls the claim, which matters unless claims are retained.
pub(super) fn has_unexpected_controller(claim: &PersistentVolumeClaim, set: &StatefulSet, pod: &PodView) -> bool {
    let policy = retention_policy(set);
    if !policy.delete_when_scaled && !policy.delete_when_deleted {
        return false;
    }
    owners(claim).iter().any(|reference| {
        if names_object(reference, set) {
            reference.uid != uid_of(&set.metadata)
        } else if names_object(reference, pod) {
            reference.uid != uid_of(&pod.metadata)
        } else {
            reference.controller == Some(true)
        }
    })
}

/// Whether the set and the pod should own the claim.
fn desired_owners(set: &StatefulSet, pod: &PodView) -> (bool, bool) {
    let policy = retention_policy(set);
    let scaled_down = !identity::ordinal_of(&pod.metadata).is_some_and(|ordinal| identity::is_in_range(set, ordinal));
    let pod_owns = policy.delete_when_scaled && scaled_down;
    (policy.delete_when_deleted && !pod_owns, pod_owns)
}

/// Whether the claim's owners follow the policy. A claim with stale owners or another controller counts as such unless
/// the set or the pod owns it too.
pub(super) fn is_claim_up_to_date(claim: &PersistentVolumeClaim, set: &StatefulSet, pod: &PodView) -> bool {
    if has_stale_owner(claim, set) || has_stale_owner(claim, pod) {
        return true;
    }
    let owned = (is_owner(claim, &set.metadata), is_owner(claim, &pod.metadata));
    if has_unexpected_controller(claim, set, pod) {
        return owned == (false, false);
    }
    let is_ours =
        |reference: &&OwnerReference| reference.uid == uid_of(&set.metadata) || reference.uid == uid_of(&pod.metadata);
    let all_control = owners(claim).iter().filter(is_ours).all(|reference| reference.controller == Some(true));
    all_control && owned == desired_owners(set, pod)
}

/// Sets the claim's owners according to the policy; another controller stays alone.
pub(super) fn update_claim_owners(claim: &mut PersistentVolumeClaim, set: &StatefulSet, pod: &PodView) {
    let has_other_controller = has_unexpected_controller(claim, set, pod);
    let mut references = claim.metadata.owner_references.take().unwrap_or_default();
    references.retain(|reference| !names_object(reference, set) && !names_object(reference, pod));
    if !has_other_controller {
        let (set_owns, pod_owns) = desired_owners(set, pod);
        let wanted = [set_owns.then(|| new_controller_ref(set)), pod_owns.then(|| new_controller_ref(pod))];
        for reference in wanted.into_iter().flatten() {
            if references.iter().all(|other| other.uid != reference.uid) {
                references.push(reference);
            }
        }
    }
    claim.metadata.owner_references = (!references.is_empty()).then_some(references);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(scaled: &str, deleted: &str) -> StatefulSet {
        let policy = json!({"whenScaled": scaled, "whenDeleted": deleted});
        serde_json::from_value(
            json!({"metadata": {"name": "web", "uid": "set"}, "spec": {"replicas": 1, "selector": {},
            "template": {}, "persistentVolumeClaimRetentionPolicy": policy}}),
        )
        .unwrap()
    }

    fn pod(ordinal: i32) -> PodView {
        serde_json::from_value(json!({"metadata": {"name": format!("web-{ordinal}"), "uid": "pod"}})).unwrap()
    }

    fn reference(kind: &str, name: &str, uid: &str, controller: bool) -> Value {
        let version = if kind == "StatefulSet" { "apps/v1" } else { "v1" };
        json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": controller})
    }

    fn claim(owners: Value) -> PersistentVolumeClaim {
        serde_json::from_value(json!({"metadata": {"name": "data", "ownerReferences": owners}})).unwrap()
    }

    /// Checks the uids of the owners of a claim that had none.
    fn check(scaled: &str, deleted: &str, ordinal: i32, expected: &[&str]) {
        let (set, pod, mut claim) = (set(scaled, deleted), pod(ordinal), claim(json!([])));
        assert_eq!(is_claim_up_to_date(&claim, &set, &pod), expected.is_empty(), "{scaled} {deleted} {ordinal}");
        update_claim_owners(&mut claim, &set, &pod);
        let uids: Vec<_> = owners(&claim).iter().map(|owner| owner.uid.as_str()).collect();
        assert_eq!(uids, expected, "{scaled} {deleted} {ordinal}");
        assert!(is_claim_up_to_date(&claim, &set, &pod));
    }

    #[test]
    fn owners_follow_the_policy() {
        check("Retain", "Retain", 0, &[]);
        check("Retain", "Retain", 1, &[]);
        check("Retain", "Delete", 0, &["set"]);
        check("Retain", "Delete", 1, &["set"]);
        check("Delete", "Retain", 0, &[]);
        check("Delete", "Retain", 1, &["pod"]);
        check("Delete", "Delete", 0, &["set"]);
        check("Delete", "Delete", 1, &["pod"]);
    }

    #[test]
    fn earlier_owners_are_removed() {
        let mut claim = claim(json!([reference("StatefulSet", "web", "set", true)]));
        let (set, pod) = (set("Retain", "Retain"), pod(0));
        assert!(!is_claim_up_to_date(&claim, &set, &pod));
        update_claim_owners(&mut claim, &set, &pod);
        assert!(owners(&claim).is_empty());
    }

    #[test]
    fn stale_owners_are_left_alone() {
        let stale = claim(json!([reference("Pod", "web-0", "earlier", true)]));
        assert!(is_claim_up_to_date(&stale, &set("Delete", "Delete"), &pod(0)));
        assert!(has_stale_owner(&stale, &pod(0)) && !has_stale_owner(&stale, &pod(1)));
    }

    #[test]
    fn another_controller_stays_alone() {
        let other = reference("Pod", "other", "other", true);
        let (set, pod) = (set("Retain", "Delete"), pod(0));
        assert!(is_claim_up_to_date(&claim(json!([other])), &set, &pod));
        let mut both = claim(json!([other, reference("StatefulSet", "web", "set", true)]));
        assert!(!is_claim_up_to_date(&both, &set, &pod));
        update_claim_owners(&mut both, &set, &pod);
        assert_eq!(owners(&both).len(), 1);
    }

    #[test]
    fn owner_that_does_not_control_is_replaced() {
        let mut claim = claim(json!([reference("StatefulSet", "web", "set", false)]));
        let (set, pod) = (set("Retain", "Delete"), pod(0));
        assert!(!is_claim_up_to_date(&claim, &set, &pod));
        update_claim_owners(&mut claim, &set, &pod);
        assert_eq!(owners(&claim)[0].controller, Some(true));
    }
}
