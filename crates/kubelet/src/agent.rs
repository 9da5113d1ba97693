//! What all parts of one kubelet share.

use std::{net::IpAddr, path::PathBuf};

use client::{Informer, Recorder};
use k8s_openapi::{
    api::core::v1::{Container, ObjectReference, Pod, Service},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use runtime::cri::Cri;
use sys::cgroup::Cgroups;

/// The parts, and the facts about the node that do not change.
pub struct Agent {
    /// The node's address.
    pub node_ip: IpAddr,
    /// Pod directories are below `pods` here.
    pub root_dir: PathBuf,
    /// Container logs are below this.
    pub pod_logs_dir: PathBuf,
    /// The control group above those of pods.
    pub cgroup_root: String,
    /// How processes are limited; `None` leaves it to the runtime.
    pub cgroups: Option<Cgroups>,
    /// Thousandths of a processor and bytes of memory.
    pub capacity: [i64; 2],
    /// For what informers do not hold.
    pub client: kube::Client,
    /// The container runtime.
    pub cri: Cri,
    /// The runtime's name, which container ids begin with.
    pub runtime_name: String,
    /// Events about pods.
    pub recorder: Recorder,
    /// The pods of this node.
    pub pods: Informer<Pod>,
    /// All services, for the environment of containers.
    pub services: Informer<Service>,
    /// Changes of containers, for whoever follows a log.
    pub changes: tokio::sync::broadcast::Sender<runtime::cri::Change>,
}

impl Agent {
    /// Where the logs of a pod are.
    pub fn log_dir(&self, pod: &Pod) -> PathBuf {
        self.pod_logs_dir.join(format!("{}_{}_{}", namespace(pod), name(pod), uid(pod)))
    }
}

/// A pod's name.
pub fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// A pod's namespace.
pub fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

/// A pod's uid.
pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// A pod as messages name it: `name_namespace(uid)`.
pub fn full_name(pod: &Pod) -> String {
    format!("{}_{}({})", name(pod), namespace(pod), uid(pod))
}

/// What events about a pod refer to.
pub fn reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        uid: pod.metadata.uid.clone(),
        resource_version: pod.metadata.resource_version.clone(),
        field_path: None,
    }
}

/// What events about a container of a pod refer to.
pub fn container_reference(pod: &Pod, container: &Container) -> ObjectReference {
    let init = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let list = if init.into_iter().any(|init| init.name == container.name) { "initContainers" } else { "containers" };
    ObjectReference { field_path: Some(format!("spec.{list}{{{}}}", container.name)), ..reference(pod) }
}

/// The runtime's nanoseconds as the API's time.
pub fn time(nanoseconds: i64) -> Option<Time> {
    (nanoseconds > 0).then(|| Timestamp::from_nanosecond(nanoseconds.into()).ok()).flatten().map(Time)
}
