//! Reads a store's files into memory, verifies all of them, and changes none.
//!
//! Loading begins with the newest checkpoint and goes on with the segments that it names. Every frame must follow from
//! the one before: what is missing in between is noticed as well as what is wrong.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    checkpoint,
    entry::LogEntry,
    frame::{self, FrameHead, FrameOp},
    open_error::OpenError,
    segment::{self, LogSegment, SegmentEnd, SegmentScan},
    state::{EngineState, LoggedChange},
};
use crate::{Record, Revision, StoreEvent};

/// The file of a store in format 1.
const EARLIER: &str = "store.redb";

/// A document that is to be deleted: when, as which revision, under which key.
pub(super) type ExpiryEntry = (u64, Revision, Arc<str>);

/// The contents of a store's files.
pub(super) struct LoadedStore {
    pub state: EngineState,
    pub expiries: Vec<ExpiryEntry>,
    pub id: u64,
    /// The segments before the last one: number, newest revision in it, length.
    pub sealed: Vec<(u64, Revision, u64)>,
    /// The segment that is written on.
    pub last: LogSegment,
    /// The offset of the next frame in it.
    pub end: u64,
    /// A write that was never acknowledged is behind the end.
    pub torn: bool,
    /// Revisions up to here may have been handed out and lost; 0: none.
    pub reserved: Revision,
    /// Files that nothing needs any more.
    pub surplus: Vec<PathBuf>,
    /// The number of bytes read.
    pub bytes: u64,
}

/// Returns whether `dir` has a store: creating one ends with its first checkpoint.
pub(super) fn store_exists(dir: &Path) -> Result<bool, OpenError> {
    let earlier = dir.join(EARLIER);
    if earlier.try_exists().map_err(OpenError::with_path(&earlier))? {
        return Err(OpenError::Format { file: earlier, found: 1 });
    }
    let files = StoreFiles::list(dir)?;
    if !files.checkpoints.is_empty() || !matches!(files.segments[..], [] | [1]) {
        return Ok(true);
    }
    if files.segments.is_empty() {
        return Ok(false);
    }
    Ok(!LogSegment::read(&segment::segment_path(dir, 1))?.is_unused()?)
}

/// Loads the store in `dir`.
pub(super) fn load_store(dir: &Path) -> Result<LoadedStore, OpenError> {
    let files = StoreFiles::list(dir)?;
    let Some(newest) = files.checkpoints.last().copied() else {
        return Err(OpenError::Damaged { file: dir.into(), offset: 0, what: "it has no checkpoint" });
    };
    let path = checkpoint::checkpoint_path(dir, newest);
    let mut replay = LogReplay::default();
    let head =
        checkpoint::read_checkpoint(&path, |head, revision, entry| replay.add_record(head.revision, revision, entry))?;
    if head.segment != newest {
        return Err(OpenError::Damaged { file: path, offset: 0, what: "its name" });
    }
    replay.restore_records(head.revision);
    let mut bytes = fs::metadata(&path).map_err(OpenError::with_path(&path))?.len();
    let mut sealed = Vec::new();
    let mut number = newest;
    loop {
        let (segment, scanned) = replay.replay_segment(dir, &files, head.id, number)?;
        bytes += segment.head.size;
        if scanned.ended == SegmentEnd::Sealed {
            sealed.push((number, replay.position, segment.head.size));
            number += 1;
            continue;
        }
        if !nothing_after(dir, &files, number, head.id)? {
            return Err(segment.damage_at(scanned.end as usize, "a write"));
        }
        return Ok(LoadedStore {
            expiries: replay.expiries(),
            id: head.id,
            sealed,
            last: segment,
            end: replay.closed.unwrap_or(scanned.end),
            torn: scanned.ended == SegmentEnd::Torn,
            reserved: if replay.closed.is_some() { 0 } else { replay.reserved },
            surplus: files.surplus(dir, newest, number),
            bytes,
            state: replay.state,
        });
    }
}

/// Returns whether segment `number` is the last, or followed by one without frames: a crash cut the switch short.
fn nothing_after(dir: &Path, files: &StoreFiles, number: u64, id: u64) -> Result<bool, OpenError> {
    let later: Vec<_> = files.segments.iter().filter(|later| **later > number).collect();
    if later.is_empty() {
        return Ok(true);
    }
    if later != [&(number + 1)] {
        return Ok(false);
    }
    let next = LogSegment::read(&segment::segment_path(dir, number + 1))?;
    Ok(next.head.id == id && next.is_unused()?)
}

/// The files of a store by their numbers, in order.
struct StoreFiles {
    checkpoints: Vec<u64>,
    segments: Vec<u64>,
    unfinished: Vec<PathBuf>,
}

impl StoreFiles {
    fn list(dir: &Path) -> Result<Self, OpenError> {
        let mut files = Self { checkpoints: Vec::new(), segments: Vec::new(), unfinished: Vec::new() };
        for file in fs::read_dir(dir).map_err(OpenError::with_path(dir))? {
            let file = file.map_err(OpenError::with_path(dir))?;
            let name = file.file_name();
            let Some(name) = name.to_str() else { continue };
            let number = |prefix| name.strip_prefix(prefix).and_then(|number| number.parse::<u64>().ok());
            if let Some(number) = number("checkpoint-") {
                files.checkpoints.push(number);
            } else if let Some(number) = number("segment-") {
                files.segments.push(number);
            } else if [checkpoint::UNFINISHED_NAME, segment::NEXT].contains(&name) {
                files.unfinished.push(file.path());
            }
        }
        files.checkpoints.sort_unstable();
        files.segments.sort_unstable();
        Ok(files)
    }

