//! Writes a pod's status to the API server: only what changed, the newest wins, and nobody waits unless he asks to.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::agent;

/// The pause after a failed write.
const RETRY: Duration = Duration::from_millis(500);

/// Writes the status of one pod. Dropping it drops what was not written.
pub struct StatusWriter {
    wanted: watch::Sender<Option<Arc<PodStatus>>>,
    written: watch::Receiver<Option<Arc<PodStatus>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for StatusWriter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl StatusWriter {
    /// A writer for `pod`, which starts from the status that the pod has.
    pub fn new(client: Client, pod: &Pod) -> Self {
        let known = pod.status.clone().map(Arc::new);
        let (wanted, receiver) = watch::channel(known.clone());
        let (sender, written) = watch::channel(known);
        let target = Target {
            api: Api::namespaced(client, agent::namespace(pod)),
            name: agent::name(pod).into(),
            uid: agent::uid(pod).into(),
        };
        Self { wanted, written, task: tokio::spawn(target.run(receiver, sender)) }
    }

    /// Asks for `status` to be written.
    pub fn set(&self, status: PodStatus) {
        self.wanted.send_if_modified(|wanted| {
            let new = wanted.as_deref() != Some(&status);
            if new {
                *wanted = Some(Arc::new(status));
            }
            new
        });
    }

    /// What was asked for last.
    pub fn last(&self) -> Option<Arc<PodStatus>> {
        self.wanted.borrow().clone()
    }

    /// Returns once what was asked for last is written, or can never be.
    pub async fn flushed(&mut self) {
        let wanted = self.wanted.borrow().clone();
        // An error means that the task has ended: the pod is gone.
        let _ = self.written.wait_for(|written| same(written, &wanted)).await;
    }
}

fn same(a: &Option<Arc<PodStatus>>, b: &Option<Arc<PodStatus>>) -> bool {
    a.as_deref() == b.as_deref()
}

struct Target {
    api: Api<Pod>,
    name: String,
    uid: String,
}

impl Target {
    async fn run(
        self,
        mut wanted: watch::Receiver<Option<Arc<PodStatus>>>,
        written: watch::Sender<Option<Arc<PodStatus>>>,
    ) {
        while wanted.changed().await.is_ok() {
            loop {
                let status = wanted.borrow_and_update().clone();
                let old = written.borrow().clone();
                let (Some(new), false) = (&status, same(&status, &old)) else { break };
                match self.write(old.as_deref(), new).await {
                    Ok(()) => {
                        written.send_replace(status);
                        break;
                    }
                    Err(error) if answered(&error, 404) => return,
                    Err(error) if answered(&error, 422) => {
                        tracing::error!(pod = self.name, %error, "the API server refuses a pod's status");
                        written.send_replace(status);
                        break;
                    }
                    Err(error) => {
                        tracing::warn!(pod = self.name, %error, "a pod's status cannot be written");
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        }
    }

    async fn write(&self, old: Option<&PodStatus>, new: &PodStatus) -> kube::Result<()> {
        let patch = json!({ "metadata": { "uid": self.uid }, "status": difference(old, new) });
        self.api.patch_status(&self.name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)
    }
}

/// Whether the API server answered with this code.
pub fn answered(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// The fields of the status that changed; those that are gone are null.
fn difference(old: Option<&PodStatus>, new: &PodStatus) -> Map<String, Value> {
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
        let sent = Value::Object(difference(Some(&old), &new));
        assert_eq!(sent, json!({ "phase": "Running", "reason": null }));
    }
}
