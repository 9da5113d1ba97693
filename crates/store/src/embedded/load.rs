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
    damage::Refusal,
    entry::Entry,
    frame::{self, Head, Op},
    segment::{self, Ended, Scanned, Segment},
    state::{Change, State},
};
use crate::{Event, Record, Revision};

/// The file of a store in format 1.
const EARLIER: &str = "store.redb";

/// A document that is to be deleted: when, as which revision, under which key.
pub(super) type Expiry = (u64, Revision, Arc<str>);

/// What was in the files.
pub(super) struct Loaded {
    pub state: State,
    pub expiries: Vec<Expiry>,
    pub id: u64,
    /// The segments before the last one: number, newest revision in it, length.
    pub sealed: Vec<(u64, Revision, u64)>,
    /// The segment that is written on.
    pub last: Segment,
    /// Where in it the next frame goes.
    pub end: u64,
    /// A write that was never acknowledged is behind the end.
    pub torn: bool,
    /// Revisions up to here may have been handed out and lost; 0: none.
    pub reserved: Revision,
    /// Files that nothing needs any more.
    pub surplus: Vec<PathBuf>,
    /// How many bytes were read.
    pub bytes: u64,
}

/// Whether there is a store in `dir`: its first checkpoint is the last thing that creating one makes.
pub(super) fn exists(dir: &Path) -> Result<bool, Refusal> {
    let earlier = dir.join(EARLIER);
    if earlier.try_exists().map_err(Refusal::io(&earlier))? {
        return Err(Refusal::Format { file: earlier, found: 1 });
    }
    let files = Files::list(dir)?;
    if !files.checkpoints.is_empty() || !matches!(files.segments[..], [] | [1]) {
        return Ok(true);
    }
    if files.segments.is_empty() {
        return Ok(false);
    }
    Ok(!Segment::read(&segment::path(dir, 1))?.is_unused()?)
}

/// Loads the store in `dir`.
pub(super) fn load(dir: &Path) -> Result<Loaded, Refusal> {
    let files = Files::list(dir)?;
    let Some(newest) = files.checkpoints.last().copied() else {
        return Err(Refusal::Damaged { file: dir.into(), offset: 0, what: "it has no checkpoint" });
    };
    let path = checkpoint::path(dir, newest);
    let mut replay = Replay::default();
    let head = checkpoint::read(&path, |head, revision, entry| replay.record(head.revision, revision, entry))?;
    if head.segment != newest {
        return Err(Refusal::Damaged { file: path, offset: 0, what: "its name" });
    }
    replay.begin(head.revision);
    let mut bytes = fs::metadata(&path).map_err(Refusal::io(&path))?.len();
    let mut sealed = Vec::new();
    let mut number = newest;
    loop {
        let (segment, scanned) = replay.segment(dir, &files, head.id, number)?;
        bytes += segment.head.size;
        if scanned.ended == Ended::Sealed {
            sealed.push((number, replay.position, segment.head.size));
            number += 1;
            continue;
        }
        if !nothing_after(dir, &files, number, head.id)? {
            return Err(segment.damaged(scanned.end as usize, "a write"));
        }
        return Ok(Loaded {
            expiries: replay.expiries(),
            id: head.id,
            sealed,
            last: segment,
            end: replay.closed.unwrap_or(scanned.end),
            torn: scanned.ended == Ended::Torn,
            reserved: if replay.closed.is_some() { 0 } else { replay.reserved },
            surplus: files.surplus(dir, newest, number),
            bytes,
            state: replay.state,
        });
    }
}

/// Whether nothing follows segment `number`, or one segment without frames: a change of segments was cut short.
fn nothing_after(dir: &Path, files: &Files, number: u64, id: u64) -> Result<bool, Refusal> {
    let later: Vec<_> = files.segments.iter().filter(|later| **later > number).collect();
    if later.is_empty() {
        return Ok(true);
    }
    if later != [&(number + 1)] {
        return Ok(false);
    }
    let next = Segment::read(&segment::path(dir, number + 1))?;
    Ok(next.head.id == id && next.is_unused()?)
}

/// The files of a store by their numbers, in order.
struct Files {
    checkpoints: Vec<u64>,
    segments: Vec<u64>,
    unfinished: Vec<PathBuf>,
}

