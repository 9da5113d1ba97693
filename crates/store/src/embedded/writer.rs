//! The writer thread, the only one that changes the embedded engine.
//!
//! It takes all waiting writes, checks their preconditions in order, commits them together, then publishes them and
//! replies. Expiry and trimming of history are part of the same commits; with nothing to do, it sleeps. After a commit
//! with an unknown outcome it rejects every further write.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout},
};

use super::{
    EmbeddedOptions, ReplySender, SharedState,
    batch::{WriteBatch, duration_millis, unix_millis},
    engine_error,
    load::ExpiryEntry,
    log::{CommitError, LogCommit, WriteAheadLog},
    open::OpenedStore,
    state::{EngineState, LoggedChange},
};
use crate::{Revision, StoreError, WriteRequest};

/// Requests that may wait; beyond it senders block.
const QUEUE: usize = 4096;
/// Requests, and expired documents, per commit.
const BATCH: usize = 2048;
/// A commit does not grow much beyond this.
const BATCH_BYTES: usize = 4 << 20;
/// Old history is removed in portions of this size: large enough to be rare, small enough not to delay a commit.
const FORGET_AT_LEAST: u64 = 256;
const FORGET_AT_MOST: usize = 4096;
/// Revisions that may be acknowledged before they are durable.
const RESERVE: u64 = 10_000;
/// Delay before expiry is retried after a failed commit.
const RETRY: Duration = Duration::from_secs(1);

/// A request to the writer.
pub(super) enum WriterRequest {
    Write(WriteRequest, ReplySender<Revision>),
    Compact(Revision, ReplySender<()>),
    Health(ReplySender<()>),
}

/// A running writer. It ends when all senders of requests are gone.
pub(super) struct WriterHandle {
    pub requests: mpsc::Sender<WriterRequest>,
    /// The newest published revision; closed when the writer has ended.
    pub newest: watch::Receiver<Revision>,
    pub thread: JoinHandle<()>,
}

