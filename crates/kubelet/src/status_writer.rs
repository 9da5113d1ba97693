//! The status manager of one pod: patches changed status fields in the background; the newest status wins.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::{
    context,
    pod_manager::{PodManager, is_static_pod},
    pod_status,
};

/// Delay after a failed write.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Writes the status of one pod. Dropping it discards a pending write.
pub struct StatusWriter {
    scheduled: watch::Sender<Option<Arc<PodStatus>>>,
    written: watch::Receiver<Option<Arc<PodStatus>>>,
    is_static: bool,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for StatusWriter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl StatusWriter {
    /// Creates a writer that starts from the pod's current status.
    ///
    /// That of a static pod is written to its mirror pod, once there is one.
    pub fn new(client: Client, pod: &Pod, pods: &PodManager) -> Self {
        let mirrored = is_static_pod(pod).then(|| (pods.clone(), pod.clone()));
        let known = match &mirrored {
            Some((pods, pod)) => pods.mirror_of(pod).and_then(|mirror| mirror.status.clone()),
            None => pod.status.clone(),
        };
        let known = known.map(Arc::new);
        let (scheduled, receiver) = watch::channel(known.clone());
        let (sender, written) = watch::channel(known);
        let target = StatusTarget {
            api: Api::namespaced(client, context::pod_namespace(pod)),
            name: context::pod_name(pod).into(),
            uid: context::pod_uid(pod).into(),
            mirrored,
        };
        let is_static = target.mirrored.is_some();
        Self { scheduled, written, is_static, task: tokio::spawn(target.run_writer(receiver, sender)) }
    }

    /// Schedules `status` to be written.
    pub fn set_status(&self, status: PodStatus) {
        self.scheduled.send_if_modified(|scheduled| {
            let new = scheduled.as_deref() != Some(&status);
            if new {
                *scheduled = Some(Arc::new(status));
            }
            new
        });
    }

    /// Returns the last scheduled status.
    pub fn last_status(&self) -> Option<Arc<PodStatus>> {
        self.scheduled.borrow().clone()
    }

    /// Waits until the last scheduled status is written or the pod is gone.
    ///
    /// A static pod does not wait for its mirror.
    pub async fn wait_until_written(&mut self) {
        if self.is_static {
            return;
        }
        let scheduled = self.scheduled.borrow().clone();
        // An error means that the task has ended because the pod is gone.
        let _ = self.written.wait_for(|written| is_same_status(written, &scheduled)).await;
    }
}

fn is_same_status(a: &Option<Arc<PodStatus>>, b: &Option<Arc<PodStatus>>) -> bool {
    a.as_deref() == b.as_deref()
}

struct StatusTarget {
    api: Api<Pod>,
    name: String,
    uid: String,
    /// A static pod, whose status its mirror shows.
    mirrored: Option<(PodManager, Pod)>,
}

impl StatusTarget {
    async fn run_writer(
        mut self,
        mut scheduled: watch::Receiver<Option<Arc<PodStatus>>>,
        written: watch::Sender<Option<Arc<PodStatus>>>,
    ) {
        while self.wait_for_work(&mut scheduled).await {
            loop {
                let status = scheduled.borrow_and_update().clone();
                let old = written.borrow().clone();
                let is_written = is_same_status(&status, &old) && !self.has_new_mirror();
                let (Some(new), false) = (&status, is_written) else { break };
                let Some(old) = self.find_target(old) else {
                    tokio::time::sleep(RETRY_DELAY).await;
                    continue;
                };
                match self.patch_status(old.as_deref(), new).await {
                    Ok(()) => {
                        written.send_replace(status);
                        break;
                    }
                    // The next mirror gets the status.
                    Err(error)
                        if self.mirrored.is_some() && [404, 409].iter().any(|code| has_status_code(&error, *code)) =>
                    {
                        tokio::time::sleep(RETRY_DELAY).await;
                    }
                    Err(error) if has_status_code(&error, 404) => return,
                    Err(error) if has_status_code(&error, 409) && self.check_replaced().await => return,
                    Err(error) if has_status_code(&error, 422) => {
                        tracing::error!(pod = self.name, %error, "kubelet: pod status rejected as invalid");
                        written.send_replace(status);
                        break;
                    }
                    Err(error) => {
                        tracing::warn!(pod = self.name, %error, "kubelet: pod status not written, retrying");
                        tokio::time::sleep(RETRY_DELAY).await;
                    }
                }
            }
        }
    }

