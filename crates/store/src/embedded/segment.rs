//! One file of the log: a head, frames, and zeros up to a length that is fixed when the file is made.
//!
//! The zeros are what tells a write that a crash cut short from damage. Sectors are written whole: where a frame that
//! does not match has a sector of zeros, or zeros at its end, that part was never written, so the frame was never
//! acknowledged and the log ends before it. A frame that does not match otherwise, a wrong length, or a hole before a
//! later durable frame is damage. A missing end cannot pass for the end of the log.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use super::{
    FORMAT,
    frame::{self, FrameHead, FrameOp, HEAD_BYTES, SECTOR_BYTES, checksum, has_zero_sector},
    medium::StorageMedium,
    open_error::OpenError,
};
use crate::Revision;

const MAGIC: &[u8; 8] = b"FERRYLOG";
/// The offset of the first frame.
pub(super) const START: u64 = SECTOR_BYTES as u64;
/// Zeros written at once.
const FILL: usize = 1 << 20;
/// A segment under this name is not in use yet.
pub(super) const NEXT: &str = "segment.next";

pub(super) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("segment-{number:016}"))
}

/// The head of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHead {
    pub id: u64,
    pub number: u64,
    /// The revision of the first change that is, or will be, in it.
    pub first: Revision,
    pub size: u64,
}

impl SegmentHead {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        for number in [self.id, self.number, self.first, self.size] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&checksum(self.id, &bytes).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, Option<u32>> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(None)?;
        let (format, rest) = rest.split_first_chunk().ok_or(None)?;
        let number = |index: usize| {
            let bytes = rest.get(index * 8..).and_then(|rest| rest.first_chunk());
            bytes.map(|bytes| u64::from_le_bytes(*bytes)).ok_or(None)
        };
        let head = Self { id: number(0)?, number: number(1)?, first: number(2)?, size: number(3)? };
        let format = u32::from_le_bytes(*format);
        let sum = rest.get(32..36).ok_or(None)?;
        if checksum(head.id, &bytes[..44]).to_le_bytes() != sum {
            return Err(None);
        }
        if format == FORMAT { Ok(head) } else { Err(Some(format)) }
    }
}

/// Makes a file of zeros for the next segment.
pub(super) fn prepare_segment(medium: &dyn StorageMedium, dir: &Path, size: u64) -> io::Result<File> {
    let path = dir.join(NEXT);
    if path.try_exists()? {
        medium.remove(&path)?;
    }
    let file = medium.create(&path)?;
    let zeros = vec![0; FILL.min(size as usize)];
    let mut offset = 0;
    while offset < size {
        let part = (size - offset).min(FILL as u64);
        medium.write(&file, &zeros[..part as usize], offset)?;
        offset += part;
    }
    medium.sync(&file)?;
    medium.reached_point("segment.filled");
    Ok(file)
}

/// Turns a prepared file into a segment.
pub(super) fn adopt_segment(medium: &dyn StorageMedium, dir: &Path, file: &File, head: SegmentHead) -> io::Result<()> {
    medium.write(file, &head.encode(), 0)?;
    medium.sync(file)?;
    medium.reached_point("segment.headed");
    medium.rename(&dir.join(NEXT), &segment_path(dir, head.number))?;
    medium.reached_point("segment.renamed");
    medium.sync_dir(dir)?;
    medium.reached_point("segment.listed");
    Ok(())
}

/// The result of scanning a segment.
pub(super) struct SegmentScan {
    /// Behind the last whole frame.
    pub end: u64,
    pub ended: SegmentEnd,
}

/// The end of a segment's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentEnd {
    /// With the mark that another segment follows.
    Sealed,
    /// With nothing but zeros behind.
    Open,
    /// With a write that was cut short.
    Torn,
}

/// A segment as it is on disk.
pub(super) struct LogSegment {
    pub path: PathBuf,
    pub head: SegmentHead,
    bytes: Vec<u8>,
}

impl LogSegment {
    pub fn read(path: &Path) -> Result<Self, OpenError> {
        let bytes = fs::read(path).map_err(OpenError::with_path(path))?;
        let damaged = |offset: u64, what| OpenError::Damaged { file: path.into(), offset, what };
        let head = match SegmentHead::decode(&bytes) {
            Ok(head) => head,
            Err(Some(found)) => return Err(OpenError::Format { file: path.into(), found }),
            Err(None) => return Err(damaged(0, "its head")),
        };
        if bytes.len() as u64 != head.size || head.size < START {
            return Err(damaged(bytes.len() as u64, "its length is not what it was made with"));
        }
        Ok(Self { path: path.into(), head, bytes })
    }

