//! The one thread that changes the embedded engine.
//!
//! It takes all waiting writes, checks their guards in order, commits them together, and only then publishes them and
//! answers. Deleting what has expired and forgetting old history ride on the same commits; without either, and without
//! writes, it sleeps. After a failed commit memory and disk may disagree, so it refuses every further write.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

use super::{
    Options, Reply, Shared,
    disk::{Disk, Expiry, Forget},
    engine,
    state::{Change, State},
};
use crate::{Error, Event, Guard, Record, Revision, Write};

/// How many requests may wait; more than this and writers are held back.
const QUEUE: usize = 1024;
/// How many writes, and how many expired documents, one commit takes.
const BATCH: usize = 512;
/// Old history is removed in portions of this size: large enough to be rare, small enough not to delay a commit.
const FORGET_AT_LEAST: u64 = 256;
const FORGET_AT_MOST: usize = 2048;

/// What callers ask of the writer.
pub(super) enum Request {
    Write(Write, Reply<Revision>),
    Compact(Revision, Reply<()>),
}

/// A running writer. It ends when all senders of requests are gone.
pub(super) struct Running {
    pub requests: mpsc::Sender<Request>,
    /// The newest published revision; closed when the writer has ended.
    pub newest: watch::Receiver<Revision>,
    pub thread: JoinHandle<()>,
}

pub(super) fn start(disk: Disk, shared: Arc<Shared>, expiries: Vec<Expiry>, options: Options) -> io::Result<Running> {
    let (requests, queue) = mpsc::channel(QUEUE);
    let (published, newest) = watch::channel(shared.read().revision());
    let expiries = expiries.into_iter().map(Reverse).collect();
    let mut writer = Writer { disk, shared, published, expiries, options, broken: None };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let thread = thread::Builder::new().name("store-writer".into());
    let thread = thread.spawn(move || runtime.block_on(writer.run(queue)))?;
    Ok(Running { requests, newest, thread })
}

struct Writer {
    disk: Disk,
    shared: Arc<Shared>,
    published: watch::Sender<Revision>,
    /// The earliest first. An entry counts only while its revision is the key's newest.
    expiries: BinaryHeap<Reverse<Expiry>>,
    options: Options,
    broken: Option<Arc<redb::Error>>,
}

impl Writer {
    async fn run(&mut self, mut queue: mpsc::Receiver<Request>) {
        let mut requests = Vec::with_capacity(BATCH);
        loop {
            let received = queue.recv_many(&mut requests, BATCH);
            let closed = match self.until_expiry() {
                Some(wait) => timeout(wait, received).await == Ok(0),
                None => received.await == 0,
            };
            if closed {
                return;
            }
            self.serve(requests.drain(..));
        }
    }

    fn until_expiry(&self) -> Option<Duration> {
        let Reverse((expires, ..)) = self.expiries.peek().filter(|_| self.broken.is_none())?;
        Some(Duration::from_millis(expires.saturating_sub(now())))
    }

    fn serve(&mut self, requests: impl Iterator<Item = Request>) {
        let mut writes = Vec::new();
        let mut compactions = Vec::new();
        for request in requests {
            match request {
                Request::Write(write, reply) => writes.push((write, reply)),
                Request::Compact(through, reply) => compactions.push((through, reply)),
            }
        }
        self.write(writes);
        for (through, reply) in compactions {
            // A caller that no longer waits does not want the answer.
            let _ = reply.send(self.compact(through));
        }
    }

    fn write(&mut self, writes: Vec<(Write, Reply<Revision>)>) {
        let shared = self.shared.clone();
        let (batch, forget, answers) = {
            let state = shared.read();
            let mut batch = Batch::new(&state);
            self.expire(&mut batch);
            let answers: Vec<_> = writes.into_iter().map(|(write, reply)| (batch.add(write), reply)).collect();
            (batch.changes, self.forgettable(&state), answers)
        };
        let committed = self.commit(batch, forget);
        // Refusals wait for the commit too: they show records of this batch.
        for (answer, reply) in answers {
            let _ = reply.send(committed.clone().map_err(engine).and(answer));
        }
    }

    fn compact(&mut self, through: Revision) -> Result<(), Error> {
        let forget = {
            let state = self.shared.read();
            if through <= state.compacted() {
                return Ok(());
            }
            state.check(through)?;
            Forget { through, revisions: state.superseded(through) }
        };
        self.commit(Vec::new(), Some(forget)).map_err(engine)
    }

