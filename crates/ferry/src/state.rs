//! `state.json`: what a later `up`, `status` or `down` must know that cannot be seen otherwise.

use std::path::PathBuf;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::{atomic, instance::ClusterInstance, user_error::user_error};

/// State kept between starts.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstanceState {
    /// The cluster runs a containerd of its own.
    pub own_runtime: bool,
    /// The cluster uses the runtime in this program.
    pub ferry_runtime: bool,
    /// The runtime that was used last.
    pub runtime_endpoint: Option<String>,
    /// The loopback port of the image mirror.
    pub mirror_port: Option<u16>,
    /// Whether the host forwarded packets before ferry turned it on; absent while ferry has not.
    pub ip_forward_before: Option<bool>,
    /// The ranges of pods and services, whose links and routes `down` removes.
    pub pod_cidr: Option<String>,
    /// The range of services.
    pub service_cidr: Option<String>,
    /// The user's kubeconfig that has the cluster's context.
    pub kubeconfig: Option<PathBuf>,
    /// The name of that context.
    pub context: Option<String>,
    /// That file's current context before.
    pub previous_context: Option<String>,
    /// The API server of the cluster that this node joined.
    pub joined_server: Option<String>,
    /// The node's name.
    pub node_name: Option<String>,
    /// Warnings for `status`.
    pub warnings: Vec<String>,
}

impl InstanceState {
    /// The remembered state; empty at the first start.
    pub fn load(instance: &ClusterInstance) -> anyhow::Result<Self> {
        let path = instance.state();
        let text = atomic::read_file(&path).with_context(|| path.display().to_string())?;
        let Some(text) = text else { return Ok(Self::default()) };
        serde_json::from_str(&text).map_err(|error| {
            user_error(
                format!("{} is damaged: {error}", path.display()),
                "Delete that file; if the cluster runs its own containerd, start with --install-runtime again.",
            )
        })
    }

    /// Remembers.
    pub fn save(&self, instance: &ClusterInstance) -> anyhow::Result<()> {
        let path = instance.state();
        let text = serde_json::to_vec_pretty(self)?;
        atomic::write_file(&path, &text, atomic::PUBLIC).with_context(|| path.display().to_string())
    }
}