impl Files {
    fn list(dir: &Path) -> Result<Self, Refusal> {
        let mut files = Self { checkpoints: Vec::new(), segments: Vec::new(), unfinished: Vec::new() };
        for file in fs::read_dir(dir).map_err(Refusal::io(dir))? {
            let file = file.map_err(Refusal::io(dir))?;
            let name = file.file_name();
            let Some(name) = name.to_str() else { continue };
            let number = |prefix| name.strip_prefix(prefix).and_then(|number| number.parse::<u64>().ok());
            if let Some(number) = number("checkpoint-") {
                files.checkpoints.push(number);
            } else if let Some(number) = number("segment-") {
                files.segments.push(number);
            } else if [checkpoint::NEW, segment::NEXT].contains(&name) {
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
        let mut surplus: Vec<_> = checkpoints.map(|number| checkpoint::path(dir, number)).collect();
        surplus.extend(segments.map(|number| segment::path(dir, number)));
        surplus.extend(self.unfinished);
        surplus
    }
}

/// The state while files are read.
#[derive(Default)]
struct Replay {
    state: State,
    expiries: Vec<Expiry>,
    /// The newest revision seen in segments, those before the checkpoint's revision included.
    position: Revision,
    entered: bool,
    reserved: Revision,
    /// Where the mark of an orderly end is, if it is the last frame.
    closed: Option<u64>,
    records: Vec<(Record, u64)>,
}

impl Replay {
    fn record(&mut self, limit: Revision, revision: Revision, entry: &Entry<'_>) -> Option<()> {
        let value = bytes::Bytes::copy_from_slice(entry.value?);
        let record = Record { key: entry.key.into(), value, revision };
        let ordered = self.records.last().is_none_or(|(last, _)| last.key < record.key);
        self.records.push((record, entry.expires));
        (ordered && revision <= limit).then_some(())
    }

    /// All records of the checkpoint are there.
    fn begin(&mut self, revision: Revision) {
        self.state = State::new(revision);
        for (record, expires) in std::mem::take(&mut self.records) {
            if expires != 0 {
                self.expiries.push((expires, record.revision, record.key.clone()));
            }
            self.state.restore(record, expires);
        }
    }

    /// Reads the segment `number`, which must follow from what was read before.
    fn segment(&mut self, dir: &Path, files: &Files, id: u64, number: u64) -> Result<(Segment, Scanned), Refusal> {
        let path = segment::path(dir, number);
        if !files.segments.contains(&number) {
            return Err(Refusal::Damaged { file: path, offset: 0, what: "the file is missing" });
        }
        let segment = Segment::read(&path)?;
        if (segment.head.id, segment.head.number) != (id, number) {
            return Err(segment.damaged(0, "it belongs elsewhere"));
        }
        self.enter(&segment)?;
        let scanned = segment.scan(|offset, frame, payload| self.frame(&segment, offset, frame, payload))?;
        Ok((segment, scanned))
    }

    fn enter(&mut self, segment: &Segment) -> Result<(), Refusal> {
        let before = segment.head.first.saturating_sub(1);
        let follows = if self.entered { before == self.position } else { before <= self.state.revision() };
        if !follows {
            return Err(segment.damaged(0, "it does not follow the one before"));
        }
        self.entered = true;
        self.position = before;
        Ok(())
    }

    fn frame(&mut self, segment: &Segment, offset: u64, head: Head, payload: &[u8]) -> Result<(), Refusal> {
        let damaged = || segment.damaged(offset as usize, "a write that does not follow the one before");
        if head.first != self.position + 1 {
            return Err(damaged());
        }
        self.closed = None;
        for op in frame::ops(payload) {
            op.and_then(|op| self.op(op, offset)).ok_or_else(damaged)?;
        }
        Ok(())
    }

    /// `None` if the operation does not belong into a segment, or not here.
    fn op(&mut self, op: Op<'_>, offset: u64) -> Option<()> {
        match op {
            Op::Change(entry) => self.change(&entry)?,
            Op::Compact(through) => {
                self.position = self.position.max(through);
                self.compact(through);
            }
            Op::Reserve(revision) => self.reserved = revision,
            Op::Closed => self.closed = Some(offset),
            Op::Sealed => {}
            Op::Record(..) | Op::End(_) => return None,
        }
        Some(())
    }

    fn compact(&mut self, through: Revision) {
        // What a checkpoint left out was compacted before it was written.
        if through > self.state.compacted() {
            self.state.trim(through);
        }
    }

    /// Adds the next change; `None` if it does not follow from what was loaded before.
    fn change(&mut self, entry: &Entry<'_>) -> Option<()> {
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
        let event = Event { revision, key, value, previous: current };
        self.state.apply(Change { event: event.into(), written: entry.written, expires: entry.expires });
        Some(())
    }

    fn expiries(&mut self) -> Vec<Expiry> {
        let mut expiries = std::mem::take(&mut self.expiries);
        let state = &self.state;
        expiries.retain(|(_, revision, key)| state.get(key).is_some_and(|record| record.revision == *revision));
        expiries
    }
}
