//! Sandboxes and containers as they are kept in memory and on disk.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use base64::{Engine, prelude::BASE64_STANDARD};
use prost::Message;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{
    cri::types::{ContainerConfig, ContainerState, LinuxContainerResources, PodSandboxConfig},
    state_file::{read_state, write_state},
    supervisor::SupervisorClient,
};

/// The mutable state of a sandbox.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct SandboxState {
    /// Whether the supervisor runs and the network is there.
    pub ready: bool,
    /// The supervisor's pid.
    pub pid: i32,
    /// The supervisor's start time.
    pub pid_started: u64,
    /// The addresses.
    pub ips: Vec<String>,
    /// Whether plug-ins may hold something for it.
    pub attached: bool,
}

/// The record of a sandbox on disk.
#[derive(Deserialize, Serialize)]
struct SandboxFile {
    config: String,
    handler: String,
    created_at: i64,
    state: SandboxState,
}

/// A sandbox.
pub struct Sandbox {
    /// The id.
    pub id: String,
    /// Its directory.
    pub directory: PathBuf,
    /// Its configuration.
    pub config: PodSandboxConfig,
    /// The runtime handler.
    pub handler: String,
    /// Nanoseconds since 1970.
    pub created_at: i64,
    /// Its supervisor.
    pub supervisor: SupervisorClient,
    state: Mutex<SandboxState>,
}

impl Sandbox {
    /// A new sandbox.
    pub fn new(id: String, directory: PathBuf, socket: &Path, config: PodSandboxConfig, handler: String) -> Self {
        let supervisor = SupervisorClient::new(socket);
        Self { id, directory, config, handler, created_at: now(), supervisor, state: Mutex::default() }
    }

    /// Reads a sandbox from its directory; `None` if it was never written.
    pub fn load(directory: &Path, socket: &Path) -> io::Result<Option<Self>> {
        let Some(file) = read_state::<SandboxFile>(&directory.join("sandbox.json"))? else { return Ok(None) };
        let id = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        Ok(Some(Self {
            id,
            directory: directory.to_owned(),
            config: decode(&file.config)?,
            handler: file.handler,
            created_at: file.created_at,
            supervisor: SupervisorClient::new(socket),
            state: Mutex::new(file.state),
        }))
    }

    /// The state.
    pub fn state(&self) -> SandboxState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the state; it is on disk when this returns.
    pub fn update(&self, change: impl FnOnce(&mut SandboxState)) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let file = SandboxFile {
            config: encode(&self.config),
            handler: self.handler.clone(),
            created_at: self.created_at,
            state: state.clone(),
        };
        write_state(&self.directory.join("sandbox.json"), &file)
    }

    /// The host name that containers of the pod see.
    pub fn hostname(&self) -> String {
        match self.config.hostname.as_str() {
            "" => rustix::system::uname().nodename().to_string_lossy().into_owned(),
            name => name.to_owned(),
        }
    }
}

/// The mutable state of a container.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct ContainerLife {
    /// CRI's state.
    pub state: i32,
    /// Nanoseconds since 1970.
    pub started_at: i64,
    /// Nanoseconds since 1970.
    pub finished_at: i64,
    /// The exit code.
    pub exit_code: i32,
    /// Why it ended.
    pub reason: String,
    /// More about it.
    pub message: String,
    /// The first process.
    pub pid: i32,
    /// User, group, and all groups.
    pub user: Option<(u32, u32, Vec<u32>)>,
    /// The stop signal of its image.
    pub stop_signal: String,
}

impl ContainerLife {
    /// Whether it is in this state.
    pub fn is(&self, state: ContainerState) -> bool {
        self.state == state as i32
    }
}

/// The record of a container on disk.
#[derive(Deserialize, Serialize)]
struct ContainerFile {
    config: String,
    sandbox: String,
    image: String,
    layers: Vec<String>,
    volume_layers: Vec<String>,
    cgroup: String,
    created_at: i64,
    life: ContainerLife,
}

/// A container.
pub struct ContainerEntry {
    /// The id.
    pub id: String,
    /// Its directory.
    pub directory: PathBuf,
    /// Its sandbox.
    pub sandbox: String,
    /// Its configuration.
    pub config: Mutex<ContainerConfig>,
    /// The id of its image.
    pub image: String,
    /// The layers of its image, the lowest first.
    pub layers: Vec<String>,
    /// The layers of images that are volumes.
    pub volume_layers: Vec<String>,
    /// Its control group.
    pub cgroup: String,
    /// Nanoseconds since 1970.
    pub created_at: i64,
    life: watch::Sender<ContainerLife>,
    start_claimed: AtomicBool,
}