    fn surplus(self, dir: &Path, first: u64, last: u64) -> Vec<PathBuf> {
        let checkpoints = self.checkpoints.into_iter().filter(|number| *number != first);
        let segments = self.segments.into_iter().filter(|number| *number < first || *number > last);
        let mut surplus: Vec<_> = checkpoints.map(|number| checkpoint::checkpoint_path(dir, number)).collect();
        surplus.extend(segments.map(|number| segment::segment_path(dir, number)));
        surplus.extend(self.unfinished);
        surplus
    }
}

/// The state while files are read.
#[derive(Default)]
struct LogReplay {
    state: EngineState,
    expiries: Vec<ExpiryEntry>,
    /// The newest revision seen in segments, those before the checkpoint's revision included.
    position: Revision,
    entered: bool,
    reserved: Revision,
    /// The offset of the closing frame, if it is the last one.
    closed: Option<u64>,
    records: Vec<(Record, u64)>,
}

impl LogReplay {
    fn add_record(&mut self, limit: Revision, revision: Revision, entry: &LogEntry<'_>) -> Option<()> {
        let value = bytes::Bytes::copy_from_slice(entry.value?);
        let record = Record { key: entry.key.into(), value, revision };
        let ordered = self.records.last().is_none_or(|(last, _)| last.key < record.key);
        self.records.push((record, entry.expires));
        (ordered && revision <= limit).then_some(())
    }

    /// Restores the records of the checkpoint, once all are read.
    fn restore_records(&mut self, revision: Revision) {
        self.state = EngineState::new(revision);
        for (record, expires) in std::mem::take(&mut self.records) {
            if expires != 0 {
                self.expiries.push((expires, record.revision, record.key.clone()));
            }
            self.state.restore_record(record, expires);
        }
    }

    /// Reads the segment `number`, which must follow from what was read before.
    fn replay_segment(
        &mut self,
        dir: &Path,
        files: &StoreFiles,
        id: u64,
        number: u64,
    ) -> Result<(LogSegment, SegmentScan), OpenError> {
        let path = segment::segment_path(dir, number);
        if !files.segments.contains(&number) {
            return Err(OpenError::Damaged { file: path, offset: 0, what: "the file is missing" });
        }
        let segment = LogSegment::read(&path)?;
        if (segment.head.id, segment.head.number) != (id, number) {
            return Err(segment.damage_at(0, "it belongs elsewhere"));
        }
        self.enter_segment(&segment)?;
        let scanned =
            segment.scan_frames(|offset, frame, payload| self.replay_frame(&segment, offset, frame, payload))?;
        Ok((segment, scanned))
    }

    fn enter_segment(&mut self, segment: &LogSegment) -> Result<(), OpenError> {
        let before = segment.head.first.saturating_sub(1);
        let follows = if self.entered { before == self.position } else { before <= self.state.revision() };
        if !follows {
            return Err(segment.damage_at(0, "it does not follow the one before"));
        }
        self.entered = true;
        self.position = before;
        Ok(())
    }

    fn replay_frame(
        &mut self,
        segment: &LogSegment,
        offset: u64,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<(), OpenError> {
        let damaged = || segment.damage_at(offset as usize, "a write that does not follow the one before");
        if head.first != self.position + 1 {
            return Err(damaged());
        }
        self.closed = None;
        for op in frame::decode_ops(payload) {
            op.and_then(|op| self.replay_op(op, offset)).ok_or_else(damaged)?;
        }
        Ok(())
    }

    /// `None` if the operation does not belong into a segment, or not here.
    fn replay_op(&mut self, op: FrameOp<'_>, offset: u64) -> Option<()> {
        match op {
            FrameOp::Change(entry) => self.replay_change(&entry)?,
            FrameOp::Compact(through) => {
                self.position = self.position.max(through);
                self.replay_compaction(through);
            }
            FrameOp::Reserve(revision) => self.reserved = revision,
            FrameOp::Closed => self.closed = Some(offset),
            FrameOp::Sealed => {}
            FrameOp::Record(..) | FrameOp::End(_) => return None,
        }
        Some(())
    }

    fn replay_compaction(&mut self, through: Revision) {
        // The checkpoint is compacted to its own revision.
        if through > self.state.compacted() {
            self.state.trim_history(through);
        }
    }

    /// Adds the next change; `None` if it does not follow from what was loaded before.
    fn replay_change(&mut self, entry: &LogEntry<'_>) -> Option<()> {
        self.position += 1;
        let revision = self.position;
        if revision <= self.state.revision() {
            return Some(());
        }
        let current = self.state.get(entry.key).cloned();
        let key = current.as_ref().map_or_else(|| entry.key.into(), |record| record.key.clone());
        let previous = current.as_ref().map_or(0, |record| record.revision);
        if revision != self.state.revision() + 1 || previous != entry.previous {
            return None;
        }
        if entry.expires != 0 {
            self.expiries.push((entry.expires, revision, key.clone()));
        }
        let value = entry.value.map(bytes::Bytes::copy_from_slice);
        let event = StoreEvent { revision, key, value, previous: current };
        self.state.apply_change(LoggedChange { event: event.into(), written: entry.written, expires: entry.expires });
        Some(())
    }

    fn expiries(&mut self) -> Vec<ExpiryEntry> {
        let mut expiries = std::mem::take(&mut self.expiries);
        let state = &self.state;
        expiries.retain(|(_, revision, key)| state.get(key).is_some_and(|record| record.revision == *revision));
        expiries
    }
}
