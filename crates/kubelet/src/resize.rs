//! In-place resize of pods: what the spec asks for, what the node has allocated, and what the runtime has applied.
//!
//! A change of the spec is allocated once it fits the node, then applied container by container. The allocation is kept
//! on disk, so that a restarted kubelet goes on where it was.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use serde::{Deserialize, Serialize};

use crate::{pod_metadata, pod_spec::is_sidecar};

/// Name of the checkpoint below the pod's directory.
const CHECKPOINT: &str = "allocated_resources.json";

/// Resources by container name.
pub type ContainerResources = BTreeMap<String, ResourceRequirements>;

/// Resources of a pod's containers at the stages of a resize.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodAllocation {
    /// Resources that the node has set aside.
    pub allocated: ContainerResources,
    /// Resources that the containers run with.
    pub actuated: ContainerResources,
}

/// A resize that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingResize {
    /// `Deferred` or `Infeasible`.
    pub reason: &'static str,
    /// Human-readable message.
    pub message: String,
}

/// Way in which a container gets new resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeMethod {
    /// While it runs.
    Update,
    /// By a restart, as its resize policy asks for.
    Restart,
}

impl PodAllocation {
    /// Returns the allocation of a pod that was never resized.
    pub fn from_spec(spec: &PodSpec) -> Self {
        let resources = container_resources(spec);
        Self { allocated: resources.clone(), actuated: resources }
    }

    /// Loads the checkpoint of a pod; `None` if it was never resized.
    pub fn load(root_dir: &Path, pod: &Pod) -> Option<Self> {
        let text = fs::read(checkpoint_path(root_dir, pod)).ok()?;
        let loaded = serde_json::from_slice(&text);
        loaded
            .inspect_err(|error| {
                tracing::warn!(pod = pod_metadata::format_pod(pod), %error, "kubelet: resize checkpoint unreadable");
            })
            .ok()
    }

    /// Writes the checkpoint.
    pub fn save(&self, root_dir: &Path, pod: &Pod) -> io::Result<()> {
        let path = checkpoint_path(root_dir, pod);
        let unfinished = path.with_extension("tmp");
        fs::write(&unfinished, serde_json::to_vec(self)?)?;
        fs::rename(unfinished, path)
    }

    /// Whether the spec asks for other resources than are allocated.
    pub fn differs_from(&self, spec: &PodSpec) -> bool {
        container_resources(spec) != self.allocated
    }

    /// Returns the pod with the allocated resources in place of the requested ones.
    pub fn allocated_pod(&self, pod: &Pod) -> Pod {
        with_resources(pod, &self.allocated)
    }

    /// Returns the pod with the resources that its containers run with.
    pub fn actuated_pod(&self, pod: &Pod) -> Pod {
        with_resources(pod, &self.actuated)
    }

    /// Returns the containers whose allocated resources are not applied yet.
    pub fn unapplied<'a>(&'a self, spec: &'a PodSpec) -> impl Iterator<Item = (&'a Container, ResizeMethod)> {
        resizable_containers(spec).filter_map(|container| {
            let (allocated, actuated) = (self.allocated.get(&container.name)?, self.actuated.get(&container.name));
            (Some(allocated) != actuated).then(|| (container, resize_method(container, allocated, actuated)))
        })
    }
}

/// Replaces the resources of a pod's containers.
fn with_resources(pod: &Pod, resources: &ContainerResources) -> Pod {
    let mut pod = pod.clone();
    let containers = pod.spec.iter_mut().flat_map(|spec| {
        let PodSpec { init_containers, containers, .. } = spec;
        init_containers.iter_mut().flatten().chain(containers)
    });
    for container in containers {
        if let Some(resources) = resources.get(&container.name) {
            container.resources = Some(resources.clone());
        }
    }
    pod
}

fn checkpoint_path(root_dir: &Path, pod: &Pod) -> PathBuf {
    root_dir.join("pods").join(pod_metadata::pod_uid(pod)).join(CHECKPOINT)
}

/// Returns the containers that can be resized: regular ones and sidecars.
fn resizable_containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().filter(|container| is_sidecar(container)).chain(&spec.containers)
}