/// The input of a new container.
pub struct NewContainer {
    /// The id.
    pub id: String,
    /// Its directory.
    pub directory: PathBuf,
    /// Its sandbox.
    pub sandbox: String,
    /// Its configuration.
    pub config: ContainerConfig,
    /// The id of its image.
    pub image: String,
    /// The layers of its image.
    pub layers: Vec<String>,
    /// The layers of images that are volumes.
    pub volume_layers: Vec<String>,
    /// Its control group.
    pub cgroup: String,
}

impl ContainerEntry {
    /// A new container.
    pub fn new(new: NewContainer) -> Self {
        Self {
            id: new.id,
            directory: new.directory,
            sandbox: new.sandbox,
            config: Mutex::new(new.config),
            image: new.image,
            layers: new.layers,
            volume_layers: new.volume_layers,
            cgroup: new.cgroup,
            created_at: now(),
            life: watch::Sender::default(),
            start_claimed: AtomicBool::new(false),
        }
    }

    /// Reads a container from its directory; `None` if it was never written.
    pub fn load(directory: &Path) -> io::Result<Option<Self>> {
        let Some(file) = read_state::<ContainerFile>(&directory.join("container.json"))? else { return Ok(None) };
        Ok(Some(Self {
            id: directory.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned(),
            directory: directory.to_owned(),
            sandbox: file.sandbox,
            config: Mutex::new(decode(&file.config)?),
            image: file.image,
            layers: file.layers,
            volume_layers: file.volume_layers,
            cgroup: file.cgroup,
            created_at: file.created_at,
            life: watch::Sender::new(file.life),
            start_claimed: AtomicBool::new(false),
        }))
    }

    /// The layers that must stay while it exists.
    pub fn used_layers(&self) -> Vec<String> {
        self.layers.iter().chain(&self.volume_layers).cloned().collect()
    }

    /// The configuration.
    pub fn config(&self) -> ContainerConfig {
        self.config.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its life so far.
    pub fn life(&self) -> ContainerLife {
        self.life.borrow().clone()
    }

    /// Changes its life; it is on disk when this returns.
    pub fn update(&self, change: impl FnOnce(&mut ContainerLife)) -> io::Result<()> {
        let mut written = Ok(());
        self.life.send_modify(|life| {
            change(life);
            let file = ContainerFile {
                config: encode(&self.config()),
                sandbox: self.sandbox.clone(),
                image: self.image.clone(),
                layers: self.layers.clone(),
                volume_layers: self.volume_layers.clone(),
                cgroup: self.cgroup.clone(),
                created_at: self.created_at,
                life: life.clone(),
            };
            written = write_state(&self.directory.join("container.json"), &file);
        });
        written
    }

    /// Waits until it does not run.
    pub async fn wait_for_exit(&self) {
        let mut life = self.life.subscribe();
        // The sender lives as long as the container.
        let _ = life.wait_for(|life| !life.is(ContainerState::ContainerRunning)).await;
    }

    /// Whether the caller is the first to start it.
    pub fn claim_start(&self) -> bool {
        !self.start_claimed.swap(true, Ordering::SeqCst)
    }

    /// Takes over the resources that are given; the others stay as they were.
    pub fn merge_resources(&self, new: &LinuxContainerResources) {
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let old = config.linux.get_or_insert_default().resources.get_or_insert_default();
        let numbers = [
            (&mut old.cpu_period, new.cpu_period),
            (&mut old.cpu_quota, new.cpu_quota),
            (&mut old.cpu_shares, new.cpu_shares),
            (&mut old.memory_limit_in_bytes, new.memory_limit_in_bytes),
            (&mut old.memory_swap_limit_in_bytes, new.memory_swap_limit_in_bytes),
            (&mut old.oom_score_adj, new.oom_score_adj),
        ];
        for (old, new) in numbers.into_iter().filter(|(_, new)| *new != 0) {
            *old = new;
        }
        for (old, new) in [(&mut old.cpuset_cpus, &new.cpuset_cpus), (&mut old.cpuset_mems, &new.cpuset_mems)] {
            if !new.is_empty() {
                old.clone_from(new);
            }
        }
        if !new.hugepage_limits.is_empty() {
            old.hugepage_limits.clone_from(&new.hugepage_limits);
        }
        old.unified.extend(new.unified.clone());
    }

    /// The record of its end.
    pub fn exit_file(&self) -> PathBuf {
        self.directory.join("exit.json")
    }
}

fn encode(message: &impl Message) -> String {
    BASE64_STANDARD.encode(message.encode_to_vec())
}

fn decode<M: Message + Default>(text: &str) -> io::Result<M> {
    let bytes = BASE64_STANDARD.decode(text).map_err(io::Error::other)?;
    M::decode(bytes.as_slice()).map_err(io::Error::other)
}

/// Nanoseconds since 1970.
pub fn now() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}