    /// Waits for a new status or a new mirror; returns false once the writer is dropped.
    async fn wait_for_work(&self, scheduled: &mut watch::Receiver<Option<Arc<PodStatus>>>) -> bool {
        if self.mirrored.is_none() {
            return scheduled.changed().await.is_ok();
        }
        loop {
            tokio::select! {
                changed = scheduled.changed() => return changed.is_ok(),
                () = tokio::time::sleep(RETRY_DELAY) => if self.has_new_mirror() { return true },
            }
        }
    }

    /// Whether a static pod has another mirror than at the last write.
    fn has_new_mirror(&self) -> bool {
        let Some((pods, pod)) = &self.mirrored else { return false };
        pods.mirror_of(pod).is_some_and(|mirror| context::pod_uid(&mirror) != self.uid)
    }

    /// Returns the status that the target has; `None` while a static pod has no mirror.
    fn find_target(&mut self, old: Option<Arc<PodStatus>>) -> Option<Option<Arc<PodStatus>>> {
        let Some((pods, pod)) = &self.mirrored else { return Some(old) };
        let mirror = pods.mirror_of(pod)?;
        if context::pod_uid(&mirror) == self.uid {
            return Some(old);
        }
        self.uid = context::pod_uid(&mirror).into();
        Some(mirror.status.clone().map(Arc::new))
    }

    /// Whether the pod is gone, or another pod has its name: the patch names the uid, so it conflicts for ever.
    async fn check_replaced(&self) -> bool {
        let current = self.api.get_metadata_opt(&self.name).await;
        current.is_ok_and(|pod| pod.is_none_or(|pod| pod.metadata.uid.as_deref() != Some(&self.uid)))
    }

