//! The embedded engine: every record and the recent history in memory, every write in one crash-safe file.
//!
//! Reads and watches are answered from memory and never touch the disk. Writes go to one thread, which makes all that
//! are waiting durable with one commit and only then shows them to readers. A directory has one opener at a time.

mod disk;
mod entry;
mod rehearsal;
mod state;
mod watch;
mod writer;

use std::{
    path::Path,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    thread::JoinHandle,
    time::Duration,
};

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot, watch as newest};

use self::{state::State, writer::Request};
use crate::{Error, Page, Range, Record, Revision, Store, Watch, Write};

/// How much history the embedded engine keeps.
#[derive(Clone, Debug)]
pub struct Options {
    /// History younger than this is kept.
    pub keep_for: Duration,
    /// At least this many of the newest revisions are kept.
    pub keep_revisions: u64,
    /// The history never takes more memory than about this; it wins over the other two.
    pub keep_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { keep_for: Duration::from_secs(600), keep_revisions: 10_000, keep_bytes: 128 << 20 }
    }
}

/// A store in one file of a directory, in this process.
pub struct Embedded {
    shared: Arc<Shared>,
    newest: newest::Receiver<Revision>,
    /// `None` only while dropping: closing the queue is what ends the writer.
    requests: Option<mpsc::Sender<Request>>,
    writer: Option<JoinHandle<()>>,
}

impl Embedded {
    /// Opens the store in `dir`, creating it if there is none. Refuses a damaged or locked file and changes nothing
    /// then.
    pub async fn open(dir: &Path, options: Options) -> Result<Self, Error> {
        let dir = dir.to_path_buf();
        let opened = tokio::task::spawn_blocking(move || disk::open(&dir)).await.map_err(engine)?;
        let (disk, loaded) = opened?;
        let shared = Arc::new(Shared(RwLock::new(loaded.state)));
        let writer = writer::start(disk, shared.clone(), loaded.expiries, options).map_err(engine)?;
        Ok(Self { shared, newest: writer.newest, requests: Some(writer.requests), writer: Some(writer.thread) })
    }

    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let requests = self.requests.as_ref().ok_or_else(writer_gone)?;
        requests.send(request(reply)).await.map_err(|_| writer_gone())?;
        answer.await.map_err(|_| writer_gone())?
    }
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

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, Error> {
        watch::watch(self.shared.clone(), self.newest.clone(), prefix, after)
    }

    async fn revision(&self) -> Result<Revision, Error> {
        Ok(self.shared.read().revision())
    }

    async fn compact(&self, through: Revision) -> Result<(), Error> {
        self.ask(|reply| Request::Compact(through, reply)).await
    }
}

/// Where the writer sends what became of a request.
type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// What readers and the writer share. Only the writer changes it, and only after a commit.
struct Shared(RwLock<State>);

impl Shared {
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
