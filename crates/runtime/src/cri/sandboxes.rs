//! Pod sandboxes: the namespaces and the address that the containers of a pod share.

use std::collections::HashMap;

use super::{CALL, Cri, Error, types, within};

impl Cri {
    /// Makes and starts a sandbox; returns its id.
    pub async fn run_sandbox(&self, config: types::PodSandboxConfig, handler: &str) -> Result<String, Error> {
        let request = types::RunPodSandboxRequest { config: Some(config), runtime_handler: handler.into() };
        let call = async move { self.runtime().run_pod_sandbox(request).await };
        Ok(within("RunPodSandbox", 2 * CALL, call).await?.pod_sandbox_id)
    }

    /// Ends every process in the sandbox and gives back its network. Doing it twice is no error.
    pub async fn stop_sandbox(&self, id: &str) -> Result<(), Error> {
        let request = types::StopPodSandboxRequest { pod_sandbox_id: id.into() };
        within("StopPodSandbox", CALL, async move { self.runtime().stop_pod_sandbox(request).await }).await.map(drop)
    }

    /// Removes a sandbox and its containers. Doing it twice is no error.
    pub async fn remove_sandbox(&self, id: &str) -> Result<(), Error> {
        let request = types::RemovePodSandboxRequest { pod_sandbox_id: id.into() };
        within("RemovePodSandbox", CALL, async move { self.runtime().remove_pod_sandbox(request).await })
            .await
            .map(drop)
    }

    /// One sandbox with its network addresses.
    pub async fn sandbox_status(&self, id: &str) -> Result<types::PodSandboxStatus, Error> {
        let request = types::PodSandboxStatusRequest { pod_sandbox_id: id.into(), verbose: false };
        let call = async move { self.runtime().pod_sandbox_status(request).await };
        let answer = within("PodSandboxStatus", CALL, call).await?;
        answer.status.ok_or(Error::Incomplete { method: "PodSandboxStatus", field: "status" })
    }

    /// The URL at which connections to ports of a sandbox can be had.
    pub async fn port_forward(&self, request: types::PortForwardRequest) -> Result<String, Error> {
        Ok(within("PortForward", CALL, async move { self.runtime().port_forward(request).await }).await?.url)
    }

    /// The sandboxes that have all of `labels`.
    pub async fn list_sandboxes(&self, labels: HashMap<String, String>) -> Result<Vec<types::PodSandbox>, Error> {
        let filter = types::PodSandboxFilter { label_selector: labels, ..Default::default() };
        let request = types::ListPodSandboxRequest { filter: Some(filter) };
        Ok(within("ListPodSandbox", CALL, async move { self.runtime().list_pod_sandbox(request).await }).await?.items)
    }
}
