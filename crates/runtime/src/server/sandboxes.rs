//! Pod sandboxes.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{Arc, PoisonError},
};

use cni::runner::{Attachment, load_network};
use serde_json::json;
use sys::{container_cgroup::ContainerCgroup, process::ProcessHandle};
use tonic::Status;

use super::{
    RuntimeServer, blocking, internal,
    namespaces::{namespaces, user_namespace},
    new_id,
    records::Sandbox,
};
use crate::{
    cri::types::*,
    supervisor::{MessageStream, SandboxSpec, SupervisorRequest, SupervisorResponse},
};

/// The interface of pods.
pub const INTERFACE: &str = "eth0";
/// The size of `/dev/shm`, as containerd has it.
const SHM_SIZE: u64 = 64 << 20;

/// Writes the root of pause processes.
pub fn write_pause_root(root: &Path) -> io::Result<()> {
    fs::create_dir_all(root.join("proc"))?;
    let program = root.join("pause");
    if fs::read(&program).is_ok_and(|old| old == crate::pause::PAUSE_BINARY) {
        return Ok(());
    }
    let temporary = root.join("pause.new");
    fs::write(&temporary, crate::pause::PAUSE_BINARY)?;
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o755))?;
    fs::rename(&temporary, &program)
}

impl RuntimeServer {
    pub(super) async fn run_pod_sandbox(
        self: &Arc<Self>,
        request: RunPodSandboxRequest,
    ) -> Result<RunPodSandboxResponse, Status> {
        let Some(config) = request.config else { return Err(Status::invalid_argument("sandbox config is missing")) };
        if config.metadata.is_none() {
            return Err(Status::invalid_argument("sandbox config must include metadata"));
        }
        if !request.runtime_handler.is_empty() {
            let handler = request.runtime_handler;
            return Err(Status::invalid_argument(format!("no runtime for {handler:?} is configured")));
        }
        let options = namespaces(&config);
        user_namespace(&options)?;
        let id = new_id();
        let directory = self.options.root.join("sandboxes").join(&id);
        let sandbox = Arc::new(Sandbox::new(id.clone(), directory, &self.socket_of(&id), config, String::new()));
        match self.start_sandbox(&sandbox, &options).await {
            Ok(messages) => {
                self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), sandbox.clone());
                self.watch_supervisor(sandbox.clone(), messages);
                self.publish(&sandbox, &id, ContainerEventType::ContainerCreatedEvent);
                self.publish(&sandbox, &id, ContainerEventType::ContainerStartedEvent);
                Ok(RunPodSandboxResponse { pod_sandbox_id: id })
            }
            Err(status) => {
                // Nothing of it may stay; what cannot be removed now is removed at the next start.
                self.clean_sandbox(&sandbox).await;
                Err(status)
            }
        }
    }

    async fn start_sandbox(&self, sandbox: &Arc<Sandbox>, options: &NamespaceOption) -> Result<MessageStream, Status> {
        let failed = |error: io::Error| internal("failed to create the sandbox", &error);
        fs::create_dir_all(&sandbox.directory).map_err(failed)?;
        sandbox.update(|_| {}).map_err(failed)?;
        write_pod_files(sandbox).map_err(failed)?;
        if options.ipc != NamespaceMode::Node as i32 {
            let shm = sandbox.directory.join("shm");
            fs::create_dir_all(&shm).map_err(failed)?;
            sys::mount::mount_tmpfs(&shm, Some(SHM_SIZE), 0o1777).map_err(|error| failed(io::Error::other(error)))?;
        }
        let has_network = options.network != NamespaceMode::Node as i32;
        let shares_pid = options.pid == NamespaceMode::Pod as i32;
        let cgroup = self.pause_cgroup(sandbox);
        if shares_pid {
            let group = ContainerCgroup::at(&self.cgroups, &cgroup);
            group.create().map_err(|error| failed(io::Error::other(error)))?;
        }
        let linux = sandbox.config.linux.clone().unwrap_or_default();
        let spec = SandboxSpec {
            id: sandbox.id.clone(),
            socket: self.socket_of(&sandbox.id),
            network: has_network,
            ipc: options.ipc != NamespaceMode::Node as i32,
            uts: has_network,
            hostname: sandbox.config.hostname.clone(),
            sysctls: linux.sysctls.into_iter().collect(),
            pause_root: shares_pid.then(|| self.options.root.join("pause")),
            pause_cgroup: shares_pid.then_some(cgroup),
            user_namespace: user_namespace(options)?,
        };
        let channel = self.launcher.start_supervisor(&spec).map_err(failed)?;
        let stream = std::os::unix::net::UnixStream::from(channel);
        stream.set_nonblocking(true).map_err(failed)?;
        let mut messages = MessageStream::new(tokio::net::UnixStream::from_std(stream).map_err(failed)?);
        let pid = match messages.receive().await.map_err(failed)? {
            Some(SupervisorResponse::Ready { pid }) => pid,
            Some(SupervisorResponse::Failed(message)) => {
                return Err(internal("failed to create the sandbox", &message));
            }
            _ => return Err(internal("failed to create the sandbox", &"its supervisor ended")),
        };
        let started = ProcessHandle::from_pid(pid as u32).map(|process| process.started).unwrap_or(0);
        sandbox
            .update(|state| (state.pid, state.pid_started, state.attached) = (pid, started, has_network))
            .map_err(failed)?;
        let mut ips = Vec::new();
        if has_network {
            ips = self.attach_network(sandbox, pid).await?;
        }
        sandbox.update(|state| (state.ready, state.ips) = (true, ips)).map_err(failed)?;
        Ok(messages)
    }

    pub(super) fn pause_cgroup(&self, sandbox: &Sandbox) -> String {
        let parent = sandbox.config.linux.as_ref().map_or("", |linux| linux.cgroup_parent.as_str());
        super::container_spec::cgroup_path(parent, &sandbox.id)
    }

    /// Whether the containers of a sandbox share a PID namespace.
    pub(super) fn shares_pid(&self, sandbox: &Sandbox) -> bool {
        namespaces(&sandbox.config).pid == NamespaceMode::Pod as i32
    }

    async fn attach_network(&self, sandbox: &Arc<Sandbox>, pid: i32) -> Result<Vec<String>, Status> {
        let (runner, config) = (self.cni.clone(), self.options.cni_config.clone());
        let attachment = attachment(sandbox, format!("/proc/{pid}/ns/net"));
        let added = blocking(move || runner.add(&load_network(&config)?, &attachment)).await?;
        let what = format!("failed to setup network for sandbox \"{}\"", sandbox.id);
        let addresses = added.map_err(|error| internal(&what, &error))?;
        Ok(addresses.iter().map(ToString::to_string).collect())
    }

    async fn detach_network(&self, sandbox: &Arc<Sandbox>) -> Result<(), Status> {
        let state = sandbox.state();
        if !state.attached {
            return Ok(());
        }
        // The path of a process that is gone may be that of another.
        let alive = ProcessHandle { pid: state.pid as u32, started: state.pid_started }.is_alive();
        let namespace = if alive { format!("/proc/{}/ns/net", state.pid) } else { String::new() };
        let (runner, config) = (self.cni.clone(), self.options.cni_config.clone());
        let attachment = attachment(sandbox, namespace);
        let deleted = blocking(move || runner.delete(&load_network(&config)?, &attachment)).await?;
        let what = format!("failed to destroy network for sandbox \"{}\"", sandbox.id);
        deleted.map_err(|error| internal(&what, &error))?;
        sandbox.update(|state| state.attached = false).map_err(|error| internal("sandbox", &error))
    }

    pub(super) async fn stop_pod_sandbox(
        self: &Arc<Self>,
        request: StopPodSandboxRequest,
    ) -> Result<StopPodSandboxResponse, Status> {
        let Ok(sandbox) = self.sandbox(&request.pod_sandbox_id) else { return Ok(StopPodSandboxResponse {}) };
        self.stop_sandbox(&sandbox).await?;
        Ok(StopPodSandboxResponse {})
    }

    pub(super) async fn stop_sandbox(&self, sandbox: &Arc<Sandbox>) -> Result<(), Status> {
        let was_ready = sandbox.state().ready;
        sandbox.update(|state| state.ready = false).map_err(|error| internal("sandbox", &error))?;
        self.detach_network(sandbox).await?;
        // A supervisor that is gone has nothing left to stop.
        let _ = sandbox.supervisor.call(&SupervisorRequest::Stop).await;
        for container in self.containers_of(&sandbox.id) {
            if container.life().is(ContainerState::ContainerRunning) {
                let ended = tokio::time::timeout(std::time::Duration::from_secs(10), container.wait_for_exit()).await;
                if ended.is_err() {
                    self.record_lost_exit(&container);
                }
            }
        }
        self.kill_leftovers(sandbox).await;
        let shm = sandbox.directory.join("shm");
        sys::mount::unmount(&shm).map_err(|error| internal("sandbox", &error))?;
        if was_ready {
            self.publish(sandbox, &sandbox.id, ContainerEventType::ContainerStoppedEvent);
        }
        Ok(())
    }

    /// Kills what is left in the pod's control groups, after its supervisor is gone.
    pub(super) async fn kill_leftovers(&self, sandbox: &Arc<Sandbox>) {
        let mut groups: Vec<String> = self.containers_of(&sandbox.id).iter().map(|one| one.cgroup.clone()).collect();
        groups.push(self.pause_cgroup(sandbox));
        for group in groups {
            let group = ContainerCgroup::at(&self.cgroups, &group);
            for _ in 0..200 {
                if !group.kill_all() {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        }
    }

    pub(super) async fn remove_pod_sandbox(
        self: &Arc<Self>,
        request: RemovePodSandboxRequest,
    ) -> Result<RemovePodSandboxResponse, Status> {
        let Ok(sandbox) = self.sandbox(&request.pod_sandbox_id) else { return Ok(RemovePodSandboxResponse {}) };
        self.stop_sandbox(&sandbox).await?;
        for container in self.containers_of(&sandbox.id) {
            self.delete_container(&container).await?;
        }
        self.clean_sandbox(&sandbox).await;
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner).remove(&sandbox.id);
        self.publish(&sandbox, &sandbox.id, ContainerEventType::ContainerDeletedEvent);
        Ok(RemovePodSandboxResponse {})
    }

    /// Removes everything of a sandbox.
    pub(super) async fn clean_sandbox(&self, sandbox: &Arc<Sandbox>) {
        if let Err(error) = self.detach_network(sandbox).await {
            tracing::warn!(sandbox = sandbox.id, %error, "container runtime: network not released, retried at the next start");
            return;
        }
        let _ = sandbox.supervisor.call(&SupervisorRequest::Stop).await;
        self.kill_leftovers(sandbox).await;
        let group = ContainerCgroup::at(&self.cgroups, &self.pause_cgroup(sandbox));
        let removed = sys::mount::unmount(&sandbox.directory.join("shm"))
            .map_err(io::Error::other)
            .and_then(|()| group.remove().map_err(io::Error::other))
            .and_then(|()| sys::beneath::remove_tree(&sandbox.directory));
        let _ = fs::remove_file(self.socket_of(&sandbox.id));
        if let Err(error) = removed {
            tracing::warn!(sandbox = sandbox.id, %error, "container runtime: sandbox not removed, retried at the next start");
        }
    }

    pub(super) async fn pod_sandbox_status(
        &self,
        request: PodSandboxStatusRequest,
    ) -> Result<PodSandboxStatusResponse, Status> {
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        let statuses = self.containers_of(&sandbox.id);
        Ok(PodSandboxStatusResponse {
            status: Some(sandbox_status(&sandbox)),
            info: Default::default(),
            containers_statuses: statuses.iter().map(|container| self.status_of(container)).collect(),
            timestamp: super::records::now(),
        })
    }

    pub(super) async fn list_pod_sandbox(
        &self,
        request: ListPodSandboxRequest,
    ) -> Result<ListPodSandboxResponse, Status> {
        let filter = request.filter.unwrap_or_default();
        let mut items: Vec<PodSandbox> = Vec::new();
        for sandbox in self.list_sandboxes() {
            let state = sandbox_state(&sandbox);
            let labels = &sandbox.config.labels;
            let matches = (filter.id.is_empty() || sandbox.id.starts_with(&filter.id))
                && filter.state.as_ref().is_none_or(|wanted| wanted.state == state)
                && filter.label_selector.iter().all(|(key, value)| labels.get(key) == Some(value));
            if matches {
                items.push(PodSandbox {
                    id: sandbox.id.clone(),
                    metadata: sandbox.config.metadata.clone(),
                    state,
                    created_at: sandbox.created_at,
                    labels: labels.clone(),
                    annotations: sandbox.config.annotations.clone(),
                    runtime_handler: sandbox.handler.clone(),
                });
            }
        }
        Ok(ListPodSandboxResponse { items })
    }
}