pub(super) fn start_writer(opened: OpenedStore, options: EmbeddedOptions) -> io::Result<WriterHandle> {
    let OpenedStore { log, shared, expiries, reserved } = opened;
    let (requests, queue) = mpsc::channel(QUEUE);
    let (published, newest) = watch::channel(shared.read().revision());
    let expiries = expiries.into_iter().map(Reverse).collect();
    let mut writer = LogWriter {
        log,
        shared,
        published,
        expiries,
        options,
        broken: None,
        reserved: 0,
        sync_by: None,
        retry_at: None,
    };
    if reserved > writer.shared.read().revision() {
        // Revisions that were handed out and then lost with the machine are not used again.
        writer.commit(Vec::new(), Some(reserved)).map_err(io::Error::other)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let thread = thread::Builder::new().name("store-writer".into());
    let thread = thread.spawn(move || {
        runtime.block_on(writer.run(queue));
        writer.close();
    })?;
    Ok(WriterHandle { requests, newest, thread })
}

struct LogWriter {
    log: WriteAheadLog,
    shared: Arc<SharedState>,
    published: watch::Sender<Revision>,
    /// The earliest first. An entry counts only while its revision is the key's newest.
    expiries: BinaryHeap<Reverse<ExpiryEntry>>,
    options: EmbeddedOptions,
    broken: Option<Arc<io::Error>>,
    /// Revisions up to here may be acknowledged before they are durable.
    reserved: Revision,
    /// When what is committed must be durable; `None`: it is.
    sync_by: Option<Instant>,
    retry_at: Option<Instant>,
}

impl LogWriter {
    async fn run(&mut self, mut queue: mpsc::Receiver<WriterRequest>) {
        let mut requests = Vec::with_capacity(BATCH);
        loop {
            let received = queue.recv_many(&mut requests, BATCH);
            let closed = match self.next_wakeup() {
                Some(wait) => timeout(wait, received).await == Ok(0),
                None => received.await == 0,
            };
            if closed {
                return;
            }
            self.handle_requests(requests.drain(..));
            self.sync_if_due();
            self.log.checkpoint_if_due();
        }
    }

    fn close(self) {
        let newest = self.shared.read().revision();
        match self.broken {
            None => self.log.close(newest),
            Some(error) => tracing::warn!(%error, "store: closed after a failure, the next open verifies it"),
        }
    }

    fn next_wakeup(&self) -> Option<Duration> {
        if self.broken.is_some() {
            return None;
        }
        let expiry =
            self.expiries.peek().map(|Reverse((at, ..))| Duration::from_millis(at.saturating_sub(unix_millis())));
        let until = |at: Option<Instant>| at.map(|at| at.saturating_duration_since(Instant::now()));
        let expiry = expiry.map(|expiry| until(self.retry_at).map_or(expiry, |retry| retry.max(expiry)));
        expiry.into_iter().chain(until(self.sync_by)).min()
    }

    fn handle_requests(&mut self, requests: impl Iterator<Item = WriterRequest>) {
        let mut writes = Vec::new();
        let mut others = Vec::new();
        let mut bytes = 0;
        for request in requests {
            match request {
                WriterRequest::Write(write, reply) => {
                    bytes += write.value.as_ref().map_or(0, bytes::Bytes::len);
                    writes.push((write, reply));
                }
                other => others.push(other),
            }
            if bytes > BATCH_BYTES {
                bytes = 0;
                self.commit_writes(std::mem::take(&mut writes));
            }
        }
        self.commit_writes(writes);
        // A caller that no longer waits does not want the answer.
        others.into_iter().for_each(|other| match other {
            WriterRequest::Compact(through, reply) => drop(reply.send(self.compact(through))),
            WriterRequest::Health(reply) => {
                drop(reply.send(self.broken.clone().map_or(Ok(()), |error| Err(engine_error(error)))))
            }
            WriterRequest::Write(..) => {}
        });
    }

    fn commit_writes(&mut self, writes: Vec<(WriteRequest, ReplySender<Revision>)>) {
        let shared = self.shared.clone();
        let (changes, expired, forget, answers) = {
            let state = shared.read();
            let mut batch = WriteBatch::new(&state);
            let expired = self.expire_documents(&mut batch);
            let answers: Vec<_> = writes.into_iter().map(|(write, reply)| (batch.add_write(write), reply)).collect();
            (batch.changes, expired, self.trim_target(&state), answers)
        };
        let committed = self.commit(changes, forget);
        self.retry_at = None;
        if committed.is_err() {
            self.expiries.extend(expired);
            self.retry_at = Some(Instant::now() + RETRY);
        }
        // Conflicts wait for the commit too: they contain records of this batch.
        for (answer, reply) in answers {
            let _ = reply.send(committed.clone().map_err(engine_error).and(answer));
        }
    }

    fn compact(&mut self, through: Revision) -> Result<(), StoreError> {
        {
            let state = self.shared.read();
            if through <= state.compacted() {
                return Ok(());
            }
            state.check_revision(through)?;
        }
        self.log.medium().reached_point("compact.chosen");
        let committed = self.commit(Vec::new(), Some(through)).map_err(engine_error);
        self.log.medium().reached_point("compact.committed");
        committed
    }

    /// Makes it durable, and then visible.
    fn commit(&mut self, changes: Vec<LoggedChange>, compact: Option<Revision>) -> Result<(), Arc<io::Error>> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if changes.is_empty() && compact.is_none() {
            return Ok(());
        }
        let newest = self.shared.read().revision();
        let last = newest + changes.len() as u64;
        let lag = self.allowed_delay(&changes).filter(|_| last <= self.reserved);
        let reserve = !self.options.delayed_sync.is_empty() && lag.is_none() && self.reserved < last + RESERVE / 2;
        let commit = LogCommit { changes, compact, reserve: reserve.then_some(last + RESERVE) };
        match self.log.append_commit(&commit, newest, lag.is_none()) {
            Ok(()) => {}
            Err(CommitError::Refused(error)) => {
                tracing::warn!(%error, "store: commit failed, nothing was written");
                return Err(error.into());
            }
            Err(CommitError::Unknown(error)) => return Err(self.mark_broken(error)),
        }
        self.reserved = commit.reserve.unwrap_or(self.reserved);
        self.sync_by = lag.map(|lag| Instant::now() + lag).map(|by| self.sync_by.map_or(by, |earlier| earlier.min(by)));
        self.publish_changes(commit.changes, compact.unwrap_or(0));
        self.log.medium().reached_point("commit.published");
        Ok(())
    }

    fn mark_broken(&mut self, error: io::Error) -> Arc<io::Error> {
        tracing::error!(%error, "store: commit outcome unknown, rejecting all writes until it is opened again");
        self.broken.insert(Arc::new(error)).clone()
    }

    /// The time within which these changes must be durable; `None`: at once.
    fn allowed_delay(&self, changes: &[LoggedChange]) -> Option<Duration> {
        let of = |change: &LoggedChange| {
            let declared = self.options.delayed_sync.iter().filter(|lag| change.event.key.starts_with(&lag.prefix));
            declared.map(|lag| lag.max_delay).min()
        };
        let lags: Option<Vec<_>> = changes.iter().map(of).collect();
        lags?.into_iter().min()
    }

    fn sync_if_due(&mut self) {
        if self.broken.is_none() && self.sync_by.is_some_and(|by| by <= Instant::now()) {
            self.sync_by = None;
            if let Err(error) = self.log.sync() {
                self.mark_broken(error);
            }
        }
    }

    fn publish_changes(&mut self, changes: Vec<LoggedChange>, compacted: Revision) {
        let expiring = changes.iter().filter(|change| change.expires != 0);
        self.expiries
            .extend(expiring.map(|change| Reverse((change.expires, change.event.revision, change.event.key.clone()))));
        let mut state = self.shared.write();
        changes.into_iter().for_each(|change| state.apply_change(change));
        let forgotten = state.trim_history(compacted);
        let revision = state.revision();
        drop(state);
        drop(forgotten);
        self.published.send_replace(revision);
    }

    /// Deletes what has expired by now.
    fn expire_documents(&mut self, batch: &mut WriteBatch<'_>) -> Vec<Reverse<ExpiryEntry>> {
        let mut expired = Vec::new();
        while batch.changes.len() < BATCH
            && let Some(earliest) = self.expiries.peek_mut()
            && earliest.0.0 <= batch.now
        {
            let expiry = std::collections::binary_heap::PeekMut::pop(earliest);
            let Reverse((_, revision, key)) = &expiry;
            if batch.current_record(key).is_some_and(|record| record.revision == *revision) {
                batch.push_change(key.clone(), None, 0);
            }
            expired.push(expiry);
        }
        expired
    }

    fn trim_target(&self, state: &EngineState) -> Option<Revision> {
        let window = &self.options.window;
        let before = unix_millis().saturating_sub(duration_millis(window.keep_for));
        let through = state.trim_target(window, before, FORGET_AT_MOST);
        (through - state.compacted() >= FORGET_AT_LEAST).then_some(through)
    }
}
