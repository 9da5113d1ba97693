//! Containers: created, started, stopped, removed.

use std::{
    collections::HashMap,
    fs, io,
    os::{
        fd::AsFd,
        unix::fs::{MetadataExt, PermissionsExt},
    },
    sync::{Arc, PoisonError},
    time::Duration,
};

use sys::{container_cgroup::ContainerCgroup, device_filter::set_device_filter};
use tonic::Status;

use super::{
    RuntimeServer, blocking,
    container_spec::{SpecSource, cgroup_path, cgroup_resources},
    internal,
    namespaces::{namespaces, user_namespace},
    new_id,
    records::{ContainerEntry, NewContainer, Sandbox, now},
    stop_signal::parse_stop_signal,
};
use crate::{
    container::{ContainerSpec, spec::DeviceRule},
    cri::types::*,
    image::ImageRecord,
    state_file::{read_state, write_state},
    supervisor::{SupervisorError, SupervisorRequest, SupervisorResponse},
};

/// Time that a killed process has to end.
const KILL_PATIENCE: Duration = Duration::from_secs(30);
/// The exit code of a container whose program could not be started.
const START_FAILED: i32 = 128;

impl RuntimeServer {
    pub(super) async fn create_container(
        self: &Arc<Self>,
        request: CreateContainerRequest,
    ) -> Result<CreateContainerResponse, Status> {
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        if !sandbox.state().ready {
            return Err(Status::unknown(format!("sandbox container {:?} is not running", sandbox.id)));
        }
        let config = request.config.ok_or_else(|| Status::invalid_argument("the request has no configuration"))?;
        if config.metadata.as_ref().is_none_or(|metadata| metadata.name.is_empty()) {
            return Err(Status::invalid_argument("container config must include metadata with a name"));
        }
        if !config.cdi_devices.is_empty() {
            return Err(Status::unimplemented("CDI devices are not supported by this runtime"));
        }
        let server = self.clone();
        let container = blocking(move || server.make_container(&sandbox, config)).await??;
        let id = container.id.clone();
        let sandbox = self.sandbox(&container.sandbox)?;
        self.containers.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), container);
        self.publish(&sandbox, &id, ContainerEventType::ContainerCreatedEvent);
        Ok(CreateContainerResponse { container_id: id })
    }

    fn make_container(&self, sandbox: &Sandbox, config: ContainerConfig) -> Result<Arc<ContainerEntry>, Status> {
        let name = config.image.as_ref().map_or("", |image| image.image.as_str());
        let image = self.find_image(name)?;
        let image_config = self.images.config(&image).map_err(|error| internal("image", &error))?;
        let id = new_id();
        let parent = sandbox.config.linux.as_ref().map_or("", |linux| linux.cgroup_parent.as_str());
        let volumes = config.mounts.iter().filter_map(|mount| Some((mount, mount.image.as_ref()?)));
        let image_layers = volumes
            .map(|(mount, volume)| Ok((mount.container_path.clone(), self.find_image(&volume.image)?.layers)))
            .collect::<Result<HashMap<String, Vec<String>>, Status>>()?;
        let container = Arc::new(ContainerEntry::new(NewContainer {
            directory: self.options.root.join("containers").join(&id),
            sandbox: sandbox.id.clone(),
            config,
            image: image.id.clone(),
            layers: image.layers.clone(),
            volume_layers: image_layers.values().flatten().cloned().collect(),
            cgroup: cgroup_path(parent, &id),
            id,
        }));
        let source =
            SpecSource { container: &container, sandbox, image: image_config.config.unwrap_or_default(), image_layers };
        let made = self.make_directories(&container, &image, sandbox).and_then(|()| {
            let spec = self.container_spec(&source)?;
            let failed = |error: io::Error| internal("failed to create container", &error);
            write_state(&container.directory.join("spec.json"), &spec).map_err(failed)?;
            let signal = source.image.stop_signal.clone();
            container.update(|life| life.stop_signal = signal).map_err(failed)
        });
        if let Err(status) = made {
            // What cannot be removed now is removed at the next start.
            let _ = sys::beneath::remove_tree(&container.directory);
            return Err(status);
        }
        Ok(container)
    }

    fn make_directories(
        &self,
        container: &ContainerEntry,
        image: &ImageRecord,
        sandbox: &Sandbox,
    ) -> Result<(), Status> {
        let users = user_namespace(&namespaces(&sandbox.config))?;
        let make = || -> io::Result<()> {
            for name in ["rootfs", "upper", "work"] {
                fs::create_dir_all(container.directory.join(name))?;
            }
            // The upper directory's owner and mode are those of the root.
            if let Some(top) = image.layers.last() {
                let found = fs::metadata(self.images.layers_dir().join(top))?;
                let upper = container.directory.join("upper");
                let owner = (found.uid(), found.gid());
                let (uid, gid) = users.as_ref().and_then(|users| users.host_owner(owner.0, owner.1)).unwrap_or(owner);
                std::os::unix::fs::chown(&upper, Some(uid), Some(gid))?;
                fs::set_permissions(&upper, fs::Permissions::from_mode(found.mode() & 0o7777))?;
            }
            Ok(())
        };
        make().map_err(|error| internal("failed to create container", &error))
    }

    pub(super) async fn start_container(
        self: &Arc<Self>,
        request: StartContainerRequest,
    ) -> Result<StartContainerResponse, Status> {
        let container = self.container(&request.container_id)?;
        let sandbox = self.sandbox(&container.sandbox)?;
        if !container.life().is(ContainerState::ContainerCreated) || !container.claim_start() {
            return Err(Status::unknown(format!("container {:?} was started already", container.id)));
        }
        if !sandbox.state().ready {
            return Err(Status::unknown(format!("sandbox container {:?} is not running", sandbox.id)));
        }
        match self.run_container(&sandbox, &container).await {
            Ok(()) => {
                self.publish(&sandbox, &container.id, ContainerEventType::ContainerStartedEvent);
                Ok(StartContainerResponse {})
            }
            Err(message) => {
                let recorded = container.update(|life| {
                    life.state = ContainerState::ContainerExited as i32;
                    (life.exit_code, life.reason) = (START_FAILED, "StartError".into());
                    life.message.clone_from(&message);
                    life.finished_at = now();
                });
                if let Err(error) = recorded {
                    tracing::warn!(container = container.id, %error, "container runtime: failed start not written");
                }
                self.remove_cgroup(&container);
                self.publish(&sandbox, &container.id, ContainerEventType::ContainerStoppedEvent);
                Err(Status::unknown(format!("failed to start container {:?}: {message}", container.id)))
            }
        }
    }

    /// Starts the container; the text says why it failed.
    async fn run_container(&self, sandbox: &Sandbox, container: &Arc<ContainerEntry>) -> Result<(), String> {
        let (entry, cgroups) = (container.clone(), self.cgroups.clone());
        let prepare = move || prepare_start(&entry, &ContainerCgroup::at(&cgroups, &entry.cgroup));
        let spec = blocking(prepare).await.map_err(|status| status.message().to_owned())??;
        let started = sandbox.supervisor.call(&SupervisorRequest::Start(Box::new(spec))).await;
        let process = match started {
            Ok(SupervisorResponse::Started(process)) => process,
            Ok(_) => return Err(SupervisorError::Unexpected.to_string()),
            Err(error) => return Err(format!("unable to start container process: {error}")),
        };
        let written = container.update(|life| {
            // Its end may have been reported before.
            if life.is(ContainerState::ContainerCreated) {
                life.state = ContainerState::ContainerRunning as i32;
            }
            (life.started_at, life.pid) = (process.started_at, process.pid);
            life.user = Some((process.uid, process.gid, process.groups));
        });
        written.map_err(|error| error.to_string())
    }

    pub(super) async fn stop_container(&self, request: StopContainerRequest) -> Result<StopContainerResponse, Status> {
        let Ok(container) = self.container(&request.container_id) else { return Ok(StopContainerResponse {}) };
        self.end_container(&container, Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0))).await?;
        Ok(StopContainerResponse {})
    }

    /// Ends a container: the stop signal, a grace period, SIGKILL.
    async fn end_container(&self, container: &Arc<ContainerEntry>, grace: Duration) -> Result<(), Status> {
        if !container.life().is(ContainerState::ContainerRunning) {
            return Ok(());
        }
        if !grace.is_zero() {
            self.signal(container, self.stop_signal(container), false).await?;
            if tokio::time::timeout(grace, container.wait_for_exit()).await.is_ok() {
                return Ok(());
            }
        }
        self.signal(container, libc::SIGKILL, true).await?;
        let ended = tokio::time::timeout(KILL_PATIENCE, container.wait_for_exit()).await;
        ended.map_err(|_| Status::deadline_exceeded(format!("container {:?} does not end", container.id)))
    }

    /// The number of the signal that stops a container.
    fn stop_signal(&self, container: &ContainerEntry) -> i32 {
        let config = container.config();
        match Signal::try_from(config.stop_signal) {
            Ok(Signal::RuntimeDefault) | Err(_) => parse_stop_signal(&container.life().stop_signal),
            Ok(signal) => parse_stop_signal(&format!("{signal:?}")),
        }
    }

    async fn signal(&self, container: &ContainerEntry, signal: i32, all: bool) -> Result<(), Status> {
        let sandbox = self.sandbox(&container.sandbox)?;
        let request = SupervisorRequest::Signal { container: container.id.clone(), signal, all };
        match sandbox.supervisor.call(&request).await {
            Ok(_) | Err(SupervisorError::NotFound) => Ok(()),
            // Without its supervisor the pod is on its end, which is recorded.
            Err(SupervisorError::Io(_)) => Ok(()),
            Err(error) => Err(internal("failed to stop container", &error)),
        }
    }

    pub(super) async fn remove_container(
        &self,
        request: RemoveContainerRequest,
    ) -> Result<RemoveContainerResponse, Status> {
        let Ok(container) = self.container(&request.container_id) else { return Ok(RemoveContainerResponse {}) };
        self.delete_container(&container).await?;
        Ok(RemoveContainerResponse {})
    }

    /// Removes everything of a container.
    pub(super) async fn delete_container(&self, container: &Arc<ContainerEntry>) -> Result<(), Status> {
        self.end_container(container, Duration::ZERO).await?;
        let sandbox = self.sandbox(&container.sandbox)?;
        // A supervisor that is gone has forgotten it already.
        let _ = sandbox.supervisor.call(&SupervisorRequest::Forget { container: container.id.clone() }).await;
        self.remove_cgroup(container);
        let directory = container.directory.clone();
        let removed = blocking(move || sys::beneath::remove_tree(&directory)).await?;
        removed.map_err(|error| internal("failed to remove container", &error))?;
        self.containers.lock().unwrap_or_else(PoisonError::into_inner).remove(&container.id);
        self.publish(&sandbox, &container.id, ContainerEventType::ContainerDeletedEvent);
        Ok(())
    }

    /// Removes the control group of a container that has ended.
    pub(super) fn remove_cgroup(&self, container: &ContainerEntry) {
        if let Err(error) = ContainerCgroup::at(&self.cgroups, &container.cgroup).remove() {
            tracing::warn!(container = container.id, %error, "container runtime: control group not removed");
        }
    }

    pub(super) async fn update_container_resources(
        &self,
        request: UpdateContainerResourcesRequest,
    ) -> Result<UpdateContainerResourcesResponse, Status> {
        let container = self.container(&request.container_id)?;
        let life = container.life();
        if life.is(ContainerState::ContainerExited) {
            return Err(Status::unknown(format!("container {:?} is not running", container.id)));
        }
        let Some(resources) = request.linux else { return Ok(UpdateContainerResourcesResponse {}) };
        if life.is(ContainerState::ContainerRunning) {
            let cgroup = ContainerCgroup::at(&self.cgroups, &container.cgroup);
            let set = cgroup.set_resources(&cgroup_resources(&resources));
            set.map_err(|error| internal("failed to update resources", &error))?;
        }
        container.merge_resources(&resources);
        container.update(|_| {}).map_err(|error| internal("failed to update resources", &error))?;
        Ok(UpdateContainerResourcesResponse {})
    }

    pub(super) async fn reopen_container_log(
        &self,
        request: ReopenContainerLogRequest,
    ) -> Result<ReopenContainerLogResponse, Status> {
        let container = self.container(&request.container_id)?;
        if !container.life().is(ContainerState::ContainerRunning) {
            return Err(Status::unknown("container is not running"));
        }
        let sandbox = self.sandbox(&container.sandbox)?;
        let reopened = sandbox.supervisor.call(&SupervisorRequest::ReopenLog { container: container.id.clone() }).await;
        reopened.map_err(|error| internal("failed to reopen log", &error))?;
        Ok(ReopenContainerLogResponse {})
    }
}

