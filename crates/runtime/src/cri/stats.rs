//! Resource usage as last measured by the runtime.

use super::{CALL_TIMEOUT, CriClient, CriError, call_with_deadline, types};

impl CriClient {
    /// Lists the usage of containers; exited ones may lack values.
    pub async fn container_stats(&self) -> Result<Vec<types::ContainerStats>, CriError> {
        let request = types::ListContainerStatsRequest { filter: None };
        let call = async move { self.runtime_service().list_container_stats(request).await };
        Ok(call_with_deadline("ListContainerStats", CALL_TIMEOUT, call).await?.stats)
    }

    /// Lists the usage of sandboxes, including their containers.
    pub async fn sandbox_stats(&self) -> Result<Vec<types::PodSandboxStats>, CriError> {
        let request = types::ListPodSandboxStatsRequest { filter: None };
        let call = async move { self.runtime_service().list_pod_sandbox_stats(request).await };
        Ok(call_with_deadline("ListPodSandboxStats", CALL_TIMEOUT, call).await?.stats)
    }
}
