//! Mounts and devices of a container: its volumes, and the files that the kubelet manages.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{PodSpec, Volume, VolumeMount};
use runtime::cri::types::{Device, ImageSpec, Mount, MountPropagation};

use crate::{
    blocking::run_blocking,
    containers::{ContainerConfigError, ContainerLaunch},
    context, environment, hosts,
    pod_spec::is_recursive_read_only,
    termination_message::{create_termination_log, termination_log, termination_path},
    volumes::{
        PodDir,
        source::{ResolvedVolume, VolumeSource},
        subpath::SubPathMount,
    },
};

impl ContainerLaunch<'_> {
    /// Returns the volume mounts and the kubelet-managed files `/etc/hosts` and the termination log.
    pub async fn container_mounts(
        &self,
        spec: &PodSpec,
        environment: &[(String, String)],
    ) -> Result<Vec<Mount>, ContainerConfigError> {
        let dir = PodDir::new(&self.kubelet.root_dir, context::pod_uid(self.pod));
        let supports_recursive = self.kubelet.supports_recursive_read_only(&self.sandbox.runtime_handler);
        let mut mounts = Vec::new();
        for (index, mount) in self.container.volume_mounts.iter().flatten().enumerate() {
            let volume = find_volume(spec, &mount.name)?;
            let resolved = self.volumes.resolve_volume(&self.kubelet.client, self.pod, volume).await?;
            let path = dir.volume_path(volume, &resolved);
            let sub_path = sub_path(mount, environment)?;
            mounts.push(match &resolved.source {
                VolumeSource::Image(source) => image_mount(mount, source.reference.as_deref(), sub_path),
                _ => {
                    let host_path = self.mount_sub_path(&dir, mount, index, path, sub_path).await?;
                    volume_mount(mount, &resolved, &host_path, supports_recursive)?
                }
            });
        }
        let failed = |source| ContainerConfigError::Io { path: dir.path().into(), source };
        if !mounts.iter().any(|mount| mount.container_path == "/etc/hosts") {
            let domain = &self.kubelet.cluster_dns.domain;
            let hosts = hosts::write_hosts_file(dir.path(), self.pod, self.ips, domain).await.map_err(failed)?;
            mounts.push(file_mount("/etc/hosts", hosts));
        }
        let log = termination_log(&dir, &self.container.name, self.attempt);
        create_termination_log(log.clone()).await.map_err(failed)?;
        mounts.push(file_mount(termination_path(self.container), log));
        Ok(mounts)
    }

    /// Returns the block devices of the container.
    pub async fn container_devices(&self, spec: &PodSpec) -> Result<Vec<Device>, ContainerConfigError> {
        let dir = PodDir::new(&self.kubelet.root_dir, context::pod_uid(self.pod));
        let mut devices = Vec::new();
        for device in self.container.volume_devices.iter().flatten() {
            let volume = find_volume(spec, &device.name)?;
            let resolved = self.volumes.resolve_volume(&self.kubelet.client, self.pod, volume).await?;
            if !resolved.is_block {
                return Err(ContainerConfigError::NotABlockDevice(device.name.clone()));
            }
            devices.push(Device {
                container_path: device.device_path.clone(),
                host_path: dir.volume_path(volume, &resolved).display().to_string(),
                permissions: if resolved.read_only { "r" } else { "mrw" }.into(),
            });
        }
        Ok(devices)
    }

    /// Returns the host path of a mount; a subPath gets a mount point of its own.
    async fn mount_sub_path(
        &self,
        dir: &PodDir,
        mount: &VolumeMount,
        index: usize,
        volume_path: PathBuf,
        sub_path: String,
    ) -> Result<PathBuf, ContainerConfigError> {
        if sub_path.is_empty() {
            return Ok(volume_path);
        }
        let (dir, volume, container) = (dir.clone(), mount.name.clone(), self.container.name.clone());
        let mounted = run_blocking(move || {
            let mount = SubPathMount {
                volume_path: &volume_path,
                volume: &volume,
                container: &container,
                index,
                path: &sub_path,
                create: true,
            };
            mount.mount(&dir)
        });
        mounted.await.map_err(|source| ContainerConfigError::SubPath { volume: mount.name.clone(), source })
    }
}

fn find_volume<'a>(spec: &'a PodSpec, name: &str) -> Result<&'a Volume, ContainerConfigError> {
    let volume = spec.volumes.iter().flatten().find(|volume| volume.name == name);
    volume.ok_or_else(|| ContainerConfigError::VolumeNotFound(name.into()))
}

/// Returns the subPath, or the subPathExpr with its references replaced.
fn sub_path(mount: &VolumeMount, environment: &[(String, String)]) -> Result<String, ContainerConfigError> {
    let Some(expression) = mount.sub_path_expr.as_deref().filter(|expression| !expression.is_empty()) else {
        return Ok(mount.sub_path.clone().unwrap_or_default());
    };
    match environment::missing_reference(expression, environment) {
        Some(name) => Err(ContainerConfigError::MissingVariable(name)),
        None => Ok(environment::expand_references(expression, environment)),
    }
}

fn image_mount(mount: &VolumeMount, reference: Option<&str>, sub_path: String) -> Mount {
    Mount {
        container_path: absolute_path(&mount.mount_path),
        readonly: true,
        image: Some(ImageSpec { image: reference.unwrap_or_default().into(), ..Default::default() }),
        image_sub_path: sub_path,
        ..Default::default()
    }
}

fn volume_mount(
    mount: &VolumeMount,
    resolved: &ResolvedVolume,
    host_path: &Path,
    supports_recursive: bool,
) -> Result<Mount, ContainerConfigError> {
    let written_by_kubelet = resolved.source == VolumeSource::Content;
    let propagation = match mount.mount_propagation.as_deref() {
        Some("HostToContainer") => MountPropagation::PropagationHostToContainer,
        Some("Bidirectional") => MountPropagation::PropagationBidirectional,
        _ => MountPropagation::PropagationPrivate,
    };
    Ok(Mount {
        container_path: absolute_path(&mount.mount_path),
        host_path: host_path.display().to_string(),
        readonly: mount.read_only == Some(true) || written_by_kubelet || resolved.read_only,
        propagation: propagation as i32,
        recursive_read_only: is_recursive_read_only(mount, supports_recursive)?,
        ..Default::default()
    })
}

fn absolute_path(path: &str) -> String {
    if path.starts_with('/') { path.into() } else { format!("/{path}") }
}

fn file_mount(container_path: &str, host_path: PathBuf) -> Mount {
    let host_path = host_path.display().to_string();
    Mount { container_path: container_path.into(), host_path, ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sub_path_expressions_need_their_variables() {
        let mount = |expression: &str| VolumeMount { sub_path_expr: Some(expression.into()), ..Default::default() };
        let environment = [("NAME".to_string(), "web".to_string())];
        assert_eq!(sub_path(&mount("logs/$(NAME)"), &environment).unwrap(), "logs/web");
        assert_eq!(sub_path(&mount("$$(NAME)"), &environment).unwrap(), "$(NAME)");
        let error = sub_path(&mount("$(NAME)/$(OTHER)"), &environment).unwrap_err();
        assert_eq!(error.to_string(), "missing value for \"OTHER\"");
    }
}
