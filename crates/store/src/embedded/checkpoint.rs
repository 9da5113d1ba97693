//! The records as of one revision in one file: where loading begins, so that older segments can be removed.
//!
//! A checkpoint is written under another name and renamed when it is durable: one under its own name is complete.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use super::{
    FORMAT, SharedState,
    entry::LogEntry,
    frame::{self, FrameBuilder, FrameHead, FrameOp, HEAD_BYTES, SECTOR_BYTES, checksum},
    medium::StorageMedium,
    open_error::OpenError,
};
use crate::{ListOptions, Revision};

const MAGIC: &[u8; 8] = b"FERRYCHK";
/// The name of a checkpoint until it is complete.
pub(super) const UNFINISHED_NAME: &str = "checkpoint.new";
/// A frame is written once it has this many bytes.
const FRAME_BYTES: usize = 256 << 10;
/// Records read under one lock.
const PAGE: usize = 2048;

pub(super) fn checkpoint_path(dir: &Path, segment: u64) -> PathBuf {
    dir.join(format!("checkpoint-{segment:016}"))
}

/// The head of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CheckpointHead {
    pub id: u64,
    /// The first segment that has changes after `revision`.
    pub segment: u64,
    /// The records are as of here.
    pub revision: Revision,
}

impl CheckpointHead {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        for number in [self.id, self.segment, self.revision] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&checksum(self.id, &bytes).to_le_bytes());
        bytes.resize(SECTOR_BYTES, 0);
        bytes
    }

    fn decode(bytes: &[u8; SECTOR_BYTES]) -> Result<Self, Option<u32>> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(None)?;
        let format = u32::from_le_bytes(*rest.first_chunk().ok_or(None)?);
        let number = |index: usize| {
            let bytes = rest.get(4 + index * 8..).and_then(|rest| rest.first_chunk());
            bytes.map(|bytes| u64::from_le_bytes(*bytes)).ok_or(None)
        };
        let head = Self { id: number(0)?, segment: number(1)?, revision: number(2)? };
        if checksum(head.id, &bytes[..36]).to_le_bytes() != bytes[36..40] {
            return Err(None);
        }
        if format == FORMAT { Ok(head) } else { Err(Some(format)) }
    }
}

/// Writes the records as of `head.revision`, which is pinned or cannot be compacted.
pub(super) fn write_checkpoint(
    medium: &dyn StorageMedium,
    dir: &Path,
    head: CheckpointHead,
    shared: &SharedState,
) -> io::Result<u64> {
    write_checkpoint_file(medium, &dir.join(UNFINISHED_NAME), &checkpoint_path(dir, head.segment), head, shared)
}

/// Writes a checkpoint to `path`; `new` is its name until it is complete.
pub(super) fn write_checkpoint_file(
    medium: &dyn StorageMedium,
    new: &Path,
    path: &Path,
    head: CheckpointHead,
    shared: &SharedState,
) -> io::Result<u64> {
    if new.try_exists()? {
        medium.remove(new)?;
    }
    let mut out = CheckpointWriter {
        medium,
        file: medium.create(new)?,
        offset: SECTOR_BYTES as u64,
        id: head.id,
        frame: FrameBuilder::default(),
    };
    medium.reached_point("checkpoint.created");
    medium.write(&out.file, &head.encode(), 0)?;
    let count = out.write_records(head.revision, shared)?;
    out.frame.push_op(&FrameOp::End(count));
    out.flush_frame()?;
    medium.reached_point("checkpoint.written");
    medium.sync(&out.file)?;
    medium.reached_point("checkpoint.synced");
    medium.rename(new, path)?;
    medium.reached_point("checkpoint.renamed");
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    medium.sync_dir(dir.unwrap_or(Path::new(".")))?;
    medium.reached_point("checkpoint.listed");
    Ok(count)
}

struct CheckpointWriter<'a> {
    medium: &'a dyn StorageMedium,
    file: File,
    offset: u64,
    id: u64,
    frame: FrameBuilder,
}

impl CheckpointWriter<'_> {
    fn write_records(&mut self, revision: Revision, shared: &SharedState) -> io::Result<u64> {
        let mut range = ListOptions { limit: Some(PAGE), ..ListOptions::default() };
        let mut count = 0;
        loop {
            // The lock is held for one page at a time: writers wait no longer than that.
            let (page, expires) = {
                let state = shared.read();
                let page = state.page_at(&range, revision);
                let expires: Vec<_> = page.records.iter().map(|record| state.expires(record.revision)).collect();
                (page, expires)
            };
            for (record, expires) in page.records.iter().zip(expires) {
                let value = Some(&*record.value);
                let entry = LogEntry { previous: 0, written: 0, expires, key: &record.key, value };
                self.frame.push_op(&FrameOp::Record(record.revision, entry));
                if self.frame.len() >= FRAME_BYTES {
                    self.flush_frame()?;
                }
            }
            count += page.records.len() as u64;
            match page.records.last() {
                Some(last) if page.remaining > 0 => range.after = Some(last.key.to_string()),
                _ => return Ok(count),
            }
        }
    }

    fn flush_frame(&mut self) -> io::Result<()> {
        let bytes = self.frame.finish(self.id, 0, self.offset, self.offset);
        self.medium.write(&self.file, bytes, self.offset)?;
        self.offset += bytes.len() as u64;
        self.frame.clear();
        Ok(())
    }
}

/// Reads a checkpoint and passes every record to `add`, which returns `None` if it does not fit.
pub(super) fn read_checkpoint(
    path: &Path,
    mut add: impl FnMut(CheckpointHead, Revision, &LogEntry<'_>) -> Option<()>,
) -> Result<CheckpointHead, OpenError> {
    let file = File::open(path).map_err(OpenError::with_path(path))?;
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let damaged = |offset: u64, what| OpenError::Damaged { file: path.into(), offset, what };
    let mut exact = |bytes: &mut [u8], offset: u64| match reader.read_exact(bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(damaged(offset, "it ends too early")),
        read => read.map_err(OpenError::with_path(path)),
    };
    let mut sector = [0; SECTOR_BYTES];
    exact(&mut sector, 0)?;
    let head = CheckpointHead::decode(&sector).map_err(|format| match format {
        Some(found) => OpenError::Format { file: path.into(), found },
        None => damaged(0, "its head"),
    })?;
    let (mut offset, mut count, mut ended) = (SECTOR_BYTES as u64, 0, false);
    let mut bytes = Vec::new();
    while !ended {
        let mut start = [0; HEAD_BYTES];
        exact(&mut start, offset)?;
        let frame = FrameHead::decode(head.id, &start).ok_or_else(|| damaged(offset, "the head of a part"))?;
        bytes.resize(frame.len() - HEAD_BYTES, 0);
        exact(&mut bytes, offset)?;
        let payload = &bytes[..frame.payload];
        if !frame.matches_payload(head.id, payload) {
            return Err(damaged(offset, "the contents of a part"));
        }
        for op in frame::decode_ops(payload) {
            let fits = match op {
                Some(FrameOp::Record(revision, entry)) if revision <= head.revision => {
                    count += 1;
                    add(head, revision, &entry)
                }
                Some(FrameOp::End(expected)) if expected == count => {
                    ended = true;
                    Some(())
                }
                _ => None,
            };
            fits.ok_or_else(|| damaged(offset, "a record that does not fit"))?;
        }
        offset += frame.len() as u64;
    }
    Ok(head)
}
