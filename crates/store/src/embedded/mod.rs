//! The embedded engine: every record and the recent history in memory, every write in a log on disk.
//!
//! Reads and watches are answered from memory and never touch the disk. Writes go to one thread, which makes all that
//! are waiting durable with one write and one sync, and only then shows them to readers. A directory has one opener at
//! a time.

mod batch;
mod checkpoint;
mod contents;
mod damage;
mod entry;
mod frame;
mod load;
mod log;
pub mod medium;
mod open;
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

pub use self::contents::{Contents, Step};
use self::{
    medium::{Disk, Medium},
    state::State,
    writer::Request,
};
use crate::{Error, Follow, Notices, Page, Range, Record, Revision, Store, Window, Write};

/// The format of the files.
const FORMAT: u32 = 2;

/// How much history the embedded engine keeps, and how durable it is.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much history is kept.
    pub window: Window,
    /// Keys whose writes may be acknowledged before they are durable. Empty: everything is durable at once.
    pub lag: Vec<Lag>,
    /// The length of the log's files.
    pub segment_bytes: u64,
}

/// Writes under a prefix that may be lost if the machine, not just the process, fails within a bounded time.
#[derive(Clone, Debug)]
pub struct Lag {
    /// The keys that begin with this.
    pub prefix: String,
    /// How long after its acknowledgement a write is durable at the latest.
    pub at_most: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { window: Window::default(), lag: Vec::new(), segment_bytes: 16 << 20 }
    }
}

/// A store in one directory, in this process.
pub struct Embedded {
    dir: PathBuf,
    shared: Arc<Shared>,
    newest: newest::Receiver<Revision>,
    /// `None` only while dropping: closing the queue is what ends the writer.
    requests: Option<mpsc::Sender<Request>>,
    writer: Option<JoinHandle<()>>,
}

impl Embedded {
    /// Opens the store in `dir`, creating it if there is none. Refuses damaged or locked files and changes nothing then.
    pub async fn open(dir: &Path, options: Options) -> Result<Self, Error> {
        Self::open_on(dir, options, Arc::new(Disk)).await
    }

    /// The same with another medium under it.
    pub async fn open_on(dir: &Path, options: Options, medium: Arc<dyn Medium>) -> Result<Self, Error> {
        let (dir, place) = (dir.to_path_buf(), dir.to_path_buf());
        let opened = tokio::task::spawn_blocking(move || {
            let opened = open::open(&place, &options, medium)?;
            let shared = opened.shared.clone();
            Ok((writer::start(opened, options).map_err(engine)?, shared))
        });
        let (writer, shared) = opened.await.map_err(engine)??;
        Ok(Self { dir, shared, newest: writer.newest, requests: Some(writer.requests), writer: Some(writer.thread) })
    }

    /// Reads and verifies all files of the store in `dir`, also while another process writes it; changes nothing.
    pub async fn verify(dir: &Path) -> Result<Verified, Error> {
        let dir = dir.to_path_buf();
        let inspected = tokio::task::spawn_blocking(move || open::inspect(&dir)).await.map_err(engine)?;
        let loaded = inspected?;
        let state = &loaded.state;
        Ok(Verified {
            revision: state.revision(),
            compacted: state.compacted(),
            records: state.len() as u64,
            bytes: loaded.bytes,
            torn: loaded.torn,
        })
    }

    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let requests = self.requests.as_ref().ok_or_else(writer_gone)?;
        requests.send(request(reply)).await.map_err(|_| writer_gone())?;
        answer.await.map_err(|_| writer_gone())?
    }
}

/// What verifying a store's files found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The newest revision.
    pub revision: Revision,
    /// The oldest revision that can be read.
    pub compacted: Revision,
    /// How many records there are now.
    pub records: u64,
    /// How many bytes were read and verified.
    pub bytes: u64,
    /// The log ends with a write that was cut short, and never acknowledged; the next opener removes it.
    pub torn: bool,
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.requests.take();
        if let Some(Err(_)) = self.writer.take().map(JoinHandle::join) {
            tracing::error!("the store's writer had panicked");
        }
    }
}

#[async_trait]
impl Store for Embedded {
    async fn get(&self, key: &str) -> Result<Option<Record>, Error> {
        Ok(self.shared.read().get(key).cloned())
    }

    async fn list(&self, range: Range) -> Result<Page, Error> {
        self.shared.read().list(&range)
    }

    async fn write(&self, write: Write) -> Result<Revision, Error> {
        self.ask(|reply| Request::Write(write, reply)).await
    }

    async fn follow(&self, follow: Follow) -> Result<Notices, Error> {
        watch::follow(self.shared.clone(), self.newest.clone(), follow)
    }

    async fn revision(&self) -> Result<Revision, Error> {
        Ok(self.shared.read().revision())
    }

    async fn compact(&self, through: Revision) -> Result<(), Error> {
        self.ask(|reply| Request::Compact(through, reply)).await
    }

    async fn health(&self) -> Result<(), Error> {
        self.ask(Request::Health).await
    }

    async fn size(&self) -> Result<u64, Error> {
        let files = std::fs::read_dir(&self.dir).map_err(engine)?;
        // A file that is gone by now takes no room.
        let lengths = files.filter_map(|file| file.ok()?.metadata().ok()).map(|file| file.len());
        Ok(lengths.sum())
    }
}

/// Where the writer sends what became of a request.
type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// What readers and the writer share. Only the writer changes it, and only after a commit.
struct Shared(RwLock<State>);

impl Shared {
    fn new(state: State) -> Self {
        Self(RwLock::new(state))
    }

    // A poisoned lock is taken as it is: publishing only appends and trims, it leaves no half-made state behind.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn engine(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Engine(Box::new(error))
}

fn writer_gone() -> Error {
    Error::Engine("its writer has stopped; restart the process".into())
}
