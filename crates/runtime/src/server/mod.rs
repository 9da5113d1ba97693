//! Ferry's own container runtime: CRI v1 on a unix socket.
//!
//! The server keeps what it knows in memory and on disk; supervisors hold what runs. After a restart it reads the disk, asks
//! the supervisors, and removes what belongs to nothing.

mod container_spec;
mod container_status;
mod containers;
mod dispatch;
mod events;
mod exec;
mod image_archives;
mod images;
mod metrics;
mod namespaces;
mod records;
mod restore;
mod runtime_info;
mod sandboxes;
mod stats;
mod stop_signal;
mod streams;

use std::{
    collections::HashMap,
    io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use cni::runner::CniRunner;
use sys::cgroup::CgroupManager;
use tokio::{
    net::{TcpListener, UnixListener},
    sync::broadcast,
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::{
    cri::types::ContainerEventResponse,
    image::{ImageError, ImageStore},
    supervisor::Launcher,
};
pub use image_archives::IMAGE_PATH;
use records::{ContainerEntry, Sandbox};

/// Events that wait for a slow listener; more are lost, and the listener starts anew.
const EVENT_BUFFER: usize = 1024;

/// The paths of the runtime.
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// State, images and layers.
    pub root: PathBuf,
    /// The socket of CRI.
    pub socket: PathBuf,
    /// CNI configurations.
    pub cni_config: PathBuf,
    /// Directories of CNI plug-ins.
    pub cni_plugins: Vec<PathBuf>,
    /// Settings of registries.
    pub registry_hosts: Option<PathBuf>,
}

/// The runtime could not be started.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// A file or process could not be used.
    #[error("{operation}: {source}")]
    Io {
        /// The attempted operation.
        operation: String,
        /// The system's error.
        source: io::Error,
    },
    /// The images could not be used.
    #[error(transparent)]
    Images(#[from] ImageError),
    /// There are no control groups.
    #[error(transparent)]
    Cgroups(#[from] sys::cgroup::CgroupError),
}

/// The server.
pub struct RuntimeServer {
    options: RuntimeOptions,
    cgroups: CgroupManager,
    images: Arc<ImageStore>,
    launcher: Launcher,
    cni: CniRunner,
    sandboxes: Mutex<HashMap<String, Arc<Sandbox>>>,
    containers: Mutex<HashMap<String, Arc<ContainerEntry>>>,
    events: broadcast::Sender<ContainerEventResponse>,
    streams: streams::StreamTokens,
    /// Compiled default filters by bounding set.
    filters: Mutex<HashMap<u64, crate::container::spec::seccomp_program::SeccompProgram>>,
}

/// Starts the runtime: restores what ran before and listens. Serve it with [`RuntimeListener::serve`].
pub async fn start_runtime(options: RuntimeOptions) -> Result<RuntimeListener, RuntimeError> {
    let fail = |path: &Path| {
        let operation = path.display().to_string();
        move |source| RuntimeError::Io { operation, source }
    };
    for name in ["sandboxes", "containers", "run", "pause", "cni-results"] {
        let path = options.root.join(name);
        std::fs::create_dir_all(&path).map_err(fail(&path))?;
    }
    sandboxes::write_pause_root(&options.root.join("pause")).map_err(fail(&options.root.join("pause")))?;
    let launcher = Launcher::start().map_err(fail(Path::new("launcher of supervisors")))?;
    let stream_listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(fail(Path::new("port of streams")))?;
    let server = Arc::new(RuntimeServer {
        cgroups: CgroupManager::detect(Path::new("/sys/fs/cgroup"))?,
        images: Arc::new(ImageStore::open(&options.root.join("images"))?),
        launcher,
        cni: CniRunner { plugin_directories: options.cni_plugins.clone(), cache: options.root.join("cni-results") },
        sandboxes: Mutex::default(),
        containers: Mutex::default(),
        events: broadcast::Sender::new(EVENT_BUFFER),
        filters: Mutex::default(),
        streams: streams::StreamTokens::new(&stream_listener).map_err(fail(Path::new("port of streams")))?,
        options,
    });
    server.restore().await;
    let socket = &server.options.socket;
    // A socket that a server before this one left.
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket).map_err(fail(socket))?;
    rustix::fs::chmod(socket, rustix::fs::Mode::from_raw_mode(0o600)).map_err(|errno| fail(socket)(errno.into()))?;
    Ok(RuntimeListener { server, listener, stream_listener })
}

/// A runtime that listens.
pub struct RuntimeListener {
    server: Arc<RuntimeServer>,
    listener: UnixListener,
    stream_listener: TcpListener,
}

impl RuntimeListener {
    /// Serves CRI until `shutdown`. Containers keep running afterwards.
    pub async fn serve(self, shutdown: CancellationToken) {
        let streams = streams::serve_streams(self.server.clone(), self.stream_listener, shutdown.clone());
        tokio::join!(dispatch::serve_cri(self.server, self.listener, shutdown), streams);
    }

    /// The images, for those in the same process.
    pub fn images(&self) -> Arc<ImageStore> {
        self.server.images.clone()
    }
}

impl RuntimeServer {
    fn sandbox(&self, id: &str) -> Result<Arc<Sandbox>, Status> {
        let sandboxes = self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner);
        find_by_prefix(&sandboxes, id)
            .ok_or_else(|| Status::not_found(format!("an error occurred when try to find sandbox {id:?}: not found")))
    }

    fn container(&self, id: &str) -> Result<Arc<ContainerEntry>, Status> {
        let containers = self.containers.lock().unwrap_or_else(PoisonError::into_inner);
        find_by_prefix(&containers, id)
            .ok_or_else(|| Status::not_found(format!("an error occurred when try to find container {id:?}: not found")))
    }

    fn list_sandboxes(&self) -> Vec<Arc<Sandbox>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn list_entries(&self) -> Vec<Arc<ContainerEntry>> {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn containers_of(&self, sandbox: &str) -> Vec<Arc<ContainerEntry>> {
        self.list_entries().into_iter().filter(|container| container.sandbox == sandbox).collect()
    }

    fn socket_of(&self, sandbox: &str) -> PathBuf {
        // Sockets have short paths only.
        self.options.root.join("run").join(&sandbox[..sandbox.len().min(16)])
    }
}

/// Finds an object by its id or by the beginning of it, if that is unique.
fn find_by_prefix<T>(objects: &HashMap<String, Arc<T>>, id: &str) -> Option<Arc<T>> {
    if let Some(found) = objects.get(id) {
        return Some(found.clone());
    }
    let mut matching = objects.iter().filter(|(known, _)| !id.is_empty() && known.starts_with(id));
    match (matching.next(), matching.next()) {
        (Some((_, found)), None) => Some(found.clone()),
        _ => None,
    }
}

/// A new id.
fn new_id() -> String {
    format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple())
}

/// Turns an error into a status.
fn internal(what: &str, error: &dyn std::fmt::Display) -> Status {
    Status::unknown(format!("{what}: {error}"))
}

/// Runs work that blocks.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Status::internal(error.to_string()))
}