    /// Gives every whole frame to `apply`, with its head and where it is.
    pub fn scan_frames(
        &self,
        mut apply: impl FnMut(u64, FrameHead, &[u8]) -> Result<(), OpenError>,
    ) -> Result<SegmentScan, OpenError> {
        let mut offset = START as usize;
        loop {
            let Some(head) = self.whole(offset)? else {
                let ended = if self.bytes[offset..].iter().all(|byte| *byte == 0) {
                    SegmentEnd::Open
                } else {
                    SegmentEnd::Torn
                };
                return Ok(SegmentScan { end: offset as u64, ended });
            };
            let payload = &self.bytes[offset + HEAD_BYTES..offset + HEAD_BYTES + head.payload];
            apply(offset as u64, head, payload)?;
            offset += head.len();
            if frame::decode_ops(payload).any(|op| op == Some(FrameOp::Sealed)) {
                return Ok(SegmentScan { end: offset as u64, ended: SegmentEnd::Sealed });
            }
        }
    }

    /// Returns whether it has no frame.
    pub fn is_unused(&self) -> Result<bool, OpenError> {
        let scanned = self.scan_frames(|_, _, _| Ok(()))?;
        Ok(scanned.end == START && scanned.ended == SegmentEnd::Open)
    }

    /// The head of the frame at `offset` if all of it is there; `None` if the log ends before it.
    fn whole(&self, offset: usize) -> Result<Option<FrameHead>, OpenError> {
        let rest = &self.bytes[offset..];
        let Some(head) = FrameHead::decode(self.head.id, rest) else {
            let (start, behind) = rest.split_at(HEAD_BYTES.min(rest.len()));
            let unwritten = has_zero_sector(start, offset) || behind.iter().all(|byte| *byte == 0);
            return self.unless_damaged(offset, unwritten, "the head of a write");
        };
        if rest.len() < head.len() {
            return Err(self.damage_at(offset, "a write that is longer than its file"));
        }
        let payload = &rest[HEAD_BYTES..HEAD_BYTES + head.payload];
        if head.matches_payload(self.head.id, payload) {
            return Ok(Some(head));
        }
        let without_end = rest[head.len() - 1] == 0;
        let unwritten = without_end || head.has_no_zero_sectors() && has_zero_sector(payload, offset + HEAD_BYTES);
        self.unless_damaged(offset, unwritten, "the contents of a write")
    }

    /// A mismatch at `offset` is a torn write, not damage, if it was partly unwritten and nothing durable follows.
    fn unless_damaged(
        &self,
        offset: usize,
        unwritten: bool,
        what: &'static str,
    ) -> Result<Option<FrameHead>, OpenError> {
        if !unwritten || self.durable_beyond(offset) {
            return Err(self.damage_at(offset, what));
        }
        Ok(None)
    }

    /// Returns whether a later frame records this offset as durable.
    fn durable_beyond(&self, offset: usize) -> bool {
        let later = (offset.next_multiple_of(8)..self.bytes.len().saturating_sub(HEAD_BYTES)).step_by(8);
        let mut heads = later.filter(|at| self.bytes[*at] != 0).filter_map(|at| {
            let head = FrameHead::decode(self.head.id, &self.bytes[at..])?;
            Some((at, head))
        });
        heads.any(|(at, head)| head.durable > offset as u64 && head.durable <= at as u64)
    }

    pub fn damage_at(&self, offset: usize, what: &'static str) -> OpenError {
        OpenError::Damaged { file: self.path.clone(), offset: offset as u64, what }
    }

    /// Puts zeros where the log does not reach, so that new frames are followed by zeros again.
    pub fn zero_tail(&self, medium: &dyn StorageMedium, end: u64) -> Result<File, OpenError> {
        let file =
            OpenOptions::new().read(true).write(true).open(&self.path).map_err(OpenError::with_path(&self.path))?;
        let tail = &self.bytes[end as usize..];
        if let Some(last) = tail.iter().rposition(|byte| *byte != 0) {
            let cleaned = medium.write(&file, &vec![0; last + 1], end).and_then(|()| medium.sync(&file));
            cleaned.map_err(OpenError::with_path(&self.path))?;
        }
        Ok(file)
    }
}
