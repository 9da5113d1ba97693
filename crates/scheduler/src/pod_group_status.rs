//! The PodGroupScheduled condition of pod groups.

use std::sync::Arc;

use client::ApiErrorExt;
use jiff::Timestamp;
use k8s_openapi::{api::scheduling::v1alpha2::PodGroup, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{handle::SchedulerHandle, views::pod_info::PodInfo};

const CONDITION_TYPE: &str = "PodGroupScheduled";

/// State of the PodGroupScheduled condition.
#[derive(Debug)]
pub struct PodGroupCondition {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl PodGroupCondition {
    /// Creates a state.
    pub fn new(status: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { status, reason, message: message.into() }
    }
}

/// Writes the condition of the group that a pod belongs to, in the background, unless it is as wanted.
pub fn write_pod_group_condition(handle: &Arc<SchedulerHandle>, member: &PodInfo, condition: PodGroupCondition) {
    let (Some(groups), Some(name)) = (&handle.objects.pod_groups, &member.class.pod_group) else { return };
    let Some(group) = groups.get(&member.class.namespace, name) else {
        tracing::warn!(namespace = &*member.class.namespace, pod_group = &**name, "scheduler: pod group not found");
        return;
    };
    let Some(patch) = condition_patch(&group, &condition, Timestamp::now()) else { return };
    let api: Api<PodGroup> = Api::namespaced(handle.client.clone(), &member.class.namespace);
    let name = name.clone();
    handle.runtime.spawn(async move {
        let result = api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&patch)).await;
        if let Err(error) = result
            && !error.is_not_found()
        {
            tracing::warn!(pod_group = &*name, %error, "scheduler: condition not written");
        }
    });
}

/// Returns the patch; `None` if nothing changes, or if the group was scheduled before and only some of its pods fail now.
fn condition_patch(group: &PodGroup, wanted: &PodGroupCondition, now: Timestamp) -> Option<Value> {
    let conditions = group.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let known = conditions.iter().find(|condition| condition.type_ == CONDITION_TYPE);
    let generation = group.metadata.generation.unwrap_or(0);
    if let Some(known) = known {
        let is_same = known.status == wanted.status
            && known.reason == wanted.reason
            && known.message == wanted.message
            && known.observed_generation.unwrap_or(0) == generation;
        if is_same || known.status == "True" && wanted.status != "True" {
            return None;
        }
    }
    let since = known.filter(|known| known.status == wanted.status).map(|known| known.last_transition_time.0);
    Some(json!({"status": {"conditions": [{
        "type": CONDITION_TYPE,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": wanted.message,
        "observedGeneration": generation,
        "lastTransitionTime": Time(since.unwrap_or(now)),
    }]}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(known: Value, wanted: &PodGroupCondition, expected_time: Option<&str>) {
        let group =
            json!({"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {}}, "status": {"conditions": known}});
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let patch = condition_patch(&serde_json::from_value(group).unwrap(), wanted, now);
        let time = patch.map(|patch| patch["status"]["conditions"][0]["lastTransitionTime"].clone());
        assert_eq!(time, expected_time.map(Value::from));
    }

    #[test]
    fn scheduled_group_stays_scheduled() {
        let failed = PodGroupCondition::new("False", "Unschedulable", "no");
        let known = |status: &str, reason: &str, message: &str| {
            json!([{"type": CONDITION_TYPE, "status": status, "reason": reason, "message": message,
                "observedGeneration": 0, "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        check(json!([]), &failed, Some("2026-01-02T03:04:05Z"));
        check(known("False", "Unschedulable", "no"), &failed, None);
        check(known("False", "Unschedulable", "other"), &failed, Some("2026-01-01T00:00:00Z"));
        check(known("True", "Scheduled", ""), &failed, None);
        let scheduled = PodGroupCondition::new("True", "Scheduled", "");
        check(known("False", "Unschedulable", "no"), &scheduled, Some("2026-01-02T03:04:05Z"));
    }
}
