//! Turns CRI's configuration of a container and its image into the specification that the supervisor gets.

mod devices;
mod mounts;
mod process;
mod resources;
mod security;

use std::{collections::HashMap, path::PathBuf, sync::PoisonError};

use tonic::Status;

pub use resources::cgroup_resources;

use super::{
    RuntimeServer,
    namespaces::{namespaces as sandbox_namespaces, user_namespace},
    records::{ContainerEntry, Sandbox},
};
use crate::{
    container::spec::{
        CgroupSpec, ContainerSpec, OverlaySpec, PidNamespace, RootSpec, seccomp_program::SeccompProgram,
    },
    cri::types::*,
    image::ImageProcessConfig,
};

/// The control group of containers whose pod names none.
const DEFAULT_PARENT: &str = "ferry-containers";

/// The input of a specification.
pub struct SpecSource<'a> {
    /// The container.
    pub container: &'a ContainerEntry,
    /// Its sandbox.
    pub sandbox: &'a Sandbox,
    /// Its image's defaults.
    pub image: ImageProcessConfig,
    /// Directories of images that are volumes, the lowest layer first, by the target of the mount.
    pub image_layers: HashMap<String, Vec<String>>,
}

/// The path of a container's control group below the root of each hierarchy.
pub fn cgroup_path(parent: &str, id: &str) -> String {
    let parent = parent.trim_matches('/');
    match parent {
        "" => format!("/{DEFAULT_PARENT}/{id}"),
        slice if slice.ends_with(".slice") && !slice.contains('/') => format!("/{}/{id}", expand_slice(slice)),
        parent => format!("/{parent}/{id}"),
    }
}

/// The path of a slice as systemd has it: `a-b.slice` is in `a.slice`.
fn expand_slice(slice: &str) -> String {
    let name = slice.trim_end_matches(".slice");
    let ends = name.match_indices('-').map(|(index, _)| index).chain([name.len()]);
    ends.map(|end| format!("{}.slice", &name[..end])).collect::<Vec<_>>().join("/")
}

impl RuntimeServer {
    /// Makes the specification of a container.
    pub(super) fn container_spec(&self, source: &SpecSource<'_>) -> Result<ContainerSpec, Status> {
        let (container, sandbox) = (source.container, source.sandbox);
        let config = container.config();
        let context = security::security_context(&config);
        let privileged = context.privileged;
        let namespaces = context.namespace_options.clone().unwrap_or_default();
        let pid_namespace = match NamespaceMode::try_from(namespaces.pid) {
            Ok(NamespaceMode::Node) => PidNamespace::Host,
            Ok(NamespaceMode::Target) => PidNamespace::Container(self.container(&namespaces.target_id)?.id.clone()),
            Ok(NamespaceMode::Pod) => PidNamespace::Pod,
            _ => PidNamespace::Own,
        };
        let (nodes, rules) = devices::container_devices(&config.devices, privileged)?;
        let mut process = process::process_spec(&config, &context, sandbox, &source.image)?;
        process.seccomp = self.filter(&context, process.capabilities[0])?;
        let mut spec = ContainerSpec {
            id: container.id.clone(),
            exit_file: container.exit_file(),
            root: self.root_spec(container, context.readonly_rootfs),
            mounts: mounts::container_mounts(&self.images, source, &config, privileged)?,
            devices: nodes,
            pid_namespace,
            cgroup: CgroupSpec {
                path: container.cgroup.clone(),
                // Version 1 shows the container its own groups by bind mounts.
                private: !privileged && matches!(self.cgroups, sys::cgroup::CgroupManager::V2(_)),
                devices: rules,
            },
            user_namespace: user_namespace(&sandbox_namespaces(&sandbox.config))?,
            process,
            log_path: log_path(sandbox, &config),
            stdin: config.stdin,
            stdin_once: config.stdin_once,
            ..Default::default()
        };
        if !privileged {
            spec.masked_paths.clone_from(&context.masked_paths);
            spec.readonly_paths.clone_from(&context.readonly_paths);
        }
        Ok(spec)
    }

    fn root_spec(&self, container: &ContainerEntry, read_only: bool) -> RootSpec {
        let path = container.directory.join("rootfs");
        // An image without layers has an empty root.
        let overlay = (!container.layers.is_empty()).then(|| OverlaySpec {
            layers: self.images.layers_dir(),
            lower: container.layers.iter().rev().cloned().collect(),
            upper: container.directory.join("upper"),
            work: container.directory.join("work"),
        });
        RootSpec { path, overlay, read_only }
    }

    /// The system call filter of a container.
    fn filter(&self, context: &LinuxContainerSecurityContext, bounding: u64) -> Result<Option<SeccompProgram>, Status> {
        if !security::wants_default_filter(context) {
            return security::chosen_filter(context);
        }
        let mut filters = self.filters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(filter) = filters.get(&bounding) {
            return Ok(Some(filter.clone()));
        }
        let compiled = security::default_filter(bounding)?;
        filters.insert(bounding, compiled.clone());
        Ok(Some(compiled))
    }
}

/// The path of a container's log; none if it has none.
pub fn log_path(sandbox: &Sandbox, config: &ContainerConfig) -> Option<PathBuf> {
    let directory = &sandbox.config.log_directory;
    let has_log = !directory.is_empty() && !config.log_path.is_empty();
    has_log.then(|| PathBuf::from(directory).join(&config.log_path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_become_paths() {
        assert_eq!(cgroup_path("/kubepods/pod1", "a"), "/kubepods/pod1/a");
        assert_eq!(cgroup_path("", "a"), "/ferry-containers/a");
        let slice = "kubepods-burstable-pod1.slice";
        let expected = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/a";
        assert_eq!(cgroup_path(slice, "a"), expected);
    }
}
