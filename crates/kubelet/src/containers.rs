//! Creates and starts a container of a pod.

use std::{collections::HashMap, io, path::PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use runtime::cri::types::{
    ContainerConfig, ContainerMetadata, Image, ImageSpec, KeyValue, LinuxContainerConfig, LinuxContainerResources,
    PodSandboxConfig, PodSandboxStatus, UserNamespace,
};

use crate::{
    backoff::KeyedBackoff,
    config_objects::ConfigObjects,
    context::{self, KubeletContext, container_reference},
    environment::{self, EnvironmentSources},
    images,
    pod_actions::container_hash,
    pod_sandbox,
    pod_spec::RecursiveReadOnlyError,
    pod_status::WaitingReason,
    resources,
    runtime_status::labels,
    security_context,
    termination_message::termination_path,
    volumes::{PodDir, PodVolumes, VolumeError, subpath::SubPathError},
};

/// The CRI config of a container could not be built.
#[derive(Debug, thiserror::Error)]
pub enum ContainerConfigError {
    /// The environment could not be resolved.
    #[error(transparent)]
    Environment(#[from] environment::EnvironmentError),
    /// A mount names a volume that the pod lacks.
    #[error("volume {0:?} not found")]
    VolumeNotFound(String),
    /// A volume's claim could not be resolved.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// A subPath could not be mounted.
    #[error("failed to prepare subPath for volumeMount {volume:?} of container: {source}")]
    SubPath {
        /// The volume's name.
        volume: String,
        /// The cause.
        source: SubPathError,
    },
    /// A subPathExpr refers to a variable without a value.
    #[error("missing value for {0:?}")]
    MissingVariable(String),
    /// A device names a volume with a file system.
    #[error("volume {0:?} is not a block device")]
    NotABlockDevice(String),
    /// A mount cannot be recursively read-only.
    #[error(transparent)]
    RecursiveReadOnly(#[from] RecursiveReadOnlyError),
    /// A file operation failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
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
    /// The pod's volumes.
    pub volumes: &'a PodVolumes,
}

impl ContainerLaunch<'_> {
    /// Ensures the image, creates the container and starts it; returns its id, or the reason why it waits.
    pub async fn start_container(&self) -> Result<String, WaitingReason> {
        let spec = self.pod.spec.clone().unwrap_or_default();
        let attempt = self.sandbox.metadata.as_ref().map_or(0, |metadata| metadata.attempt);
        let users = self.kubelet.user_namespace(self.pod, &self.sandbox.runtime_handler).await;
        let users = users.map_err(|error| self.record_failure("CreateContainerConfigError", error.to_string()))?;
        let sandbox_config = pod_sandbox::sandbox_config(self.kubelet, self.pod, attempt, &users)
            .await
            .map_err(|error| self.record_failure("ConfigPodSandboxError", error.to_string()))?;
        let image =
            images::ensure_image_exists(self.kubelet, self.pod, self.container, self.backoffs, &sandbox_config).await?;
        if let Some(message) = security_context::verify_run_as_non_root(&spec, self.container, &image) {
            return Err(self.record_failure("CreateContainerConfigError", message));
        }
        self.pull_image_volumes(&spec, &sandbox_config).await?;
        let config = self.container_config(&spec, &image, &users).await;
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

    /// Pulls the images that the container mounts as volumes.
    async fn pull_image_volumes(&self, spec: &PodSpec, sandbox: &PodSandboxConfig) -> Result<(), WaitingReason> {
        let mounted = |name: &str| self.container.volume_mounts.iter().flatten().any(|mount| mount.name == name);
        for volume in spec.volumes.iter().flatten().filter(|volume| mounted(&volume.name)) {
            let Some(source) = &volume.image else { continue };
            let container = Container {
                name: self.container.name.clone(),
                image: source.reference.clone(),
                image_pull_policy: source.pull_policy.clone(),
                ..Default::default()
            };
            images::ensure_image_exists(self.kubelet, self.pod, &container, self.backoffs, sandbox).await?;
        }
        Ok(())
    }

    fn record_failure(&self, reason: &'static str, message: String) -> WaitingReason {
        let about = container_reference(self.pod, self.container);
        self.kubelet.recorder.record_warning(about, "Failed", format!("Error: {message}"));
        WaitingReason { reason, message }
    }

    async fn container_config(
        &self,
        spec: &PodSpec,
        image: &Image,
        users: &UserNamespace,
    ) -> Result<ContainerConfig, ContainerConfigError> {
        let container = self.container;
        let environment = self.resolve_environment(spec).await?;
        let expand = |words: &Option<Vec<String>>| -> Vec<String> {
            words.iter().flatten().map(|word| environment::expand_references(word, &environment)).collect()
        };
        let mut mounts = self.container_mounts(spec, &environment).await?;
        for mount in &mut mounts {
            (mount.uid_mappings, mount.gid_mappings) = (users.uids.clone(), users.gids.clone());
        }
        let devices = self.container_devices(spec).await?;
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
            devices,
            labels: self.container_labels(),
            annotations: self.container_annotations(),
            log_path,
            stdin: container.stdin == Some(true),
            stdin_once: container.stdin_once == Some(true),
            tty: container.tty == Some(true),
            linux: Some(LinuxContainerConfig {
                resources: Some(self.container_resources(spec)),
                security_context: Some(security_context::container_security_context(
                    spec,
                    container,
                    image,
                    (&self.kubelet.root_dir, users),
                )),
            }),
            ..Default::default()
        })
    }

    /// The resources of the container, with the CPUs on which it runs.
    fn container_resources(&self, spec: &PodSpec) -> LinuxContainerResources {
        let mut resources = resources::container_resources(spec, self.container, self.kubelet.capacity.memory);
        let (uid, admission) = (context::pod_uid(self.pod), self.kubelet.lock_admission());
        resources.cpuset_cpus = admission.cpus_of(uid, &self.container.name).unwrap_or_default();
        if admission.has_own_cpus(uid, &self.container.name) {
            resources.cpu_quota = -1;
        }
        resources
    }

    async fn resolve_environment(&self, spec: &PodSpec) -> Result<Vec<(String, String)>, ContainerConfigError> {
        let objects = ConfigObjects::new(&self.kubelet.objects, self.pod, self.volumes.changes.clone());
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
            volume_paths: self.environment_volumes(spec).await?,
        };
        Ok(environment::resolve_environment(self.container, &sources).await?)
    }

    /// Returns the host paths of the volumes with environment files.
    async fn environment_volumes(&self, spec: &PodSpec) -> Result<HashMap<String, PathBuf>, ContainerConfigError> {
        let dir = PodDir::new(&self.kubelet.root_dir, context::pod_uid(self.pod));
        let mut paths = HashMap::new();
        let sources = self.container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
        for reference in sources.filter_map(|source| source.file_key_ref.as_ref()) {
            let volume = spec.volumes.iter().flatten().find(|volume| volume.name == reference.volume_name);
            let Some(volume) = volume else { continue };
            let resolved = self.volumes.resolve_volume(&self.kubelet.client, self.pod, volume).await?;
            paths.insert(volume.name.clone(), dir.volume_path(volume, &resolved));
        }
        Ok(paths)
    }

    fn container_labels(&self) -> HashMap<String, String> {
        let own = (labels::CONTAINER.to_string(), self.container.name.clone());
        pod_sandbox::pod_labels(self.pod).into_iter().chain([own]).collect()
    }

    fn container_annotations(&self) -> HashMap<String, String> {
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
}