/// Makes the control group and reads the specification, with the resources as they are now.
fn prepare_start(container: &ContainerEntry, cgroup: &ContainerCgroup) -> Result<ContainerSpec, String> {
    let spec =
        read_state::<ContainerSpec>(&container.directory.join("spec.json")).map_err(|error| error.to_string())?;
    let mut spec = spec.ok_or("the container has no specification")?;
    cgroup.create().map_err(|error| error.to_string())?;
    let resources = container.config().linux.and_then(|linux| linux.resources).unwrap_or_default();
    cgroup.set_resources(&cgroup_resources(&resources)).map_err(|error| error.to_string())?;
    spec.process.oom_score_adj = i32::try_from(resources.oom_score_adj).ok();
    let rules: Vec<(bool, String)> = spec.cgroup.devices.iter().map(|rule| (rule.allow, rule.to_legacy())).collect();
    cgroup.set_legacy_devices(&rules).map_err(|error| error.to_string())?;
    if let Some(group) = cgroup.open_unified() {
        let rules: Vec<_> = spec.cgroup.devices.iter().map(DeviceRule::to_filter_rule).collect();
        let set = group.and_then(|group| set_device_filter(group.as_fd(), &rules));
        set.map_err(|error| format!("restrict devices: {error}"))?;
    }
    Ok(spec)
}