fn sandbox_state(sandbox: &Sandbox) -> i32 {
    let ready = sandbox.state().ready;
    if ready { PodSandboxState::SandboxReady as i32 } else { PodSandboxState::SandboxNotready as i32 }
}

/// CRI's status of a sandbox.
pub fn sandbox_status(sandbox: &Sandbox) -> PodSandboxStatus {
    let state = sandbox.state();
    let mut ips = if state.ready { state.ips } else { Vec::new() }.into_iter();
    let ip = ips.next().unwrap_or_default();
    PodSandboxStatus {
        id: sandbox.id.clone(),
        metadata: sandbox.config.metadata.clone(),
        state: sandbox_state(sandbox),
        created_at: sandbox.created_at,
        network: Some(PodSandboxNetworkStatus { ip, additional_ips: ips.map(|ip| PodIp { ip }).collect() }),
        linux: Some(LinuxPodSandboxStatus {
            namespaces: Some(Namespace { options: Some(namespaces(&sandbox.config)) }),
        }),
        labels: sandbox.config.labels.clone(),
        annotations: sandbox.config.annotations.clone(),
        runtime_handler: sandbox.handler.clone(),
    }
}

fn attachment(sandbox: &Sandbox, namespace: String) -> Attachment {
    let metadata = sandbox.config.metadata.clone().unwrap_or_default();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut capabilities = BTreeMap::new();
    let ports: Vec<_> = sandbox
        .config
        .port_mappings
        .iter()
        .filter(|port| port.host_port > 0)
        .map(|port| {
            let protocol = ["tcp", "udp", "sctp"].get(port.protocol as usize).copied().unwrap_or("tcp");
            json!({ "hostPort": port.host_port, "containerPort": port.container_port, "protocol": protocol, "hostIP": port.host_ip })
        })
        .collect();
    if !ports.is_empty() {
        capabilities.insert("portMappings".to_owned(), ports.into());
    }
    if let Some(dns) = &sandbox.config.dns_config {
        let value = json!({ "servers": dns.servers, "searches": dns.searches, "options": dns.options });
        capabilities.insert("dns".to_owned(), value);
    }
    Attachment {
        container_id: sandbox.id.clone(),
        namespace,
        interface: INTERFACE.into(),
        arguments: vec![
            pair("IgnoreUnknown", "1"),
            pair("K8S_POD_NAMESPACE", &metadata.namespace),
            pair("K8S_POD_NAME", &metadata.name),
            pair("K8S_POD_INFRA_CONTAINER_ID", &sandbox.id),
            pair("K8S_POD_UID", &metadata.uid),
        ],
        capabilities,
    }
}

/// Writes the files that containers of the pod share.
fn write_pod_files(sandbox: &Sandbox) -> io::Result<()> {
    let directory = &sandbox.directory;
    fs::write(directory.join("hostname"), format!("{}\n", sandbox.hostname()))?;
    fs::write(directory.join("hosts"), fs::read("/etc/hosts").unwrap_or_default())?;
    let resolv = match &sandbox.config.dns_config {
        Some(dns) if !(dns.servers.is_empty() && dns.searches.is_empty() && dns.options.is_empty()) => {
            let mut text = String::new();
            if !dns.searches.is_empty() {
                text.push_str(&format!("search {}\n", dns.searches.join(" ")));
            }
            dns.servers.iter().for_each(|server| text.push_str(&format!("nameserver {server}\n")));
            if !dns.options.is_empty() {
                text.push_str(&format!("options {}\n", dns.options.join(" ")));
            }
            text.into_bytes()
        }
        _ => fs::read("/etc/resolv.conf").unwrap_or_default(),
    };
    fs::write(directory.join("resolv.conf"), resolv)
}
