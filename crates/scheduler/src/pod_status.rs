//! Changes of a pod's status: conditions and the nominated node.

use std::time::Duration;

use client::ApiErrorExt;
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    framework::extension_points::NominatingInfo,
    views::pod_info::{ConditionView, PodInfo},
};

/// Delays between the tries of a patch that may succeed later.
const RETRY_DELAYS: [Duration; 3] = [Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(250)];

/// A change of a pod's status.
pub struct StatusChange {
    /// The type and state of a condition.
    pub condition: Option<(&'static str, ConditionView)>,
    /// The nominated node.
    pub nominating: NominatingInfo,
}

/// Patches a pod's status, unless it is as wanted.
pub async fn patch_pod_status(client: &Client, pod: &PodInfo, change: StatusChange) -> Result<(), kube::Error> {
    let Some(patch) = status_patch(pod, &change, Timestamp::now()) else { return Ok(()) };
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.class.namespace);
    let mut delays = RETRY_DELAYS.into_iter();
    loop {
        let result = api.patch_status(&pod.name, &PatchParams::default(), &Patch::Strategic(&patch)).await;
        match (result, delays.next()) {
            (Err(error), Some(delay)) if is_retriable(&error) => {
                tracing::debug!(pod = pod.key(), %error, "scheduler: status patch failed, retrying");
                tokio::time::sleep(delay).await;
            }
            (result, _) => return result.map(drop),
        }
    }
}

fn is_retriable(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500 || error.is_conflict(),
        kube::Error::Service(_) | kube::Error::HyperError(_) => true,
        _ => false,
    }
}

/// Returns the patch; `None` if nothing changes.
fn status_patch(pod: &PodInfo, change: &StatusChange, now: Timestamp) -> Option<Value> {
    let mut status = serde_json::Map::new();
    if let Some((type_, condition)) = &change.condition {
        let known = match *type_ {
            "PodScheduled" => pod.scheduled_condition.as_deref(),
            _ => pod.disruption_condition.as_deref(),
        };
        let same_status = known.filter(|known| known.status == condition.status);
        let time = same_status.and_then(|known| known.last_transition_time).unwrap_or(now);
        let wanted = ConditionView { last_transition_time: Some(time), ..condition.clone() };
        let is_known = same_status.is_some_and(|known| {
            known.reason == wanted.reason
                && known.message == wanted.message
                && known.observed_generation == wanted.observed_generation
        });
        if !is_known {
            let mut patch = json!({
                "type": type_,
                "status": wanted.status,
                "reason": wanted.reason,
                "message": wanted.message,
                "lastProbeTime": null,
                "lastTransitionTime": Time(time),
            });
            if wanted.observed_generation != 0 {
                patch["observedGeneration"] = wanted.observed_generation.into();
            }
            status.insert("conditions".into(), json!([patch]));
        }
    }
    if let NominatingInfo::Set(node) = &change.nominating
        && *node != pod.nominated_node_name
    {
        status.insert("nominatedNodeName".into(), node.as_deref().map_or(Value::Null, Value::from));
    }
    (!status.is_empty()).then(|| json!({"status": status}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(status: Value) -> PodInfo {
        PodInfo::from_pod(&serde_json::from_value(json!({"status": status})).unwrap())
    }

    fn waiting(message: &str) -> StatusChange {
        let condition = ConditionView { status: "False".into(), message: message.into(), ..ConditionView::default() };
        StatusChange { condition: Some(("PodScheduled", condition)), nominating: NominatingInfo::Keep }
    }

    #[test]
    fn only_changes_are_patched() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let known = pod(json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "no",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}], "nominatedNodeName": "a"}));
        assert!(status_patch(&known, &waiting("no"), now).is_none());
        let patch = status_patch(&known, &waiting("still no"), now).unwrap();
        assert_eq!(patch["status"]["conditions"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
        let first = status_patch(&pod(json!({})), &waiting("no"), now).unwrap();
        assert_eq!(first["status"]["conditions"][0]["lastTransitionTime"], "2026-01-02T03:04:05Z");
        let clear = StatusChange { condition: None, nominating: NominatingInfo::Set(None) };
        assert_eq!(status_patch(&known, &clear, now).unwrap(), json!({"status": {"nominatedNodeName": null}}));
        assert!(status_patch(&pod(json!({})), &clear, now).is_none());
    }
}
