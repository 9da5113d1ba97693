//! What sandboxes and containers use, as the runtime last measured it.

use super::{CALL, Cri, Error, types, within};

impl Cri {
    /// What every container uses; one that has ended may be there without numbers.
    pub async fn container_stats(&self) -> Result<Vec<types::ContainerStats>, Error> {
        let request = types::ListContainerStatsRequest { filter: None };
        let call = async move { self.runtime().list_container_stats(request).await };
        Ok(within("ListContainerStats", CALL, call).await?.stats)
    }

    /// What every sandbox uses, with all that is in it.
    pub async fn sandbox_stats(&self) -> Result<Vec<types::PodSandboxStats>, Error> {
        let request = types::ListPodSandboxStatsRequest { filter: None };
        let call = async move { self.runtime().list_pod_sandbox_stats(request).await };
        Ok(within("ListPodSandboxStats", CALL, call).await?.stats)
    }
}
