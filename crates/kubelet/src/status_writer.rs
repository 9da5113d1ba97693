//! The status manager of one pod: patches changed status fields in the background; the newest status wins.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::{context, pod_status};

/// Delay after a failed write.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Writes the status of one pod. Dropping it discards a pending write.
pub struct StatusWriter {
    scheduled: watch::Sender<Option<Arc<PodStatus>>>,
    written: watch::Receiver<Option<Arc<PodStatus>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for StatusWriter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl StatusWriter {
    /// Creates a writer that starts from the pod's current status.
    pub fn new(client: Client, pod: &Pod) -> Self {
        let known = pod.status.clone().map(Arc::new);
        let (scheduled, receiver) = watch::channel(known.clone());
        let (sender, written) = watch::channel(known);
        let target = StatusTarget {
            api: Api::namespaced(client, context::pod_namespace(pod)),
            name: context::pod_name(pod).into(),
            uid: context::pod_uid(pod).into(),
        };
        Self { scheduled, written, task: tokio::spawn(target.run_writer(receiver, sender)) }
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
    pub async fn wait_until_written(&mut self) {
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
}

impl StatusTarget {
    async fn run_writer(
        self,
        mut scheduled: watch::Receiver<Option<Arc<PodStatus>>>,
        written: watch::Sender<Option<Arc<PodStatus>>>,
    ) {
        while scheduled.changed().await.is_ok() {
            loop {
                let status = scheduled.borrow_and_update().clone();
                let old = written.borrow().clone();
                let (Some(new), false) = (&status, is_same_status(&status, &old)) else { break };
                match self.patch_status(old.as_deref(), new).await {
                    Ok(()) => {
                        written.send_replace(status);
                        break;
                    }
                    Err(error) if has_status_code(&error, 404) => return,
                    Err(error) if has_status_code(&error, 409) && self.is_replaced().await => return,
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

    /// Whether the pod is gone, or another pod has its name: the patch names the uid, so it conflicts for ever.
    async fn is_replaced(&self) -> bool {
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
    let owned = |condition: &Value| condition["type"].as_str().is_some_and(pod_status::is_kubelet_condition);
    let gone = old.iter().filter(|condition| !new.iter().any(|kept| kept["type"] == condition["type"]));
    let deletions = gone.filter(|gone| owned(gone)).map(|gone| json!({ "$patch": "delete", "type": gone["type"] }));
    let changed = new.iter().filter(|condition| owned(condition) && !old.contains(condition)).cloned();
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
        let mut writer = StatusWriter::new(recreated_pod_client(), &pod);
        writer.set_status(PodStatus { phase: Some("Failed".into()), ..Default::default() });
        writer.wait_until_written().await;
    }
}
