//! What the runtime says of one pod. Everything that the kubelet decides and reports starts here, so that a restarted
//! kubelet goes on where the last one ended.

use std::collections::HashMap;

use futures::future::try_join_all;
use runtime::cri::{
    Cri, Error,
    types::{ContainerState, ContainerStatus, PodSandboxState, PodSandboxStatus},
};

/// The labels and annotations by which the runtime's objects are found again, as upstream writes them.
pub mod labels {
    /// On sandboxes and containers: the pod's name.
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    /// On sandboxes and containers: the pod's namespace.
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    /// On sandboxes and containers: the pod's uid.
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    /// On containers: the name in the pod's spec.
    pub const CONTAINER: &str = "io.kubernetes.container.name";
    /// Annotation on containers: of what in the spec they were made.
    pub const HASH: &str = "io.kubernetes.container.hash";
    /// Annotation on containers: how often it was restarted.
    pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
}

/// A container and the sandbox that it is in.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The sandbox's id.
    pub sandbox: String,
    /// What the runtime says.
    pub status: ContainerStatus,
}

impl Seen {
    /// Its name in the pod's spec.
    pub fn name(&self) -> &str {
        self.status.metadata.as_ref().map_or("", |metadata| &metadata.name)
    }

    /// How often it was restarted before.
    pub fn attempt(&self) -> u32 {
        self.status.metadata.as_ref().map_or(0, |metadata| metadata.attempt)
    }

    /// Its state.
    pub fn state(&self) -> ContainerState {
        ContainerState::try_from(self.status.state).unwrap_or(ContainerState::ContainerUnknown)
    }

    /// Whether it runs.
    pub fn running(&self) -> bool {
        self.state() == ContainerState::ContainerRunning
    }

    /// Whether it has ended.
    pub fn exited(&self) -> bool {
        self.state() == ContainerState::ContainerExited
    }
}

/// The sandboxes and containers of one pod, the newest first.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// Its sandboxes.
    pub sandboxes: Vec<PodSandboxStatus>,
    /// Its containers.
    pub containers: Vec<Seen>,
}

impl Truth {
    /// Asks the runtime.
    pub async fn read(cri: &Cri, uid: &str) -> Result<Self, Error> {
        let selector = || HashMap::from([(labels::POD_UID.to_string(), uid.to_string())]);
        let (sandboxes, containers) =
            tokio::try_join!(cri.list_sandboxes(selector()), cri.list_containers(selector()))?;
        let sandboxes = try_join_all(sandboxes.iter().map(|sandbox| existing(cri.sandbox_status(&sandbox.id))));
        let containers = containers.into_iter().map(|container| async move {
            let status = existing(cri.container_status(&container.id)).await?;
            Ok(status.map(|status| Seen { sandbox: container.pod_sandbox_id, status }))
        });
        let (sandboxes, containers) = tokio::try_join!(sandboxes, try_join_all(containers))?;
        let mut sandboxes: Vec<_> = sandboxes.into_iter().flatten().collect();
        let mut containers: Vec<_> = containers.into_iter().flatten().collect();
        sandboxes.sort_by_key(|sandbox| std::cmp::Reverse(sandbox.created_at));
        containers.sort_by_key(|container: &Seen| std::cmp::Reverse(container.status.created_at));
        Ok(Self { sandboxes, containers })
    }

    /// The sandbox that containers can be started in.
    pub fn sandbox(&self) -> Option<&PodSandboxStatus> {
        self.sandboxes.first().filter(|sandbox| sandbox.state == PodSandboxState::SandboxReady as i32)
    }

    /// The number of the next sandbox.
    pub fn next_sandbox(&self) -> u32 {
        let last = self.sandboxes.first().and_then(|sandbox| sandbox.metadata.as_ref());
        last.map_or(0, |metadata| metadata.attempt + 1)
    }

    /// The addresses of the ready sandbox.
    pub fn ips(&self) -> Vec<String> {
        let Some(network) = self.sandbox().and_then(|sandbox| sandbox.network.as_ref()) else { return Vec::new() };
        let more = network.additional_ips.iter().map(|address| address.ip.clone());
        std::iter::once(network.ip.clone()).chain(more).filter(|ip| !ip.is_empty()).collect()
    }

    /// The newest container of that name.
    pub fn latest(&self, name: &str) -> Option<&Seen> {
        self.containers.iter().find(|container| container.name() == name)
    }

    /// The one before it.
    pub fn previous(&self, name: &str) -> Option<&Seen> {
        self.containers.iter().filter(|container| container.name() == name).nth(1)
    }

    /// The containers that nobody will ask about any more: all but the newest two of each name.
    pub fn outdated(&self) -> Vec<String> {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        let mut old = Vec::new();
        for container in &self.containers {
            let count = seen.entry(container.name()).or_default();
            *count += 1;
            if *count > 2 && container.exited() {
                old.push(container.status.id.clone());
            }
        }
        old
    }
}

/// What went away between the list and the question is not there.
async fn existing<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<Option<T>, Error> {
    match answer.await {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