fn container_resources(spec: &PodSpec) -> ContainerResources {
    let resources = |container: &Container| container.resources.clone().unwrap_or_default();
    resizable_containers(spec).map(|container| (container.name.clone(), resources(container))).collect()
}

/// Decides by the resize policy of each resource that changes.
fn resize_method(
    container: &Container,
    allocated: &ResourceRequirements,
    actuated: Option<&ResourceRequirements>,
) -> ResizeMethod {
    let none = ResourceRequirements::default();
    let actuated = actuated.unwrap_or(&none);
    let changed = |name: &str| {
        let amount = |list: &Option<BTreeMap<_, _>>| list.as_ref().and_then(|list| list.get(name)).cloned();
        amount(&allocated.requests) != amount(&actuated.requests)
            || amount(&allocated.limits) != amount(&actuated.limits)
    };
    let mut policies = container.resize_policy.iter().flatten();
    match policies.any(|policy| policy.restart_policy == "RestartContainer" && changed(&policy.resource_name)) {
        true => ResizeMethod::Restart,
        false => ResizeMethod::Update,
    }
}

/// Formats the message of a resize event, as upstream: the prefix and the containers' resources.
pub fn resize_message(pod: &Pod, prefix: &str, error: &str) -> String {
    let summary = |container: &Container| serde_json::json!({ "name": container.name, "resources": container.resources.clone().unwrap_or_default() });
    let spec = pod.spec.clone().unwrap_or_default();
    let mut fields = serde_json::Map::new();
    let init: Vec<_> = spec.init_containers.iter().flatten().map(summary).collect();
    if !init.is_empty() {
        fields.insert("initContainers".into(), init.into());
    }
    fields.insert("containers".into(), spec.containers.iter().map(summary).collect());
    fields.insert("generation".into(), pod.metadata.generation.unwrap_or(0).into());
    if !error.is_empty() {
        fields.insert("error".into(), error.into());
    }
    format!("{prefix}: {}", serde_json::Value::Object(fields))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(cpu: &str, memory: &str) -> Pod {
        let resources = json!({ "requests": { "cpu": cpu, "memory": memory } });
        let policy = json!([{ "resourceName": "memory", "restartPolicy": "RestartContainer" },
            { "resourceName": "cpu", "restartPolicy": "NotRequired" }]);
        let container = json!({ "name": "c", "resources": resources, "resizePolicy": policy });
        serde_json::from_value(json!({ "metadata": { "uid": "u" }, "spec": { "containers": [container] } })).unwrap()
    }

    #[test]
    fn resize_policy_of_the_changed_resource_decides() {
        let check = |new: Pod, expected: Option<ResizeMethod>| {
            let mut allocation = PodAllocation::from_spec(pod("1", "1Gi").spec.as_ref().unwrap());
            let spec = new.spec.as_ref().unwrap();
            assert_eq!(allocation.differs_from(spec), expected.is_some());
            allocation.allocated = container_resources(spec);
            assert_eq!(allocation.unapplied(spec).map(|(_, method)| method).next(), expected);
        };
        check(pod("1", "1Gi"), None);
        check(pod("2", "1Gi"), Some(ResizeMethod::Update));
        check(pod("1", "2Gi"), Some(ResizeMethod::Restart));
    }

    #[test]
    fn allocation_survives_on_disk_and_replaces_the_spec() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (pod("1", "1Gi"), pod("2", "1Gi"));
        assert_eq!(PodAllocation::load(dir.path(), &new), None);
        fs::create_dir_all(dir.path().join("pods/u")).unwrap();
        let allocation = PodAllocation::from_spec(old.spec.as_ref().unwrap());
        allocation.save(dir.path(), &new).unwrap();
        assert_eq!(PodAllocation::load(dir.path(), &new).as_ref(), Some(&allocation));
        assert_eq!(allocation.allocated_pod(&new).spec, old.spec);
        let message = resize_message(&new, "Pod resize started", "");
        let expected: Value = json!({ "containers": [{ "name": "c", "resources": { "requests": { "cpu": "2", "memory": "1Gi" } } }], "generation": 0 });
        assert_eq!(message, format!("Pod resize started: {expected}"));
    }
}
