//! Containers inside a sandbox, and commands inside a container.

use std::{collections::HashMap, time::Duration};

use super::{CALL, Cri, Error, types, within};

impl Cri {
    /// Makes a container that does not run yet; returns its id.
    pub async fn create_container(
        &self,
        sandbox: &str,
        config: types::ContainerConfig,
        sandbox_config: types::PodSandboxConfig,
    ) -> Result<String, Error> {
        let request = types::CreateContainerRequest {
            pod_sandbox_id: sandbox.into(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let call = async move { self.runtime().create_container(request).await };
        Ok(within("CreateContainer", CALL, call).await?.container_id)
    }

    /// Starts a created container.
    pub async fn start_container(&self, id: &str) -> Result<(), Error> {
        let request = types::StartContainerRequest { container_id: id.into() };
        within("StartContainer", CALL, async move { self.runtime().start_container(request).await }).await.map(drop)
    }

    /// Asks a container to end and kills it after `grace`. Doing it twice is no error.
    pub async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), Error> {
        let request = types::StopContainerRequest { container_id: id.into(), timeout: grace.as_secs() as i64 };
        let call = async move { self.runtime().stop_container(request).await };
        within("StopContainer", grace + CALL, call).await.map(drop)
    }

    /// Removes a container; a running one is killed.
    pub async fn remove_container(&self, id: &str) -> Result<(), Error> {
        let request = types::RemoveContainerRequest { container_id: id.into() };
        within("RemoveContainer", CALL, async move { self.runtime().remove_container(request).await }).await.map(drop)
    }

    /// The containers that have all of `labels`, in any state.
    pub async fn list_containers(&self, labels: HashMap<String, String>) -> Result<Vec<types::Container>, Error> {
        let filter = types::ContainerFilter { label_selector: labels, ..Default::default() };
        let request = types::ListContainersRequest { filter: Some(filter) };
        Ok(within("ListContainers", CALL, async move { self.runtime().list_containers(request).await })
            .await?
            .containers)
    }

    /// One container with times and exit code.
    pub async fn container_status(&self, id: &str) -> Result<types::ContainerStatus, Error> {
        let request = types::ContainerStatusRequest { container_id: id.into(), verbose: false };
        let call = async move { self.runtime().container_status(request).await };
        let answer = within("ContainerStatus", CALL, call).await?;
        answer.status.ok_or(Error::Incomplete { method: "ContainerStatus", field: "status" })
    }

    /// Prepares a command with streams; returns the URL at which the runtime's streaming server offers them.
    pub async fn exec(&self, request: types::ExecRequest) -> Result<String, Error> {
        Ok(within("Exec", CALL, async move { self.runtime().exec(request).await }).await?.url)
    }

    /// The URL at which a stream to a container's main process can be had.
    pub async fn attach(&self, request: types::AttachRequest) -> Result<String, Error> {
        Ok(within("Attach", CALL, async move { self.runtime().attach(request).await }).await?.url)
    }

    /// Runs a command to its end, or kills it after `timeout`.
    pub async fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<types::ExecSyncResponse, Error> {
        let timeout = timeout.max(Duration::from_secs(1));
        let request =
            types::ExecSyncRequest { container_id: id.into(), cmd: command, timeout: timeout.as_secs() as i64 };
        let call = async move { self.runtime().exec_sync(request).await };
        within("ExecSync", timeout + Duration::from_secs(10), call).await
    }
}
