//! Resource usage as last measured by the runtime.

use std::collections::HashMap;

use super::{CALL_TIMEOUT, CriClient, CriError, call_with_deadline, types};

impl CriClient {
    /// Lists the usage of containers; exited ones may lack values.
    pub async fn container_stats(&self) -> Result<Vec<types::ContainerStats>, CriError> {
        let request = types::ListContainerStatsRequest { filter: None };
        let call = async move { self.runtime_service().list_container_stats(request).await };
        Ok(call_with_deadline("ListContainerStats", CALL_TIMEOUT, call).await?.stats)
    }

    /// Lists the usage of sandboxes, including their containers. A runtime that fails as a whole because of one sandbox,
    /// as containerd does when a cgroup is gone, is asked for each ready one.
    pub async fn sandbox_stats(&self) -> Result<Vec<types::PodSandboxStats>, CriError> {
        let request = types::ListPodSandboxStatsRequest { filter: None };
        let call = async move { self.runtime_service().list_pod_sandbox_stats(request).await };
        match call_with_deadline("ListPodSandboxStats", CALL_TIMEOUT, call).await {
            Ok(response) => Ok(response.stats),
            Err(_) => self.ready_sandbox_stats().await,
        }
    }

    async fn ready_sandbox_stats(&self) -> Result<Vec<types::PodSandboxStats>, CriError> {
        let mut all = Vec::new();
        let ready = types::PodSandboxState::SandboxReady as i32;
        for sandbox in self.list_sandboxes(HashMap::new()).await?.into_iter().filter(|one| one.state == ready) {
            let request = types::PodSandboxStatsRequest { pod_sandbox_id: sandbox.id };
            let call = async move { self.runtime_service().pod_sandbox_stats(request).await };
            // One that ends meanwhile has no usage.
            let response = call_with_deadline("PodSandboxStats", CALL_TIMEOUT, call).await;
            all.extend(response.ok().and_then(|response| response.stats));
        }
        Ok(all)
    }
}
