//! Version, status and features of the runtime, and calls that it refuses by name.

use std::{collections::HashMap, sync::Arc};

use cni::runner::load_network;
use sys::container_cgroup::ContainerCgroup;
use tonic::Status;

use super::{
    RuntimeServer, blocking,
    container_spec::cgroup_resources,
    images::{SingleAnswer, single_answer},
    internal,
};
use crate::cri::types::*;

/// The name of this runtime.
const NAME: &str = "ferry";
/// The version of CRI.
const API_VERSION: &str = "v1";

impl RuntimeServer {
    pub(super) async fn version(&self, _: VersionRequest) -> Result<VersionResponse, Status> {
        Ok(VersionResponse {
            version: "0.1.0".into(),
            runtime_name: NAME.into(),
            runtime_version: env!("CARGO_PKG_VERSION").into(),
            runtime_api_version: API_VERSION.into(),
        })
    }

    pub(super) async fn status(&self, request: StatusRequest) -> Result<StatusResponse, Status> {
        let (runner, directory) = (self.cni.clone(), self.options.cni_config.clone());
        let checked = blocking(move || load_network(&directory).and_then(|network| runner.status(&network))).await?;
        let network = match checked {
            Ok(()) => condition("NetworkReady", true, "", ""),
            Err(error) => {
                let message = format!("Network plugin returns error: {error}");
                condition("NetworkReady", false, "NetworkPluginNotReady", &message)
            }
        };
        let mut info = HashMap::new();
        if request.verbose {
            let config = serde_json::json!({ "root": self.options.root, "cniConfig": self.options.cni_config });
            info.insert("config".to_owned(), config.to_string());
        }
        let features = RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces: true };
        Ok(StatusResponse {
            status: Some(RuntimeStatus { conditions: vec![condition("RuntimeReady", true, "", ""), network] }),
            info,
            runtime_handlers: vec![RuntimeHandler { name: String::new(), features: Some(features) }],
            features: Some(RuntimeFeatures { supplemental_groups_policy: true, user_namespaces_host_network: false }),
        })
    }

    pub(super) async fn runtime_config(&self, _: RuntimeConfigRequest) -> Result<RuntimeConfigResponse, Status> {
        let linux = LinuxRuntimeConfiguration { cgroup_driver: CgroupDriver::Cgroupfs as i32 };
        Ok(RuntimeConfigResponse { linux: Some(linux) })
    }

    /// The pod range comes with CNI's configuration, so there is nothing to do.
    pub(super) async fn update_runtime_config(
        &self,
        _: UpdateRuntimeConfigRequest,
    ) -> Result<UpdateRuntimeConfigResponse, Status> {
        Ok(UpdateRuntimeConfigResponse {})
    }

    pub(super) async fn checkpoint_container(
        &self,
        _: CheckpointContainerRequest,
    ) -> Result<CheckpointContainerResponse, Status> {
        Err(Status::unimplemented("checkpoints of containers are not supported by this runtime"))
    }

    /// The pod's control group is the kubelet's; the resources of a shared PID namespace's holder are set here.
    pub(super) async fn update_pod_sandbox_resources(
        &self,
        request: UpdatePodSandboxResourcesRequest,
    ) -> Result<UpdatePodSandboxResourcesResponse, Status> {
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        let cgroup = ContainerCgroup::at(&self.cgroups, &self.pause_cgroup(&sandbox));
        if let Some(overhead) = request.overhead.filter(|_| self.shares_pid(&sandbox)) {
            let set = cgroup.set_resources(&cgroup_resources(&overhead));
            set.map_err(|error| internal("failed to update resources", &error))?;
        }
        Ok(UpdatePodSandboxResourcesResponse {})
    }

    pub(super) async fn stream_pod_sandboxes(
        self: &Arc<Self>,
        request: StreamPodSandboxesRequest,
    ) -> Result<SingleAnswer<StreamPodSandboxesResponse>, Status> {
        let listed = self.list_pod_sandbox(ListPodSandboxRequest { filter: request.filter }).await?;
        Ok(single_answer(StreamPodSandboxesResponse { pod_sandboxes: listed.items }))
    }

    pub(super) async fn stream_containers(
        self: &Arc<Self>,
        request: StreamContainersRequest,
    ) -> Result<SingleAnswer<StreamContainersResponse>, Status> {
        let listed = self.list_containers(ListContainersRequest { filter: request.filter }).await?;
        Ok(single_answer(StreamContainersResponse { containers: listed.containers }))
    }
}

fn condition(kind: &str, status: bool, reason: &str, message: &str) -> RuntimeCondition {
    RuntimeCondition { r#type: kind.into(), status, reason: reason.into(), message: message.into() }
}
