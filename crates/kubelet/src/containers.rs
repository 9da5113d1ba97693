//! Creates and starts a container of a pod.

use std::{fs, io, os::unix::fs::PermissionsExt, path::PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use runtime::cri::types::{
    ContainerConfig, ContainerMetadata, Image, ImageSpec, KeyValue, LinuxContainerConfig, Mount, MountPropagation,
    PodSandboxStatus,
};

use crate::{
    backoff::KeyedBackoff,
    blocking::run_blocking,
    config_objects::ConfigObjects,
    context::{self, KubeletContext, container_reference},
    environment::{self, EnvironmentSources},
    hosts, images,
    pod_actions::container_hash,
    pod_sandbox,
    pod_status::WaitingReason,
    resources,
    runtime_status::labels,
    security_context,
    volumes::PodDir,
};

/// The CRI config of a container could not be built.
#[derive(Debug, thiserror::Error)]
enum ContainerConfigError {
    #[error(transparent)]
    Environment(#[from] environment::EnvironmentError),
    #[error("volume {0:?} not found")]
    VolumeNotFound(String),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// The inputs of a container start.
pub struct ContainerLaunch<'a> {
    /// The kubelet's shared state.
    pub kubelet: &'a KubeletContext,
    /// The pod.
    pub pod: &'a Pod,
    /// The container's spec.
    pub container: &'a Container,
    /// Restart count.
    pub attempt: u32,
    /// The sandbox to run in.
    pub sandbox: &'a PodSandboxStatus,
    /// The pod's IPs.
    pub ips: &'a [String],
    /// Back-off of image pulls.
    pub backoffs: &'a KeyedBackoff,
}

impl ContainerLaunch<'_> {
    /// Ensures the image, creates the container and starts it; returns its id, or the reason why it waits.
    pub async fn start_container(&self) -> Result<String, WaitingReason> {
        let spec = self.pod.spec.clone().unwrap_or_default();
        let attempt = self.sandbox.metadata.as_ref().map_or(0, |metadata| metadata.attempt);
        let sandbox_config = pod_sandbox::sandbox_config(self.kubelet, self.pod, attempt).await;
        let image =
            images::ensure_image_exists(self.kubelet, self.pod, self.container, self.backoffs, &sandbox_config).await?;
        if let Some(message) = security_context::verify_run_as_non_root(&spec, self.container, &image) {
            return Err(self.record_failure("CreateContainerConfigError", message));
        }
        let config = self.container_config(&spec, &image).await;
        let config = config.map_err(|error| self.record_failure("CreateContainerConfigError", error.to_string()))?;
        let created = self.kubelet.cri.create_container(&self.sandbox.id, config, sandbox_config).await;
        let id = created.map_err(|error| self.record_failure("CreateContainerError", error.message()))?;
        let about = || container_reference(self.pod, self.container);
        self.kubelet.recorder.record_normal(about(), "Created", "Container created");
        let started = self.kubelet.cri.start_container(&id).await;
        started.map_err(|error| self.record_failure("RunContainerError", error.message()))?;
        self.kubelet.recorder.record_normal(about(), "Started", "Container started");
        Ok(id)
    }

    fn record_failure(&self, reason: &'static str, message: String) -> WaitingReason {
        let about = container_reference(self.pod, self.container);
        self.kubelet.recorder.record_warning(about, "Failed", format!("Error: {message}"));
        WaitingReason { reason, message }
    }

    async fn container_config(&self, spec: &PodSpec, image: &Image) -> Result<ContainerConfig, ContainerConfigError> {
        let container = self.container;
        let environment = self.resolve_environment(spec).await?;
        let expand = |words: &Option<Vec<String>>| -> Vec<String> {
            words.iter().flatten().map(|word| environment::expand_references(word, &environment)).collect()
        };
        let mounts = self.container_mounts(spec).await?;
        let log_path = format!("{}/{}.log", container.name, self.attempt);
        let log_dir = self.kubelet.pod_log_dir(self.pod).join(&container.name);
        let created = tokio::fs::create_dir_all(&log_dir).await;
        created.map_err(|source| ContainerConfigError::Io { path: log_dir, source })?;
        Ok(ContainerConfig {
            metadata: Some(ContainerMetadata { name: container.name.clone(), attempt: self.attempt }),
            image: Some(ImageSpec {
                image: image.id.clone(),
                user_specified_image: container.image.clone().unwrap_or_default(),
                ..Default::default()
            }),
            command: expand(&container.command),
            args: expand(&container.args),
            working_dir: container.working_dir.clone().unwrap_or_default(),
            envs: environment.into_iter().map(|(key, value)| KeyValue { key, value: value.into() }).collect(),
            mounts,
            labels: self.container_labels(),
            annotations: self.container_annotations(),
            log_path,
            stdin: container.stdin == Some(true),
            stdin_once: container.stdin_once == Some(true),
            tty: container.tty == Some(true),
            linux: Some(LinuxContainerConfig {
                resources: Some(resources::container_resources(spec, container, self.kubelet.capacity.memory)),
                security_context: Some(security_context::container_security_context(
                    spec,
                    container,
                    image,
                    &self.kubelet.root_dir,
                )),
            }),
            ..Default::default()
        })
    }

    async fn resolve_environment(
        &self,
        spec: &PodSpec,
    ) -> Result<Vec<(String, String)>, environment::EnvironmentError> {
        let objects = ConfigObjects::new(self.kubelet.client.clone(), context::pod_namespace(self.pod));
        // Without the services a container would lack its variables for life.
        self.kubelet.services.wait_for_cache_sync().await;
        let links = spec.enable_service_links != Some(false);
        let mut services = self.kubelet.services.list();
        services.retain(|service| {
            let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
            let is_master = namespace == "default" && service.metadata.name.as_deref() == Some("kubernetes");
            is_master || (links && namespace == context::pod_namespace(self.pod))
        });
        services.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let sources = EnvironmentSources {
            pod: self.pod,
            objects: &objects,
            pod_ips: self.ips,
            host_ip: self.kubelet.node_ip.to_string(),
            allocatable: &self.kubelet.allocatable,
            services,
        };
        environment::resolve_environment(self.container, &sources).await
    }

    fn container_labels(&self) -> std::collections::HashMap<String, String> {
        let own = (labels::CONTAINER.to_string(), self.container.name.clone());
        pod_sandbox::pod_labels(self.pod).into_iter().chain([own]).collect()
    }

    fn container_annotations(&self) -> std::collections::HashMap<String, String> {
        let path = termination_path(self.container).to_string();
        let policy = self.container.termination_message_policy.clone().unwrap_or_else(|| "File".into());
        [
            (labels::HASH, container_hash(self.container)),
            (labels::RESTART_COUNT, self.attempt.to_string()),
            ("io.kubernetes.container.terminationMessagePath", path),
            ("io.kubernetes.container.terminationMessagePolicy", policy),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_string(), value))
        .collect()
    }

    /// Returns the volume mounts and the kubelet-managed files `/etc/hosts` and the termination log.
    async fn container_mounts(&self, spec: &PodSpec) -> Result<Vec<Mount>, ContainerConfigError> {
        let dir = PodDir::new(&self.kubelet.root_dir, context::pod_uid(self.pod));
        let mut mounts = Vec::new();
        for mount in self.container.volume_mounts.iter().flatten() {
            let volume = spec.volumes.iter().flatten().find(|volume| volume.name == mount.name);
            let volume = volume.ok_or_else(|| ContainerConfigError::VolumeNotFound(mount.name.clone()))?;
            let content = volume.config_map.is_some()
                || volume.secret.is_some()
                || volume.projected.is_some()
                || volume.downward_api.is_some();
            let propagation = match mount.mount_propagation.as_deref() {
                Some("HostToContainer") => MountPropagation::PropagationHostToContainer,
                Some("Bidirectional") => MountPropagation::PropagationBidirectional,
                _ => MountPropagation::PropagationPrivate,
            };
            mounts.push(Mount {
                container_path: absolute_path(&mount.mount_path),
                host_path: dir.volume_path(volume).display().to_string(),
                readonly: mount.read_only == Some(true) || content,
                propagation: propagation as i32,
                ..Default::default()
            });
        }
        let failed = |source| ContainerConfigError::Io { path: dir.path().into(), source };
        if !mounts.iter().any(|mount| mount.container_path == "/etc/hosts") {
            let hosts = hosts::write_hosts_file(dir.path(), self.pod, self.ips).await.map_err(failed)?;
            mounts.push(file_mount("/etc/hosts", hosts));
        }
        let log = termination_log(&dir, &self.container.name, self.attempt);
        create_termination_log(log.clone()).await.map_err(failed)?;
        mounts.push(file_mount(termination_path(self.container), log));
        Ok(mounts)
    }
}

fn absolute_path(path: &str) -> String {
    if path.starts_with('/') { path.into() } else { format!("/{path}") }
}

fn file_mount(container_path: &str, host_path: PathBuf) -> Mount {
    let host_path = host_path.display().to_string();
    Mount { container_path: container_path.into(), host_path, ..Default::default() }
}

fn termination_path(container: &Container) -> &str {
    let path = container.termination_message_path.as_deref().filter(|path| !path.is_empty());
    path.unwrap_or("/dev/termination-log")
}

/// Returns the host path of a container's termination log.
pub fn termination_log(dir: &PodDir, container: &str, attempt: u32) -> PathBuf {
    dir.path().join("containers").join(container).join(attempt.to_string())
}

async fn create_termination_log(path: PathBuf) -> io::Result<()> {
    run_blocking(move || {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::File::create(&path)?;
        // The container may run as any user.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))
    })
    .await
}