    /// Makes it durable, and then visible.
    fn commit(&mut self, changes: Vec<Change>, forget: Option<Forget>) -> Result<(), Arc<redb::Error>> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if changes.is_empty() && forget.is_none() {
            return Ok(());
        }
        if let Err(error) = self.disk.commit(&changes, forget.as_ref()) {
            tracing::error!(%error, "the store cannot be written; it refuses all writes until it is opened again");
            return Err(self.broken.insert(Arc::new(error)).clone());
        }
        self.publish(changes, forget.map_or(0, |forget| forget.through));
        Ok(())
    }

    fn publish(&mut self, changes: Vec<Change>, compacted: Revision) {
        let expiring = changes.iter().filter(|change| change.expires != 0);
        self.expiries
            .extend(expiring.map(|change| Reverse((change.expires, change.event.revision, change.event.key.clone()))));
        let mut state = self.shared.write();
        changes.into_iter().for_each(|change| state.apply(change));
        let revision = state.revision();
        let forgotten = state.trim(compacted);
        drop(state);
        drop(forgotten);
        self.published.send_replace(revision);
    }

    /// Deletes what has expired by now.
    fn expire(&mut self, batch: &mut Batch<'_>) {
        while batch.changes.len() < BATCH {
            match self.expiries.peek() {
                Some(Reverse((expires, ..))) if *expires <= batch.now => {}
                _ => return,
            }
            let Some(Reverse((_, revision, key))) = self.expiries.pop() else { return };
            if batch.current(&key).is_some_and(|record| record.revision == revision) {
                batch.push(key, None, 0);
            }
        }
    }

    fn forgettable(&self, state: &State) -> Option<Forget> {
        let Options { keep_for, keep_revisions, keep_bytes } = self.options;
        let before = now().saturating_sub(millis(keep_for));
        let through = state.forgettable(before, keep_revisions, keep_bytes, FORGET_AT_MOST);
        let worth_it = through - state.compacted() >= FORGET_AT_LEAST;
        worth_it.then(|| Forget { through, revisions: state.superseded(through) })
    }
}

/// Writes that will be committed together.
struct Batch<'a> {
    state: &'a State,
    changes: Vec<Change>,
    /// The newest change of each key in this batch, as an index into `changes`.
    newest: HashMap<Arc<str>, usize>,
    now: u64,
}

impl<'a> Batch<'a> {
    fn new(state: &'a State) -> Self {
        Self { state, changes: Vec::new(), newest: HashMap::new(), now: now() }
    }

    fn add(&mut self, write: Write) -> Result<Revision, Error> {
        let current = self.current(&write.key);
        let holds = match write.guard {
            Guard::Absent => current.is_none(),
            Guard::Revision(revision) => current.as_ref().is_some_and(|record| record.revision == revision),
        };
        if !holds {
            return Err(Error::Conflict { key: write.key, guard: write.guard, current });
        }
        if write.value.is_none() && current.is_none() {
            // To delete what is not there changes nothing.
            return Ok(self.revision());
        }
        let expires = write.ttl.filter(|_| write.value.is_some()).map_or(0, |ttl| self.now.saturating_add(millis(ttl)));
        Ok(self.push(write.key, write.value, expires))
    }

    fn push(&mut self, key: Arc<str>, value: Option<bytes::Bytes>, expires: u64) -> Revision {
        let previous = self.current(&key);
        let key = previous.as_ref().map_or(key, |record| record.key.clone());
        let revision = self.revision() + 1;
        self.newest.insert(key.clone(), self.changes.len());
        let event = Event { revision, key, value, previous };
        self.changes.push(Change { event: event.into(), written: self.now, expires });
        revision
    }

    fn revision(&self) -> Revision {
        self.state.revision() + self.changes.len() as u64
    }

    fn current(&self, key: &str) -> Option<Record> {
        let Some(index) = self.newest.get(key) else { return self.state.get(key).cloned() };
        let event = &self.changes[*index].event;
        let value = event.value.clone()?;
        Some(Record { key: event.key.clone(), value, revision: event.revision })
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        RwLock,
        atomic::{AtomicBool, Ordering},
    };

    use redb::{StorageBackend, backends::InMemoryBackend};
    use tokio::sync::oneshot;

    use super::*;

    /// A disk that can be told to fail.
    #[derive(Debug)]
    struct Failing {
        disk: InMemoryBackend,
        failed: Arc<AtomicBool>,
    }

    impl Failing {
        fn check(&self) -> io::Result<()> {
            if self.failed.load(Ordering::SeqCst) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        }
    }

    impl StorageBackend for Failing {
        fn len(&self) -> io::Result<u64> {
            self.disk.len()
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.disk.read(offset, out)
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.check().and_then(|()| self.disk.set_len(len))
        }
        fn sync_data(&self) -> io::Result<()> {
            self.check().and_then(|()| self.disk.sync_data())
        }
        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.check().and_then(|()| self.disk.write(offset, data))
        }
    }

    async fn create(requests: &mpsc::Sender<Request>, key: &str) -> Result<Revision, Error> {
        let (reply, answer) = oneshot::channel();
        let write = Write { key: key.into(), guard: Guard::Absent, value: Some("x".into()), ttl: None };
        assert!(requests.send(Request::Write(write, reply)).await.is_ok());
        answer.await.unwrap()
    }

    #[tokio::test]
    async fn what_cannot_be_made_durable_is_never_shown() {
        let failed = Arc::new(AtomicBool::new(false));
        let backend = Failing { disk: InMemoryBackend::new(), failed: failed.clone() };
        let disk = Disk::in_memory(redb::Builder::new().create_with_backend(backend).unwrap());
        let shared = Arc::new(Shared(RwLock::new(State::new(0))));
        let running = start(disk, shared.clone(), Vec::new(), Options::default()).unwrap();
        assert_eq!(create(&running.requests, "/a").await.unwrap(), 1);

        failed.store(true, Ordering::SeqCst);
        assert!(matches!(create(&running.requests, "/b").await, Err(Error::Engine(_))));
        failed.store(false, Ordering::SeqCst);
        assert!(matches!(create(&running.requests, "/c").await, Err(Error::Engine(_))), "written after a failure");

        let state = shared.read();
        assert_eq!((state.revision(), *running.newest.borrow()), (1, 1));
        assert!(state.get("/a").is_some() && state.get("/b").is_none() && state.get("/c").is_none());
        drop((state, running.requests));
        running.thread.join().unwrap();
    }
}
