//! The runtime's view of a pod: the source of all decisions and reports, so that a restarted kubelet resumes from it.

use std::collections::HashMap;

use futures::future::try_join_all;
use runtime::cri::{
    CriClient, CriError,
    types::{ContainerState, ContainerStatus, PodSandboxState, PodSandboxStatus},
};

/// Labels and annotations on sandboxes and containers, as upstream writes them.
pub mod labels {
    /// Pod name, on sandboxes and containers.
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    /// Pod namespace, on sandboxes and containers.
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    /// Pod uid, on sandboxes and containers.
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    /// Container name, on containers.
    pub const CONTAINER: &str = "io.kubernetes.container.name";
    /// Annotation on containers: hash of the spec.
    pub const HASH: &str = "io.kubernetes.container.hash";
    /// Annotation on containers: restart count.
    pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
}

/// A container with its sandbox.
#[derive(Clone, Debug)]
pub struct ContainerRecord {
    /// The sandbox's id.
    pub sandbox: String,
    /// The CRI status.
    pub status: ContainerStatus,
}

impl ContainerRecord {
    /// Returns the container's name.
    pub fn name(&self) -> &str {
        self.status.metadata.as_ref().map_or("", |metadata| &metadata.name)
    }

    /// Returns the restart count.
    pub fn attempt(&self) -> u32 {
        self.status.metadata.as_ref().map_or(0, |metadata| metadata.attempt)
    }

    /// Returns the container's state.
    pub fn state(&self) -> ContainerState {
        ContainerState::try_from(self.status.state).unwrap_or(ContainerState::ContainerUnknown)
    }

    /// Whether the container runs.
    pub fn is_running(&self) -> bool {
        self.state() == ContainerState::ContainerRunning
    }

    /// Whether the container has exited.
    pub fn is_exited(&self) -> bool {
        self.state() == ContainerState::ContainerExited
    }
}

/// Sandboxes and containers of one pod, newest first.
#[derive(Clone, Debug, Default)]
pub struct PodRuntimeStatus {
    /// The sandboxes.
    pub sandboxes: Vec<PodSandboxStatus>,
    /// The containers.
    pub containers: Vec<ContainerRecord>,
}

impl PodRuntimeStatus {
    /// Queries the runtime.
    pub async fn fetch(cri: &CriClient, uid: &str) -> Result<Self, CriError> {
        let selector = || HashMap::from([(labels::POD_UID.to_string(), uid.to_string())]);
        let (sandboxes, containers) =
            tokio::try_join!(cri.list_sandboxes(selector()), cri.list_containers(selector()))?;
        let sandboxes = try_join_all(sandboxes.iter().map(|sandbox| ignore_not_found(cri.sandbox_status(&sandbox.id))));
        let containers = containers.into_iter().map(|container| async move {
            let status = ignore_not_found(cri.container_status(&container.id)).await?;
            Ok(status.map(|status| ContainerRecord { sandbox: container.pod_sandbox_id, status }))
        });
        let (sandboxes, containers) = tokio::try_join!(sandboxes, try_join_all(containers))?;
        let mut sandboxes: Vec<_> = sandboxes.into_iter().flatten().collect();
        let mut containers: Vec<_> = containers.into_iter().flatten().collect();
        sandboxes.sort_by_key(|sandbox| std::cmp::Reverse(sandbox.created_at));
        containers.sort_by_key(|container: &ContainerRecord| std::cmp::Reverse(container.status.created_at));
        Ok(Self { sandboxes, containers })
    }

    /// Returns the ready sandbox.
    pub fn ready_sandbox(&self) -> Option<&PodSandboxStatus> {
        self.sandboxes.first().filter(|sandbox| sandbox.state == PodSandboxState::SandboxReady as i32)
    }

    /// Returns the attempt number of the next sandbox.
    pub fn next_sandbox_attempt(&self) -> u32 {
        let last = self.sandboxes.first().and_then(|sandbox| sandbox.metadata.as_ref());
        last.map_or(0, |metadata| metadata.attempt + 1)
    }

    /// Returns the IPs of the ready sandbox.
    pub fn pod_ips(&self) -> Vec<String> {
        let Some(network) = self.ready_sandbox().and_then(|sandbox| sandbox.network.as_ref()) else {
            return Vec::new();
        };
        let more = network.additional_ips.iter().map(|address| address.ip.clone());
        std::iter::once(network.ip.clone()).chain(more).filter(|ip| !ip.is_empty()).collect()
    }

    /// Returns the newest container of that name.
    pub fn latest_container(&self, name: &str) -> Option<&ContainerRecord> {
        self.containers.iter().find(|container| container.name() == name)
    }

    /// Returns the container before the newest one.
    pub fn previous_container(&self, name: &str) -> Option<&ContainerRecord> {
        self.containers.iter().filter(|container| container.name() == name).nth(1)
    }

    /// Returns the exited containers to remove: all but the newest two of each name.
    pub fn removable_containers(&self) -> Vec<String> {
        let mut record: HashMap<&str, usize> = HashMap::new();
        let mut old = Vec::new();
        for container in &self.containers {
            let count = record.entry(container.name()).or_default();
            *count += 1;
            if *count > 2 && container.is_exited() {
                old.push(container.status.id.clone());
            }
        }
        old
    }
}

/// Maps an object that was removed since the list to `None`.
async fn ignore_not_found<T>(answer: impl Future<Output = Result<T, CriError>>) -> Result<Option<T>, CriError> {
    match answer.await {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