    async fn patch_status(&self, old: Option<&PodStatus>, new: &PodStatus) -> kube::Result<()> {
        let patch = json!({ "metadata": { "uid": self.uid }, "status": status_patch(old, new) });
        self.api.patch_status(&self.name, &PatchParams::default(), &Patch::Strategic(&patch)).await.map(drop)
    }
}

/// Whether the API server responded with this status code.
pub fn has_status_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// Returns the strategic merge patch between two statuses: changed fields, null for removed ones, and of the conditions
/// only those that the kubelet owns, so that other writers' conditions are never overwritten.
fn status_patch(old: Option<&PodStatus>, new: &PodStatus) -> Map<String, Value> {
    let fields = |status: &PodStatus| match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let mut old = old.map(fields).unwrap_or_default();
    let mut new = fields(new);
    let conditions = changed_conditions(old.remove("conditions"), new.remove("conditions"));
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = new.iter().filter(|(key, value)| old.get(*key) != Some(value));
    let changed = changed.map(|(key, value)| (key.clone(), replace_merged_list(key, value)));
    let conditions = (!conditions.is_empty()).then(|| ("conditions".into(), Value::Array(conditions)));
    changed.chain(gone).chain(conditions).collect()
}

/// Returns the kubelet's conditions that differ; the API server merges them by type.
fn changed_conditions(old: Option<Value>, new: Option<Value>) -> Vec<Value> {
    let list = |value: Option<Value>| match value {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    let (old, new) = (list(old), list(new));
    let owned = |condition: &Value| {
        let is_eviction = condition["type"] == "DisruptionTarget" && condition["reason"] == "TerminationByKubelet";
        is_eviction || condition["type"].as_str().is_some_and(pod_status::is_kubelet_condition)
    };
    let gone = old.iter().filter(|condition| !new.iter().any(|kept| kept["type"] == condition["type"]));
    let deletions = gone.filter(|gone| owned(gone)).map(|gone| json!({ "$patch": "delete", "type": gone["type"] }));
    let changed = new.iter().filter(|condition| owned(condition) && !old.contains(condition));
    let changed = changed.map(|condition| {
        let before = old.iter().find(|before| before["type"] == condition["type"]);
        let mut patch = condition.clone();
        // A merge keeps what is not named, such as the message of a condition that no longer has one.
        for key in before.and_then(Value::as_object).into_iter().flat_map(Map::keys) {
            if condition.get(key).is_none() {
                patch[key] = Value::Null;
            }
        }
        patch
    });
    changed.chain(deletions).collect()
}

/// Marks a list that strategic merge would otherwise merge by address as a replacement.
fn replace_merged_list(key: &str, value: &Value) -> Value {
    match value {
        Value::Array(items) if matches!(key, "podIPs" | "hostIPs") => {
            std::iter::once(json!({ "$patch": "replace" })).chain(items.iter().cloned()).collect()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(old: Value, new: Value, expected: Value) {
        let status = |value: Value| serde_json::from_value::<PodStatus>(value).unwrap();
        assert_eq!(Value::Object(status_patch(Some(&status(old)), &status(new))), expected);
    }

    #[test]
    fn only_changed_fields_are_sent() {
        check(
            json!({ "phase": "Pending", "reason": "x", "hostIP": "h" }),
            json!({ "phase": "Running", "hostIP": "h" }),
            json!({ "phase": "Running", "reason": null }),
        );
    }

    #[test]
    fn conditions_of_other_writers_are_not_sent() {
        let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status });
        check(
            json!({ "conditions": [condition("Ready", "False"), condition("Initialized", "True"), condition("example.com/gate", "False"), condition("PodResizePending", "True")] }),
            json!({ "conditions": [condition("Ready", "True"), condition("Initialized", "True"), condition("example.com/gate", "True")] }),
            json!({ "conditions": [condition("Ready", "True"), { "$patch": "delete", "type": "PodResizePending" }] }),
        );
    }

    #[test]
    fn message_that_a_condition_lost_is_removed() {
        let condition = |status: &str, message: Value| {
            let mut condition = json!({ "type": "Ready", "status": status });
            if !message.is_null() {
                condition["message"] = message;
            }
            json!({ "conditions": [condition] })
        };
        let removed = json!({ "conditions": [{ "type": "Ready", "status": "True", "message": null }] });
        check(condition("False", json!("unready")), condition("True", Value::Null), removed);
    }

    #[test]
    fn addresses_are_replaced() {
        check(
            json!({ "podIPs": [{ "ip": "10.0.0.1" }] }),
            json!({ "podIPs": [{ "ip": "10.0.0.2" }] }),
            json!({ "podIPs": [{ "$patch": "replace" }, { "ip": "10.0.0.2" }] }),
        );
    }

    /// Answers patches with a conflict and reads with a pod of another uid.
    fn recreated_pod_client() -> Client {
        let respond = |request: http::Request<kube::client::Body>| async move {
            let (code, body) = match *request.method() {
                http::Method::GET => {
                    let metadata = json!({ "name": "web", "namespace": "ns", "uid": "new" });
                    (
                        200,
                        json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata }),
                    )
                }
                _ => (
                    409,
                    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409 }),
                ),
            };
            let body = kube::client::Body::from(body.to_string().into_bytes());
            let mut response = http::Response::new(body);
            *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
            Ok::<_, tower::BoxError>(response)
        };
        client::transport::in_process_client(tower::service_fn(respond), "test")
    }

    #[tokio::test(start_paused = true)]
    async fn writer_of_a_recreated_pod_ends() {
        let metadata = json!({ "name": "web", "namespace": "ns", "uid": "old" });
        let pod: Pod = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        let mut writer = StatusWriter::new(recreated_pod_client(), &pod, &context::KubeletContext::unreachable().pods);
        writer.set_status(PodStatus { phase: Some("Failed".into()), ..Default::default() });
        writer.wait_until_written().await;
    }
}
