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
    SharedState,
    checkpoint::{self, CheckpointHead},
    entry::LogEntry,
    frame::{FrameBuilder, FrameOp},
    load::LoadedStore,
    medium::StorageMedium,
    open_error::OpenError,
    segment::{self, SegmentHead},
    state::LoggedChange,
};
use crate::Revision;

/// Bytes reserved at the end of a segment for its closing frames.
const TAIL_BYTES: u64 = 128;
/// The number of segments that a checkpoint must free.
const MIN_FREED_SEGMENTS: u64 = 4;

/// A failed commit.
#[derive(Debug)]
pub(super) enum CommitError {
    /// The commit was not written; the next one may succeed.
    Refused(io::Error),
    /// The outcome is unknown.
    Unknown(io::Error),
}

/// Changes that become durable together.
#[derive(Default)]
pub(super) struct LogCommit {
    pub changes: Vec<LoggedChange>,
    /// The history through here is forgotten.
    pub compact: Option<Revision>,
    /// Revisions up to here may be handed out before they are durable.
    pub reserve: Option<Revision>,
}

/// The open log; it holds the lock of its directory.
pub(super) struct WriteAheadLog {
    medium: Arc<dyn StorageMedium>,
    dir: PathBuf,
    shared: Arc<SharedState>,
    id: u64,
    segment_bytes: u64,
    current: OpenSegment,
    frame: FrameBuilder,
    /// The segments before the current one: number, newest revision in it, length.
    sealed: VecDeque<(u64, Revision, u64)>,
    next: Option<JoinHandle<io::Result<File>>>,
    checkpoint: Option<JoinHandle<io::Result<u64>>>,
    _lock: File,
}

/// The segment that is written.
struct OpenSegment {
    number: u64,
    file: File,
    size: u64,
    /// The offset of the next frame.
    end: u64,
    /// Everything before here is durable.
    synced: u64,
}

impl WriteAheadLog {
    /// Goes on where `loaded` ends.
    pub fn resume(
        medium: Arc<dyn StorageMedium>,
        dir: &Path,
        lock: File,
        segment_bytes: u64,
        loaded: LoadedStore,
    ) -> Result<(Self, Arc<SharedState>), OpenError> {
        for path in &loaded.surplus {
            medium.remove(path).map_err(OpenError::with_path(path))?;
        }
        let file = loaded.last.zero_tail(&*medium, loaded.end)?;
        let head = loaded.last.head;
        let current = OpenSegment { number: head.number, file, size: head.size, end: loaded.end, synced: loaded.end };
        let shared = Arc::new(SharedState::new(loaded.state));
        let log = Self {
            medium,
            dir: dir.into(),
            shared: shared.clone(),
            id: loaded.id,
            segment_bytes,
            current,
            frame: FrameBuilder::default(),
            sealed: loaded.sealed.into(),
            next: None,
            checkpoint: None,
            _lock: lock,
        };
        Ok((log, shared))
    }

    /// Writes all of it, or nothing; `newest` is the newest revision before it. With `sync`, it returns when all that
    /// was ever committed is durable.
    pub fn append_commit(&mut self, commit: &LogCommit, newest: Revision, sync: bool) -> Result<(), CommitError> {
        self.frame.clear();
        commit.changes.iter().for_each(|change| self.frame.push_op(&FrameOp::Change(LogEntry::from_change(change))));
        commit.compact.iter().for_each(|through| self.frame.push_op(&FrameOp::Compact(*through)));
        commit.reserve.iter().for_each(|through| self.frame.push_op(&FrameOp::Reserve(*through)));
        self.make_room(newest)?;
        self.medium.reached_point("commit.encoded");
        self.append_frame(newest).map_err(CommitError::Unknown)?;
        self.medium.reached_point("commit.written");
        if sync {
            self.sync().map_err(CommitError::Unknown)?;
            self.medium.reached_point("commit.synced");
        }
        Ok(())
    }

    /// Makes durable what was committed without that.
    pub fn sync(&mut self) -> io::Result<()> {
        self.medium.sync(&self.current.file)?;
        self.current.synced = self.current.end;
        Ok(())
    }

    pub fn medium(&self) -> &dyn StorageMedium {
        &*self.medium
    }

    /// Writes the frame behind the last one.
    fn append_frame(&mut self, newest: Revision) -> io::Result<()> {
        let current = &mut self.current;
        let bytes = self.frame.finish(self.id, newest + 1, current.end, current.synced);
        self.medium.write(&current.file, bytes, current.end)?;
        current.end += bytes.len() as u64;
        Ok(())
    }

    fn make_room(&mut self, newest: Revision) -> Result<(), CommitError> {
        let needed = self.frame.len() as u64 + TAIL_BYTES;
        if self.current.end + needed > self.current.size {
            self.change_segment(newest, needed)?;
        } else if self.next.is_none() && self.current.end > self.current.size / 2 {
            self.prepare_next_segment(self.segment_bytes).map_err(CommitError::Refused)?;
        }
        Ok(())
    }

    fn prepare_next_segment(&mut self, size: u64) -> io::Result<()> {
        let (medium, dir) = (self.medium.clone(), self.dir.clone());
        let thread = thread::Builder::new().name("store-segment".into());
        self.next = Some(thread.spawn(move || segment::prepare_segment(&*medium, &dir, size))?);
        Ok(())
    }

