//! The embedded engine: every record and the recent history in memory, every write in a log on disk.
//!
//! Reads and watches are served from memory. Writes go to one thread, which makes all waiting ones durable with one write
//! and one sync, and then publishes them to readers. A directory has one opener at a time.

mod batch;
mod checkpoint;
mod contents;
mod entry;
mod frame;
mod load;
mod log;
pub mod medium;
mod open;
mod open_error;
mod segment;
mod state;
mod watch;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    thread::JoinHandle,
    time::Duration,
};

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot, watch as newest};

pub use self::contents::{CopyProgress, StoreContents};
use self::{
    medium::{DiskMedium, StorageMedium},
    state::EngineState,
    writer::WriterRequest,
};
use crate::{
    HistoryWindow, ListOptions, ListPage, Record, Revision, Store, StoreError, WatchItems, WatchOptions, WriteRequest,
};

/// The format of the files.
const FORMAT: u32 = 2;

/// Options of the embedded engine.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// The history window.
    pub window: HistoryWindow,
    /// Keys whose writes may be acknowledged before they are durable. Empty: everything is durable at once.
    pub delayed_sync: Vec<DelayedSync>,
    /// The length of the log's files.
    pub segment_bytes: u64,
}

/// Writes under a prefix that may be lost if the machine, not just the process, fails within a bounded time.
#[derive(Clone, Debug)]
pub struct DelayedSync {
    /// The keys that begin with this.
    pub prefix: String,
    /// The longest time from acknowledgement to durability.
    pub max_delay: Duration,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self { window: HistoryWindow::default(), delayed_sync: Vec::new(), segment_bytes: 16 << 20 }
    }
}

/// A store in one directory, in this process.
pub struct EmbeddedStore {
    dir: PathBuf,
    shared: Arc<SharedState>,
    newest: newest::Receiver<Revision>,
    /// `None` only while dropping: closing the queue is what ends the writer.
    requests: Option<mpsc::Sender<WriterRequest>>,
    writer: Option<JoinHandle<()>>,
}

impl EmbeddedStore {
    /// Opens the store in `dir`, or creates it. Fails without changes if files are damaged or locked.
    pub async fn open(dir: &Path, options: EmbeddedOptions) -> Result<Self, StoreError> {
        Self::open_with_medium(dir, options, Arc::new(DiskMedium)).await
    }

    /// Opens a store on another medium.
    pub async fn open_with_medium(
        dir: &Path,
        options: EmbeddedOptions,
        medium: Arc<dyn StorageMedium>,
    ) -> Result<Self, StoreError> {
        let (dir, place) = (dir.to_path_buf(), dir.to_path_buf());
        let opened = tokio::task::spawn_blocking(move || {
            let opened = open::open_store(&place, &options, medium)?;
            let shared = opened.shared.clone();
            Ok((writer::start_writer(opened, options).map_err(engine_error)?, shared))
        });
        let (writer, shared) = opened.await.map_err(engine_error)??;
        Ok(Self { dir, shared, newest: writer.newest, requests: Some(writer.requests), writer: Some(writer.thread) })
    }

    /// Reads and verifies all files of the store in `dir`, also while another process writes it; changes nothing.
    pub async fn verify_files(dir: &Path) -> Result<VerifyReport, StoreError> {
        let dir = dir.to_path_buf();
        let inspected = tokio::task::spawn_blocking(move || open::inspect_store(&dir)).await.map_err(engine_error)?;
        let loaded = inspected?;
        let state = &loaded.state;
        Ok(VerifyReport {
            revision: state.revision(),
            compacted: state.compacted(),
            records: state.len() as u64,
            bytes: loaded.bytes,
            torn: loaded.torn,
        })
    }

    async fn send_request<T>(&self, request: impl FnOnce(ReplySender<T>) -> WriterRequest) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let requests = self.requests.as_ref().ok_or_else(writer_gone)?;
        requests.send(request(reply)).await.map_err(|_| writer_gone())?;
        answer.await.map_err(|_| writer_gone())?
    }
}

/// The result of verifying a store's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// The newest revision.
    pub revision: Revision,
    /// The oldest revision that can be read.
    pub compacted: Revision,
    /// The number of current records.
    pub records: u64,
    /// The number of bytes read and verified.
    pub bytes: u64,
    /// The log ends with a write that was cut short, and never acknowledged; the next opener removes it.
    pub torn: bool,
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.requests.take();
        if let Some(Err(_)) = self.writer.take().map(JoinHandle::join) {
            tracing::error!("store: the writer thread panicked");
        }
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn get(&self, key: &str) -> Result<Option<Record>, StoreError> {
        Ok(self.shared.read().get(key).cloned())
    }

    async fn list(&self, range: ListOptions) -> Result<ListPage, StoreError> {
        self.shared.read().list_records(&range)
    }

    async fn write(&self, write: WriteRequest) -> Result<Revision, StoreError> {
        self.send_request(|reply| WriterRequest::Write(write, reply)).await
    }

    async fn watch_items(&self, follow: WatchOptions) -> Result<WatchItems, StoreError> {
        watch::watch_items(self.shared.clone(), self.newest.clone(), follow)
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        Ok(self.shared.read().revision())
    }

    async fn compact(&self, through: Revision) -> Result<(), StoreError> {
        self.send_request(|reply| WriterRequest::Compact(through, reply)).await
    }

    async fn check_health(&self) -> Result<(), StoreError> {
        self.send_request(WriterRequest::Health).await
    }

    async fn disk_usage(&self) -> Result<u64, StoreError> {
        let files = std::fs::read_dir(&self.dir).map_err(engine_error)?;
        // A file that is gone by now takes no room.
        let lengths = files.filter_map(|file| file.ok()?.metadata().ok()).map(|file| file.len());
        Ok(lengths.sum())
    }
}

/// Receives the outcome of a request to the writer.
type ReplySender<T> = oneshot::Sender<Result<T, StoreError>>;

/// State shared by readers and the writer; only the writer changes it, after a commit.
struct SharedState(RwLock<EngineState>);

impl SharedState {
    fn new(state: EngineState) -> Self {
        Self(RwLock::new(state))
    }

    // A poisoned lock is taken as it is: publishing only appends and trims, it leaves no half-made state behind.
    fn read(&self) -> RwLockReadGuard<'_, EngineState> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, EngineState> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn engine_error(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Engine(Box::new(error))
}

fn writer_gone() -> StoreError {
    StoreError::Engine("its writer has stopped; restart the process".into())
}
