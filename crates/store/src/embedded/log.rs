//! The log: where changes become durable, in which file, and which files can go.
//!
//! One commit is one frame and one sync. A full segment is followed by the next, which was filled with zeros meanwhile.
//! When enough segments hold nothing but forgotten history and replaced documents, a checkpoint takes their place; it
//! is written beside the commits. So the files take at most about three times what records and history need.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
};

use super::{
    Shared,
    checkpoint::{self, CheckpointHead},
    damage::Refusal,
    entry::Entry,
    frame::{Builder, Op},
    load::Loaded,
    medium::Medium,
    segment::{self, SegmentHead},
    state::Change,
};
use crate::Revision;

/// What is kept free at the end of a segment for the frames that say how it ended.
const TAIL: u64 = 128;
/// A checkpoint is worth it when it frees this many segments.
const WORTH: u64 = 4;

/// Why a commit failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing was written; the next commit may succeed.
    Refused(io::Error),
    /// Nobody knows what was written.
    Unknown(io::Error),
}

/// What becomes durable together.
#[derive(Default)]
pub(super) struct Commit {
    pub changes: Vec<Change>,
    /// The history through here is forgotten.
    pub compact: Option<Revision>,
    /// Revisions up to here may be handed out before they are durable.
    pub reserve: Option<Revision>,
}

/// The open log; nobody else can open its directory meanwhile.
pub(super) struct Log {
    medium: Arc<dyn Medium>,
    dir: PathBuf,
    shared: Arc<Shared>,
    id: u64,
    segment_bytes: u64,
    current: Current,
    frame: Builder,
    /// The segments before the current one: number, newest revision in it, length.
    sealed: VecDeque<(u64, Revision, u64)>,
    next: Option<JoinHandle<io::Result<File>>>,
    checkpoint: Option<JoinHandle<io::Result<u64>>>,
    _lock: File,
}

/// The segment that is written.
struct Current {
    number: u64,
    file: File,
    size: u64,
    /// Where the next frame goes.
    end: u64,
    /// Everything before here is durable.
    synced: u64,
}

impl Log {
    /// Goes on where `loaded` ends.
    pub fn resume(
        medium: Arc<dyn Medium>,
        dir: &Path,
        lock: File,
        segment_bytes: u64,
        loaded: Loaded,
    ) -> Result<(Self, Arc<Shared>), Refusal> {
        for path in &loaded.surplus {
            medium.remove(path).map_err(Refusal::io(path))?;
        }
        let file = loaded.last.clean(&*medium, loaded.end)?;
        let head = loaded.last.head;
        let current = Current { number: head.number, file, size: head.size, end: loaded.end, synced: loaded.end };
        let shared = Arc::new(Shared::new(loaded.state));
        let log = Self {
            medium,
            dir: dir.into(),
            shared: shared.clone(),
            id: loaded.id,
            segment_bytes,
            current,
            frame: Builder::default(),
            sealed: loaded.sealed.into(),
            next: None,
            checkpoint: None,
            _lock: lock,
        };
        Ok((log, shared))
    }

    /// Writes all of it, or nothing; `newest` is the newest revision before it. With `sync`, it returns when all that
    /// was ever committed is durable.
    pub fn commit(&mut self, commit: &Commit, newest: Revision, sync: bool) -> Result<(), Failure> {
        self.frame.clear();
        commit.changes.iter().for_each(|change| self.frame.push(&Op::Change(Entry::of(change))));
        commit.compact.iter().for_each(|through| self.frame.push(&Op::Compact(*through)));
        commit.reserve.iter().for_each(|through| self.frame.push(&Op::Reserve(*through)));
        self.make_room(newest)?;
        self.medium.reached("commit.encoded");
        self.append(newest).map_err(Failure::Unknown)?;
        self.medium.reached("commit.written");
        if sync {
            self.sync().map_err(Failure::Unknown)?;
            self.medium.reached("commit.synced");
        }
        Ok(())
    }

    /// Makes durable what was committed without that.
    pub fn sync(&mut self) -> io::Result<()> {
        self.medium.sync(&self.current.file)?;
        self.current.synced = self.current.end;
        Ok(())
    }

    pub fn medium(&self) -> &dyn Medium {
        &*self.medium
    }

    /// Writes the frame behind the last one.
    fn append(&mut self, newest: Revision) -> io::Result<()> {
        let current = &mut self.current;
        let bytes = self.frame.finish(self.id, newest + 1, current.end, current.synced);
        self.medium.write(&current.file, bytes, current.end)?;
        current.end += bytes.len() as u64;
        Ok(())
    }

    fn make_room(&mut self, newest: Revision) -> Result<(), Failure> {
        let needed = self.frame.len() as u64 + TAIL;
        if self.current.end + needed > self.current.size {
            self.change_segment(newest, needed)?;
        } else if self.next.is_none() && self.current.end > self.current.size / 2 {
            self.prepare(self.segment_bytes).map_err(Failure::Refused)?;
        }
        Ok(())
    }

