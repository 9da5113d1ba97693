//! Makes and starts one container of a pod.

use std::{fs, io, os::unix::fs::PermissionsExt, path::PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use runtime::cri::types::{
    ContainerConfig, ContainerMetadata, ImageSpec, KeyValue, LinuxContainerConfig, Mount, MountPropagation,
    PodSandboxStatus,
};

use crate::{
    agent::{self, Agent, container_reference},
    backoff::Backoffs,
    env::{self, Sources},
    hosts, images,
    objects::Objects,
    plan::hash_of,
    resources, sandbox, security,
    status::Waiting,
    truth::labels,
    volumes::PodDir,
};

/// A container to be started.
pub struct Launch<'a> {
    /// The shared parts.
    pub agent: &'a Agent,
    /// Whose it is.
    pub pod: &'a Pod,
    /// What it is.
    pub container: &'a Container,
    /// How often it was restarted.
    pub attempt: u32,
    /// Where it goes.
    pub sandbox: &'a PodSandboxStatus,
    /// The sandbox's addresses.
    pub ips: &'a [String],
    /// How long failing pulls wait.
    pub backoffs: &'a Backoffs,
}

impl Launch<'_> {
    /// Gets the image, makes the container and starts it; returns its id, or why it does not run.
    pub async fn run(&self) -> Result<String, Waiting> {
        let spec = self.pod.spec.clone().unwrap_or_default();
        let attempt = self.sandbox.metadata.as_ref().map_or(0, |metadata| metadata.attempt);
        let sandbox_config = sandbox::config(self.agent, self.pod, attempt);
        let image = images::ensure(self.agent, self.pod, self.container, self.backoffs, &sandbox_config).await?;
        if let Some(message) = security::forbids_root(&spec, self.container, &image) {
            return Err(self.failed("CreateContainerConfigError", message));
        }
        let config = self.config(&spec, &image.id).await;
        let config = config.map_err(|message| self.failed("CreateContainerConfigError", message))?;
        let created = self.agent.cri.create_container(&self.sandbox.id, config, sandbox_config).await;
        let id = created.map_err(|error| self.failed("CreateContainerError", error.message()))?;
        let about = || container_reference(self.pod, self.container);
        self.agent.recorder.normal(about(), "Created", "Container created");
        let started = self.agent.cri.start_container(&id).await;
        started.map_err(|error| self.failed("RunContainerError", error.message()))?;
        self.agent.recorder.normal(about(), "Started", "Container started");
        Ok(id)
    }

    fn failed(&self, reason: &'static str, message: String) -> Waiting {
        let about = container_reference(self.pod, self.container);
        self.agent.recorder.warning(about, "Failed", format!("Error: {message}"));
        Waiting { reason, message }
    }

    async fn config(&self, spec: &PodSpec, image: &str) -> Result<ContainerConfig, String> {
        let container = self.container;
        let environment = self.environment(spec).await.map_err(|error| error.to_string())?;
        let expand = |words: &Option<Vec<String>>| -> Vec<String> {
            words.iter().flatten().map(|word| env::expand(word, &environment)).collect()
        };
        let mounts = self.mounts(spec)?;
        let log_path = format!("{}/{}.log", container.name, self.attempt);
        let log_dir = self.agent.log_dir(self.pod).join(&container.name);
        fs::create_dir_all(&log_dir).map_err(|error| format!("{}: {error}", log_dir.display()))?;
        Ok(ContainerConfig {
            metadata: Some(ContainerMetadata { name: container.name.clone(), attempt: self.attempt }),
            image: Some(ImageSpec {
                image: image.into(),
                user_specified_image: container.image.clone().unwrap_or_default(),
                ..Default::default()
            }),
            command: expand(&container.command),
            args: expand(&container.args),
            working_dir: container.working_dir.clone().unwrap_or_default(),
            envs: environment.into_iter().map(|(key, value)| KeyValue { key, value }).collect(),
            mounts,
            labels: self.labels(),
            annotations: self.annotations(),
            log_path,
            stdin: container.stdin == Some(true),
            stdin_once: container.stdin_once == Some(true),
            tty: container.tty == Some(true),
            linux: Some(LinuxContainerConfig {
                resources: Some(resources::container(spec, container, self.agent.capacity[1])),
                security_context: Some(security::container(spec, container)),
            }),
            ..Default::default()
        })
    }

    async fn environment(&self, spec: &PodSpec) -> Result<Vec<(String, String)>, env::Error> {
        let objects = Objects::new(self.agent.client.clone(), agent::namespace(self.pod));
        let links = spec.enable_service_links != Some(false);
        let mut services = self.agent.services.list();
        services.retain(|service| {
            let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
            let is_master = namespace == "default" && service.metadata.name.as_deref() == Some("kubernetes");
            is_master || (links && namespace == agent::namespace(self.pod))
        });
        services.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let sources = Sources {
            pod: self.pod,
            objects: &objects,
            pod_ips: self.ips,
            host_ip: self.agent.node_ip.to_string(),
            capacity: self.agent.capacity,
            services,
        };
        env::resolve(self.container, &sources).await
    }

    fn labels(&self) -> std::collections::HashMap<String, String> {
        let own = (labels::CONTAINER.to_string(), self.container.name.clone());
        sandbox::pod_labels(self.pod).into_iter().chain([own]).collect()
    }

    fn annotations(&self) -> std::collections::HashMap<String, String> {
        let path = termination_path(self.container).to_string();
        let policy = self.container.termination_message_policy.clone().unwrap_or_else(|| "File".into());
        [
            (labels::HASH, hash_of(self.container)),
            (labels::RESTART_COUNT, self.attempt.to_string()),
            ("io.kubernetes.container.terminationMessagePath", path),
            ("io.kubernetes.container.terminationMessagePolicy", policy),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_string(), value))
        .collect()
    }

    /// The volumes, and the files that the kubelet manages: `/etc/hosts` and the termination log.
    fn mounts(&self, spec: &PodSpec) -> Result<Vec<Mount>, String> {
        let dir = PodDir::new(&self.agent.root_dir, agent::uid(self.pod));
        let mut mounts = Vec::new();
        for mount in self.container.volume_mounts.iter().flatten() {
            let volume = spec.volumes.iter().flatten().find(|volume| volume.name == mount.name);
            let volume = volume.ok_or_else(|| format!("volume {:?} not found", mount.name))?;
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
                container_path: absolute(&mount.mount_path),
                host_path: dir.volume(volume).display().to_string(),
                readonly: mount.read_only == Some(true) || content,
                propagation: propagation as i32,
                ..Default::default()
            });
        }
        let failed = |error: io::Error| format!("{}: {error}", dir.path().display());
        if !mounts.iter().any(|mount| mount.container_path == "/etc/hosts") {
            let hosts = hosts::write(dir.path(), self.pod, self.ips).map_err(failed)?;
            mounts.push(file_mount("/etc/hosts", hosts));
        }
        let log = termination_log(&dir, &self.container.name, self.attempt);
        make_termination_log(&log).map_err(failed)?;
        mounts.push(file_mount(termination_path(self.container), log));
        Ok(mounts)
    }
}

fn absolute(path: &str) -> String {
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

/// Where the node keeps what the container leaves to say.
pub fn termination_log(dir: &PodDir, container: &str, attempt: u32) -> PathBuf {
    dir.path().join("containers").join(container).join(attempt.to_string())
}

fn make_termination_log(path: &PathBuf) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::File::create(path)?;
    // A container may write it as any user.
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))
}
