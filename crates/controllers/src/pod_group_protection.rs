//! podgroup-protection-controller: removes the protection finalizer of deleted PodGroups that no active pod refers to,
//! where the API server has PodGroups.

use client::{RequeueAction, ResourceEvent, SharedInformer};
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;
use kube::{Api, Client, api::PostParams};

use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    discovery::check_served,
    object_key::ObjectKey,
    pod_availability::is_pod_terminal,
    pod_view::PodView,
};

const FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";
/// Index of pods that have not ended, by their PodGroup.
const ACTIVE_PODS_BY_GROUP: &str = "activePodGroup";

struct PodGroupProtectionController {
    client: Client,
    groups: SharedInformer<PodGroup>,
    pods: SharedInformer<PodView>,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let served = check_served::<PodGroup>(context.informers.client());
    if context.shutdown.run_until_cancelled(served).await != Some(true) {
        return;
    }
    let build = |_| PodGroupProtectionController {
        groups: context.informers.informer_for(),
        pods: context.informers.informer_for(),
        client: context.client.clone(),
    };
    run_controller(&context, build).await;
}

impl Controller for PodGroupProtectionController {
    type Key = ObjectKey;
    type Error = kube::Error;
    const WORKERS: usize = 1;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        self.pods.add_index(ACTIVE_PODS_BY_GROUP, |pod| active_group(pod).iter().map(ToString::to_string).collect());
        watches.add(&self.groups, |_, event, queue| {
            if !matches!(event, ResourceEvent::Deleted(_)) && is_protected_deletion(event.object()) {
                queue.add(ObjectKey::from_object(event.object().as_ref()));
            }
        });
        watches.add(&self.pods, |_, event, queue| {
            if matches!(event, ResourceEvent::Deleted(_)) || is_pod_terminal(event.object()) {
                pod_group(event.object()).into_iter().for_each(|group| queue.add(group));
            }
        });
    }

    async fn sync(&self, key: &ObjectKey) -> Result<RequeueAction, kube::Error> {
        let group = self.groups.get(&key.namespace, &key.name).filter(|group| is_protected_deletion(group));
        let Some(group) = group else { return Ok(RequeueAction::AwaitChange) };
        if self.pods.by_index(ACTIVE_PODS_BY_GROUP, &key.to_string()).is_empty() {
            let api: Api<PodGroup> = Api::namespaced(self.client.clone(), &key.namespace);
            api.replace(&key.name, &PostParams::default(), &without_finalizer(&group)).await?;
        }
        Ok(RequeueAction::AwaitChange)
    }
}

/// The PodGroup that a pod refers to.
fn pod_group(pod: &PodView) -> Option<ObjectKey> {
    let name = pod.spec.as_ref()?.scheduling_group.as_ref()?.pod_group_name.as_deref()?;
    Some(ObjectKey::new(pod.metadata.namespace.as_deref().unwrap_or_default(), name))
}

fn active_group(pod: &PodView) -> Option<ObjectKey> {
    pod_group(pod).filter(|_| !is_pod_terminal(pod))
}

/// Whether the PodGroup is being deleted and still has the finalizer.
fn is_protected_deletion(group: &PodGroup) -> bool {
    let mut finalizers = group.metadata.finalizers.iter().flatten();
    group.metadata.deletion_timestamp.is_some() && finalizers.any(|finalizer| finalizer == FINALIZER)
}

fn without_finalizer(group: &PodGroup) -> PodGroup {
    let mut released = group.clone();
    released.metadata.finalizers.iter_mut().for_each(|finalizers| finalizers.retain(|name| name != FINALIZER));
    released
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_pods_that_have_not_ended_use_their_group() {
        let pod = |spec: Value, phase: &str| -> PodView {
            let meta = json!({"name": "p", "namespace": "ns"});
            serde_json::from_value(json!({"metadata": meta, "spec": spec, "status": {"phase": phase}})).unwrap()
        };
        let grouped = json!({"containers": [], "schedulingGroup": {"podGroupName": "g"}});
        assert_eq!(active_group(&pod(grouped.clone(), "Running")), Some(ObjectKey::new("ns", "g")));
        assert_eq!(active_group(&pod(grouped.clone(), "Failed")), None);
        assert_eq!(pod_group(&pod(grouped, "Failed")), Some(ObjectKey::new("ns", "g")));
        assert_eq!(pod_group(&pod(json!({"containers": []}), "Running")), None);
    }

    #[test]
    fn finalizer_of_a_deleted_group_is_removed_and_others_are_kept() {
        let group = |deleted: Value| -> PodGroup {
            let meta = json!({"name": "g", "finalizers": [FINALIZER, "other"], "deletionTimestamp": deleted});
            serde_json::from_value(json!({"metadata": meta, "spec": {"schedulingPolicy": {}}})).unwrap()
        };
        assert!(!is_protected_deletion(&group(json!(null))));
        let deleted = group(json!("1970-01-01T00:00:00Z"));
        assert!(is_protected_deletion(&deleted));
        let released = without_finalizer(&deleted);
        assert_eq!(released.metadata.finalizers, Some(vec!["other".into()]));
        assert!(!is_protected_deletion(&released));
    }
}