    fn prepare(&mut self, size: u64) -> io::Result<()> {
        let (medium, dir) = (self.medium.clone(), self.dir.clone());
        let thread = thread::Builder::new().name("store-segment".into());
        self.next = Some(thread.spawn(move || segment::prepare(&*medium, &dir, size))?);
        Ok(())
    }

    /// The next segment is complete before the current one says that there is one.
    fn change_segment(&mut self, newest: Revision, needed: u64) -> Result<(), Failure> {
        let size = self.segment_bytes.max(needed + segment::START);
        let prepared = self.next.take().map(join).transpose().map_err(Failure::Refused)?;
        let file = match prepared {
            Some(file) if size == self.segment_bytes => file,
            _ => segment::prepare(&*self.medium, &self.dir, size).map_err(Failure::Refused)?,
        };
        let number = self.current.number + 1;
        let head = SegmentHead { id: self.id, number, first: newest + 1, size };
        segment::adopt(&*self.medium, &self.dir, &file, head).map_err(Failure::Refused)?;
        self.seal(newest).map_err(Failure::Unknown)?;
        self.sealed.push_back((self.current.number, newest, self.current.size));
        self.current = Current { number, file, size, end: segment::START, synced: segment::START };
        Ok(())
    }

    fn seal(&mut self, newest: Revision) -> io::Result<()> {
        let mut seal = Builder::default();
        seal.push(&Op::Sealed);
        let frame = std::mem::replace(&mut self.frame, seal);
        let sealed = self.append(newest).and_then(|()| self.sync());
        self.frame = frame;
        self.medium.reached("segment.sealed");
        sealed
    }

    /// Starts a checkpoint if it is worth it, and takes note of one that is done.
    pub fn tidy(&mut self) {
        if self.checkpoint.as_ref().is_some_and(|running| !running.is_finished()) {
            return;
        }
        if let Some(done) = self.checkpoint.take() {
            match join(done) {
                Ok(first) => self.sealed.retain(|(number, ..)| *number >= first),
                Err(error) => tracing::warn!(%error, "the store cannot write a checkpoint; its log grows meanwhile"),
            }
        }
        if let Some(first) = self.worthwhile()
            && let Err(error) = self.start_checkpoint(first)
        {
            tracing::warn!(%error, "the store cannot start a checkpoint");
        }
    }

    /// The first segment to keep, if removing those before it is worth a checkpoint.
    fn worthwhile(&self) -> Option<u64> {
        if (self.sealed.len() as u64) < WORTH {
            return None;
        }
        let state = self.shared.read();
        let (compacted, live) = (state.compacted(), state.record_bytes() as u64);
        let free = self.sealed.iter().take_while(|(_, last, _)| *last <= compacted);
        let (number, bytes) = free.fold((0, 0), |(_, bytes), (number, _, size)| (*number, bytes + size));
        (bytes >= live.max(WORTH * self.segment_bytes)).then_some(number + 1)
    }

    fn start_checkpoint(&mut self, segment: u64) -> io::Result<()> {
        let revision = self.shared.write().pin();
        let head = CheckpointHead { id: self.id, segment, revision };
        let old: Vec<_> = self.sealed.iter().map(|(number, ..)| *number).filter(|number| *number < segment).collect();
        let (medium, dir, shared) = (self.medium.clone(), self.dir.clone(), self.shared.clone());
        let work = move || {
            let written = checkpoint::write(&*medium, &dir, head, &shared);
            let forgotten = shared.write().unpin();
            drop(forgotten);
            tracing::debug!(records = written?, revision, "the store wrote a checkpoint");
            remove_old(&*medium, &dir, &old)?;
            Ok(segment)
        };
        let started = thread::Builder::new().name("store-checkpoint".into()).spawn(work);
        self.checkpoint = Some(started.inspect_err(|_| drop(self.shared.write().unpin()))?);
        Ok(())
    }

    /// Ends in order: the next opener knows that nothing is missing at the end.
    pub fn close(mut self, newest: Revision) {
        // What these made or left undone is found and removed by the next opener.
        let _ = self.next.take().map(join);
        let _ = self.checkpoint.take().map(join);
        self.frame.clear();
        self.frame.push(&Op::Closed);
        if let Err(error) = self.append(newest).and_then(|()| self.sync()) {
            tracing::warn!(%error, "the store was not closed in order");
        }
        self.medium.reached("close.marked");
    }
}

/// Removes the segments that a checkpoint replaces, and the checkpoints that began with them.
fn remove_old(medium: &dyn Medium, dir: &Path, segments: &[u64]) -> io::Result<()> {
    let gone = |removed: io::Result<()>| match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    };
    for number in segments {
        gone(medium.remove(&checkpoint::path(dir, *number)))?;
    }
    medium.reached("checkpoint.replaced");
    for number in segments {
        gone(medium.remove(&segment::path(dir, *number)))?;
    }
    medium.sync_dir(dir)?;
    medium.reached("checkpoint.freed");
    Ok(())
}

fn join<T>(thread: JoinHandle<io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
}
