//! Messages between the node process, the launcher and supervisors: a length of four bytes and JSON, descriptors beside it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::exit_record::ExitRecord;
use crate::container::{ContainerSpec, spec::UserNamespaceSpec};

/// The longest message.
pub const LONGEST_MESSAGE: usize = 16 << 20;

/// A pod sandbox.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct SandboxSpec {
    /// The id.
    pub id: String,
    /// The socket on which the supervisor listens.
    pub socket: PathBuf,
    /// Whether the pod has a network of its own.
    pub network: bool,
    /// Whether the pod has IPC of its own.
    pub ipc: bool,
    /// Whether the pod has a host name of its own.
    pub uts: bool,
    /// The host name.
    pub hostname: String,
    /// Settings of the kernel in the pod's namespaces.
    pub sysctls: Vec<(String, String)>,
    /// The root of the process that holds a shared PID namespace; none: containers have their own.
    pub pause_root: Option<PathBuf>,
    /// The control group of that process.
    pub pause_cgroup: Option<String>,
    /// The maps of the pod's user namespace; none: that of the host.
    pub user_namespace: Option<UserNamespaceSpec>,
}

/// A request to a supervisor.
#[derive(Debug, Deserialize, Serialize)]
pub enum SupervisorRequest {
    /// Makes a container and starts it, unless it waits for a start request.
    Start(Box<ContainerSpec>),
    /// Starts a container that waits.
    Release { container: String },
    /// Sends a signal to the first process, or to all.
    Signal { container: String, signal: i32, all: bool },
    /// Runs a command; standard files come as descriptors. The terminal comes back with the response.
    Exec { container: String, arguments: Vec<String>, terminal: bool, files: [bool; 3] },
    /// Copies output to descriptors, and input from one.
    Attach { container: String, files: [bool; 3] },
    /// Sets the size of the container's terminal.
    Resize { container: String, width: u16, height: u16 },
    /// Opens the log again, after it was renamed.
    ReopenLog { container: String },
    /// Lists the containers.
    List,
    /// Forgets a container that has ended.
    Forget { container: String },
    /// Sends events on this connection from now on.
    Subscribe,
    /// Ends everything, and the supervisor.
    Stop,
}

/// A container's first process.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct ContainerProcess {
    /// The container.
    pub container: String,
    /// The pid on the host.
    pub pid: i32,
    /// Nanoseconds since 1970.
    pub started_at: i64,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// All groups.
    pub groups: Vec<u32>,
    /// Its end, if it has ended.
    pub exit: Option<ExitRecord>,
}

/// A response of a supervisor.
#[derive(Debug, Deserialize, Serialize)]
pub enum SupervisorResponse {
    /// The supervisor is ready.
    Ready { pid: i32 },
    /// A process runs; of a command with a terminal, its descriptor comes along.
    Started(ContainerProcess),
    /// A command has ended.
    Exited { code: i32 },
    /// It is done.
    Done,
    /// The containers.
    Containers(Vec<ContainerProcess>),
    /// There is no such container.
    NotFound,
    /// It failed.
    Failed(String),
    /// Something happened.
    Event(SupervisorEvent),
}

/// Something that a supervisor tells its subscribers.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum SupervisorEvent {
    /// A container has ended.
    Exited { container: String, exit: ExitRecord },
    /// The process that held the pod's PID namespace has ended.
    PauseEnded,
}

/// Encodes a message.
pub fn encode_message<T: Serialize>(message: &T) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    // Messages are plain data, which always has a JSON form.
    if serde_json::to_writer(&mut bytes, message).is_err() {
        bytes.truncate(4);
    }
    let length = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}
