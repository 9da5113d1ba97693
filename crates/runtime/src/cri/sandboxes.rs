//! Pod sandboxes.

use std::collections::HashMap;

use super::{CALL_TIMEOUT, CriClient, CriError, call_with_deadline, types};

impl CriClient {
    /// Creates and starts a sandbox; returns its id.
    pub async fn run_sandbox(&self, config: types::PodSandboxConfig, handler: &str) -> Result<String, CriError> {
        let request = types::RunPodSandboxRequest { config: Some(config), runtime_handler: handler.into() };
        let call = async move { self.runtime_service().run_pod_sandbox(request).await };
        Ok(call_with_deadline("RunPodSandbox", 2 * CALL_TIMEOUT, call).await?.pod_sandbox_id)
    }

    /// Stops all processes of a sandbox and releases its network. Idempotent.
    pub async fn stop_sandbox(&self, id: &str) -> Result<(), CriError> {
        let request = types::StopPodSandboxRequest { pod_sandbox_id: id.into() };
        call_with_deadline("StopPodSandbox", CALL_TIMEOUT, async move {
            self.runtime_service().stop_pod_sandbox(request).await
        })
        .await
        .map(drop)
    }

    /// Removes a sandbox and its containers. Idempotent.
    pub async fn remove_sandbox(&self, id: &str) -> Result<(), CriError> {
        let request = types::RemovePodSandboxRequest { pod_sandbox_id: id.into() };
        call_with_deadline("RemovePodSandbox", CALL_TIMEOUT, async move {
            self.runtime_service().remove_pod_sandbox(request).await
        })
        .await
        .map(drop)
    }

    /// Returns a sandbox's status with its network addresses.
    pub async fn sandbox_status(&self, id: &str) -> Result<types::PodSandboxStatus, CriError> {
        let request = types::PodSandboxStatusRequest { pod_sandbox_id: id.into(), verbose: false };
        let call = async move { self.runtime_service().pod_sandbox_status(request).await };
        let response = call_with_deadline("PodSandboxStatus", CALL_TIMEOUT, call).await?;
        response.status.ok_or(CriError::Incomplete { method: "PodSandboxStatus", field: "status" })
    }

    /// Prepares port forwarding; returns the URL of the runtime's streaming server.
    pub async fn prepare_port_forward(&self, request: types::PortForwardRequest) -> Result<String, CriError> {
        Ok(call_with_deadline("PortForward", CALL_TIMEOUT, async move {
            self.runtime_service().port_forward(request).await
        })
        .await?
        .url)
    }

    /// Lists the sandboxes with all of `labels`.
    pub async fn list_sandboxes(&self, labels: HashMap<String, String>) -> Result<Vec<types::PodSandbox>, CriError> {
        let filter = types::PodSandboxFilter { label_selector: labels, ..Default::default() };
        let request = types::ListPodSandboxRequest { filter: Some(filter) };
        Ok(call_with_deadline("ListPodSandbox", CALL_TIMEOUT, async move {
            self.runtime_service().list_pod_sandbox(request).await
        })
        .await?
        .items)
    }
}
