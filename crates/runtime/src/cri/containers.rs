//! Containers of a sandbox.

use std::{collections::HashMap, time::Duration};

use super::{CALL_TIMEOUT, CriClient, CriError, call_with_deadline, types};

impl CriClient {
    /// Creates a container; returns its id.
    pub async fn create_container(
        &self,
        sandbox: &str,
        config: types::ContainerConfig,
        sandbox_config: types::PodSandboxConfig,
    ) -> Result<String, CriError> {
        let request = types::CreateContainerRequest {
            pod_sandbox_id: sandbox.into(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let call = async move { self.runtime_service().create_container(request).await };
        Ok(call_with_deadline("CreateContainer", CALL_TIMEOUT, call).await?.container_id)
    }

    /// Starts a created container.
    pub async fn start_container(&self, id: &str) -> Result<(), CriError> {
        let request = types::StartContainerRequest { container_id: id.into() };
        call_with_deadline("StartContainer", CALL_TIMEOUT, async move {
            self.runtime_service().start_container(request).await
        })
        .await
        .map(drop)
    }

    /// Stops a container, killing it after `grace`. Idempotent.
    pub async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), CriError> {
        let request = types::StopContainerRequest { container_id: id.into(), timeout: grace.as_secs() as i64 };
        let call = async move { self.runtime_service().stop_container(request).await };
        call_with_deadline("StopContainer", grace + CALL_TIMEOUT, call).await.map(drop)
    }

    /// Removes a container; a running one is killed.
    pub async fn remove_container(&self, id: &str) -> Result<(), CriError> {
        let request = types::RemoveContainerRequest { container_id: id.into() };
        call_with_deadline("RemoveContainer", CALL_TIMEOUT, async move {
            self.runtime_service().remove_container(request).await
        })
        .await
        .map(drop)
    }

    /// Lists the containers with all of `labels`, in any state.
    pub async fn list_containers(&self, labels: HashMap<String, String>) -> Result<Vec<types::Container>, CriError> {
        let filter = types::ContainerFilter { label_selector: labels, ..Default::default() };
        let request = types::ListContainersRequest { filter: Some(filter) };
        Ok(call_with_deadline("ListContainers", CALL_TIMEOUT, async move {
            self.runtime_service().list_containers(request).await
        })
        .await?
        .containers)
    }

    /// Returns a container's status with times and exit code.
    pub async fn container_status(&self, id: &str) -> Result<types::ContainerStatus, CriError> {
        let request = types::ContainerStatusRequest { container_id: id.into(), verbose: false };
        let call = async move { self.runtime_service().container_status(request).await };
        let response = call_with_deadline("ContainerStatus", CALL_TIMEOUT, call).await?;
        response.status.ok_or(CriError::Incomplete { method: "ContainerStatus", field: "status" })
    }

    /// Changes the resources of a running container.
    pub async fn update_container_resources(
        &self,
        id: &str,
        resources: types::LinuxContainerResources,
    ) -> Result<(), CriError> {
        let request = types::UpdateContainerResourcesRequest {
            container_id: id.into(),
            linux: Some(resources),
            ..Default::default()
        };
        let call = async move { self.runtime_service().update_container_resources(request).await };
        call_with_deadline("UpdateContainerResources", CALL_TIMEOUT, call).await.map(drop)
    }

    /// Makes the runtime write a container's log to its path again, after the file was renamed.
    pub async fn reopen_container_log(&self, id: &str) -> Result<(), CriError> {
        let request = types::ReopenContainerLogRequest { container_id: id.into() };
        let call = async move { self.runtime_service().reopen_container_log(request).await };
        call_with_deadline("ReopenContainerLog", CALL_TIMEOUT, call).await.map(drop)
    }

    /// Prepares a streaming exec; returns the URL of the runtime's streaming server.
    pub async fn prepare_exec(&self, request: types::ExecRequest) -> Result<String, CriError> {
        Ok(call_with_deadline("Exec", CALL_TIMEOUT, async move { self.runtime_service().exec(request).await })
            .await?
            .url)
    }

    /// Prepares a streaming attach; returns the URL of the runtime's streaming server.
    pub async fn prepare_attach(&self, request: types::AttachRequest) -> Result<String, CriError> {
        Ok(call_with_deadline("Attach", CALL_TIMEOUT, async move { self.runtime_service().attach(request).await })
            .await?
            .url)
    }

    /// Writes a checkpoint of a running container to a file.
    pub async fn checkpoint_container(&self, request: types::CheckpointContainerRequest) -> Result<(), CriError> {
        let timeout = Duration::from_secs(request.timeout.max(0) as u64).max(CALL_TIMEOUT);
        let call = async move { self.runtime_service().checkpoint_container(request).await };
        call_with_deadline("CheckpointContainer", timeout, call).await.map(drop)
    }

    /// Runs a command to completion, killing it after `timeout`.
    pub async fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<types::ExecSyncResponse, CriError> {
        let timeout = timeout.max(Duration::from_secs(1));
        let request =
            types::ExecSyncRequest { container_id: id.into(), cmd: command, timeout: timeout.as_secs() as i64 };
        let call = async move { self.runtime_service().exec_sync(request).await };
        call_with_deadline("ExecSync", timeout + Duration::from_secs(10), call).await
    }
}