    /// Switches to the next segment, which is complete before the current one is sealed.
    fn change_segment(&mut self, newest: Revision, needed: u64) -> Result<(), CommitError> {
        let size = self.segment_bytes.max(needed + segment::START);
        let prepared = self.next.take().map(join_thread).transpose().map_err(CommitError::Refused)?;
        let file = match prepared {
            Some(file) if size == self.segment_bytes => file,
            _ => segment::prepare_segment(&*self.medium, &self.dir, size).map_err(CommitError::Refused)?,
        };
        let number = self.current.number + 1;
        let head = SegmentHead { id: self.id, number, first: newest + 1, size };
        segment::adopt_segment(&*self.medium, &self.dir, &file, head).map_err(CommitError::Refused)?;
        self.seal_segment(newest).map_err(CommitError::Unknown)?;
        self.sealed.push_back((self.current.number, newest, self.current.size));
        self.current = OpenSegment { number, file, size, end: segment::START, synced: segment::START };
        Ok(())
    }

    fn seal_segment(&mut self, newest: Revision) -> io::Result<()> {
        let mut seal = FrameBuilder::default();
        seal.push_op(&FrameOp::Sealed);
        let frame = std::mem::replace(&mut self.frame, seal);
        let sealed = self.append_frame(newest).and_then(|()| self.sync());
        self.frame = frame;
        self.medium.reached_point("segment.sealed");
        sealed
    }

    /// Starts a checkpoint if it is worth it, and takes note of one that is done.
    pub fn checkpoint_if_due(&mut self) {
        if self.checkpoint.as_ref().is_some_and(|running| !running.is_finished()) {
            return;
        }
        if let Some(done) = self.checkpoint.take() {
            match join_thread(done) {
                Ok(first) => self.sealed.retain(|(number, ..)| *number >= first),
                Err(error) => tracing::warn!(%error, "store: checkpoint failed, the log grows until the next one"),
            }
        }
        if let Some(first) = self.checkpoint_target()
            && let Err(error) = self.start_checkpoint(first)
        {
            tracing::warn!(%error, "store: cannot start a checkpoint, retrying after the next commit");
        }
    }

    /// The first segment to keep, if removing those before it is worth a checkpoint.
    fn checkpoint_target(&self) -> Option<u64> {
        if (self.sealed.len() as u64) < MIN_FREED_SEGMENTS {
            return None;
        }
        let state = self.shared.read();
        let (compacted, live) = (state.compacted(), state.record_bytes() as u64);
        let free = self.sealed.iter().take_while(|(_, last, _)| *last <= compacted);
        let (number, bytes) = free.fold((0, 0), |(_, bytes), (number, _, size)| (*number, bytes + size));
        (bytes >= live.max(MIN_FREED_SEGMENTS * self.segment_bytes)).then_some(number + 1)
    }

    fn start_checkpoint(&mut self, segment: u64) -> io::Result<()> {
        let revision = self.shared.write().pin_revision();
        let head = CheckpointHead { id: self.id, segment, revision };
        let old: Vec<_> = self.sealed.iter().map(|(number, ..)| *number).filter(|number| *number < segment).collect();
        let (medium, dir, shared) = (self.medium.clone(), self.dir.clone(), self.shared.clone());
        let work = move || {
            let written = checkpoint::write_checkpoint(&*medium, &dir, head, &shared);
            let forgotten = shared.write().unpin_revision();
            drop(forgotten);
            tracing::debug!(records = written?, revision, "store: wrote a checkpoint");
            remove_old(&*medium, &dir, &old)?;
            Ok(segment)
        };
        let started = thread::Builder::new().name("store-checkpoint".into()).spawn(work);
        self.checkpoint = Some(started.inspect_err(|_| drop(self.shared.write().unpin_revision()))?);
        Ok(())
    }

    /// Ends in order: the next opener knows that nothing is missing at the end.
    pub fn close(mut self, newest: Revision) {
        // The next open removes what these leave behind.
        let _ = self.next.take().map(join_thread);
        let _ = self.checkpoint.take().map(join_thread);
        self.frame.clear();
        self.frame.push_op(&FrameOp::Closed);
        if let Err(error) = self.append_frame(newest).and_then(|()| self.sync()) {
            tracing::warn!(%error, "store: cannot write the closing frame, the next open verifies the log");
        }
        self.medium.reached_point("close.marked");
    }
}

/// Removes the segments that a checkpoint replaces, and the checkpoints that began with them.
fn remove_old(medium: &dyn StorageMedium, dir: &Path, segments: &[u64]) -> io::Result<()> {
    let gone = |removed: io::Result<()>| match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    };
    for number in segments {
        gone(medium.remove(&checkpoint::checkpoint_path(dir, *number)))?;
    }
    medium.reached_point("checkpoint.replaced");
    for number in segments {
        gone(medium.remove(&segment::segment_path(dir, *number)))?;
    }
    medium.sync_dir(dir)?;
    medium.reached_point("checkpoint.freed");
    Ok(())
}

fn join_thread<T>(thread: JoinHandle<io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
}
