//! The status manager of one pod: patches changed status fields in the background; the newest status wins.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::context;

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

    async fn patch_status(&self, old: Option<&PodStatus>, new: &PodStatus) -> kube::Result<()> {
        let patch = json!({ "metadata": { "uid": self.uid }, "status": changed_fields(old, new) });
        self.api.patch_status(&self.name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)
    }
}

/// Whether the API server responded with this status code.
pub fn has_status_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// Returns the changed fields of the status, with null for removed ones.
fn changed_fields(old: Option<&PodStatus>, new: &PodStatus) -> Map<String, Value> {
    let fields = |status: &PodStatus| match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let old = old.map(fields).unwrap_or_default();
    let new = fields(new);
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = new.iter().filter(|(key, value)| old.get(*key) != Some(value));
    changed.map(|(key, value)| (key.clone(), value.clone())).chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_fields_are_sent() {
        let old = PodStatus {
            phase: Some("Pending".into()),
            reason: Some("x".into()),
            host_ip: Some("h".into()),
            ..Default::default()
        };
        let new = PodStatus { phase: Some("Running".into()), host_ip: Some("h".into()), ..Default::default() };
        let sent = Value::Object(changed_fields(Some(&old), &new));
        assert_eq!(sent, json!({ "phase": "Running", "reason": null }));
    }
}
