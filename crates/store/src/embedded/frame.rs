//! The unit of both kinds of file: a frame, which is a checked head and a checked list of operations.
//!
//! A frame is written and made durable as one, so a change is in the log with all that were committed with it, or not
//! at all. Checksums are seeded with the store's identity: bytes of another store are never taken for ours.

use super::entry::LogEntry;
use crate::Revision;

const MAGIC: u32 = u32::from_le_bytes(*b"FRY1");
/// The length of a frame's head.
pub(super) const HEAD_BYTES: usize = 40;
/// The smallest unit that a disk writes whole.
pub(super) const SECTOR_BYTES: usize = 512;
/// Frames begin at multiples of this.
const ALIGN: usize = 8;
/// Fills the gap before the next frame, at least one byte: where there is zero instead, the end was not written.
const FILL: u8 = 0x5a;
/// The frame has a sector of zeros by itself: zeros in it do not mean that it was not written whole.
const HAS_ZEROS: u32 = 1;

const COMPACT: u8 = 2;
const RESERVE: u8 = 3;
const SEALED: u8 = 4;
const CLOSED: u8 = 5;
const RECORD: u8 = 6;
const END: u8 = 7;

/// One operation of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FrameOp<'a> {
    /// The next revision.
    Change(LogEntry<'a>),
    /// The history up to here is forgotten. Beyond the newest revision: the revision jumps there.
    Compact(Revision),
    /// Revisions up to here may have been handed out without being durable.
    Reserve(Revision),
    /// The segment ends here and another follows.
    Sealed,
    /// The store was closed in order.
    Closed,
    /// A current record, in a checkpoint.
    Record(Revision, LogEntry<'a>),
    /// The checkpoint is complete and has this many records.
    End(u64),
}

/// Builds a frame.
#[derive(Default)]
pub(super) struct FrameBuilder {
    bytes: Vec<u8>,
}

impl FrameBuilder {
    /// Starts a new frame, with room for the head.
    pub fn clear(&mut self) {
        // A rare large frame does not keep its memory.
        if self.bytes.capacity() > 8 << 20 {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.bytes.resize(HEAD_BYTES, 0);
    }

    pub fn push_op(&mut self, op: &FrameOp<'_>) {
        if self.bytes.is_empty() {
            self.clear();
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        match op {
            FrameOp::Change(entry) => entry.encode_into(&mut self.bytes),
            FrameOp::Compact(revision) => self.push_number(COMPACT, *revision),
            FrameOp::Reserve(revision) => self.push_number(RESERVE, *revision),
            FrameOp::Sealed => self.bytes.push(SEALED),
            FrameOp::Closed => self.bytes.push(CLOSED),
            FrameOp::Record(revision, entry) => {
                self.push_number(RECORD, *revision);
                entry.encode_into(&mut self.bytes);
            }
            FrameOp::End(count) => self.push_number(END, *count),
        }
        let len = (self.bytes.len() - start - 4) as u32;
        self.bytes[start..start + 4].copy_from_slice(&len.to_le_bytes());
    }

    fn push_number(&mut self, kind: u8, number: u64) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    /// The length of the frame so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Finishes the frame for its place in a file and returns its bytes.
    pub fn finish(&mut self, id: u64, first: Revision, offset: u64, durable: u64) -> &[u8] {
        let payload = &self.bytes[HEAD_BYTES..];
        let flags = if has_zero_sector(payload, offset as usize + HEAD_BYTES) { HAS_ZEROS } else { 0 };
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.extend_from_slice(&MAGIC.to_le_bytes());
        head.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        head.extend_from_slice(&first.to_le_bytes());
        head.extend_from_slice(&durable.to_le_bytes());
        head.extend_from_slice(&flags.to_le_bytes());
        head.extend_from_slice(&checksum(id, payload).to_le_bytes());
        head.extend_from_slice(&[FILL; 4]);
        head.extend_from_slice(&checksum(id, &head).to_le_bytes());
        self.bytes[..HEAD_BYTES].copy_from_slice(&head);
        self.bytes.resize((self.bytes.len() + 1).next_multiple_of(ALIGN), FILL);
        &self.bytes
    }
}

/// The checked head of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameHead {
    pub payload: usize,
    /// The revision of its first change, if it has any.
    pub first: Revision,
    /// The durable length of the file when this frame was written.
    pub durable: u64,
    flags: u32,
    checksum: u32,
}

impl FrameHead {
    /// `None` if these bytes are no head.
    pub fn decode(id: u64, bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEAD_BYTES] = bytes.first_chunk()?;
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if u32_at(0) != MAGIC || u32_at(HEAD_BYTES - 4) != checksum(id, &bytes[..HEAD_BYTES - 4]) {
            return None;
        }
        Some(Self {
            payload: u32_at(4) as usize,
            first: u64_at(8),
            durable: u64_at(16),
            flags: u32_at(24),
            checksum: u32_at(28),
        })
    }

    /// The length of the frame in its file.
    pub fn len(&self) -> usize {
        (HEAD_BYTES + self.payload + 1).next_multiple_of(ALIGN)
    }

    pub fn matches_payload(&self, id: u64, payload: &[u8]) -> bool {
        self.checksum == checksum(id, payload)
    }

    /// Whether the payload has no zero sector of its own, so that one means a torn write.
    pub fn has_no_zero_sectors(&self) -> bool {
        self.flags & HAS_ZEROS == 0
    }
}

/// The operations of a payload whose checksum matches. `None`: these bytes are no operations.
pub(super) fn decode_ops(mut payload: &[u8]) -> impl Iterator<Item = Option<FrameOp<'_>>> {
    std::iter::from_fn(move || {
        if payload.is_empty() {
            return None;
        }
        let body = split_op(&mut payload);
        if body.is_none() {
            payload = &[];
        }
        Some(body.and_then(decode_op))
    })
}

fn split_op<'a>(payload: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = payload.split_first_chunk::<4>()?;
    let (body, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *payload = rest;
    Some(body)
}

fn decode_op(body: &[u8]) -> Option<FrameOp<'_>> {
    let number = |bytes: &[u8]| Some(u64::from_le_bytes(*bytes.get(1..)?.first_chunk()?));
    match *body.first()? {
        COMPACT => Some(FrameOp::Compact(number(body)?)),
        RESERVE => Some(FrameOp::Reserve(number(body)?)),
        SEALED => Some(FrameOp::Sealed),
        CLOSED => Some(FrameOp::Closed),
        RECORD => Some(FrameOp::Record(number(body)?, LogEntry::decode(body.get(9..)?)?)),
        END => Some(FrameOp::End(number(body)?)),
        _ => Some(FrameOp::Change(LogEntry::decode(body)?)),
    }
}

/// Returns whether these bytes, at `offset` of a file, contain a sector, or part of one at either end, of zeros.
pub(super) fn has_zero_sector(bytes: &[u8], offset: usize) -> bool {
    let first = (SECTOR_BYTES - offset % SECTOR_BYTES).min(bytes.len());
    let (head, rest) = bytes.split_at(first);
    let zero = |part: &[u8]| !part.is_empty() && part.iter().all(|byte| *byte == 0);
    zero(head) || rest.chunks(SECTOR_BYTES).any(zero)
}

pub(super) fn checksum(id: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip_and_detect_every_flipped_bit() {
        let entry = |value| LogEntry { previous: 1, written: 2, expires: 3, key: "/a", value };
        let all = [
            FrameOp::Change(entry(Some(b"document"))),
            FrameOp::Change(entry(None)),
            FrameOp::Compact(4),
            FrameOp::Reserve(5),
            FrameOp::Sealed,
            FrameOp::Closed,
            FrameOp::Record(6, entry(Some(b""))),
            FrameOp::End(7),
        ];
        let mut builder = FrameBuilder::default();
        builder.clear();
        all.iter().for_each(|op| builder.push_op(op));
        let bytes = builder.finish(9, 10, 512, 11).to_vec();
        let whole = |bytes: &[u8]| {
            let head = FrameHead::decode(9, bytes)?;
            let payload = bytes.get(HEAD_BYTES..HEAD_BYTES + head.payload)?;
            head.matches_payload(9, payload).then_some((head, payload.to_vec()))
        };
        let (head, payload) = whole(&bytes).unwrap();
        assert_eq!((head.first, head.durable, head.len(), head.has_no_zero_sectors()), (10, 11, bytes.len(), true));
        assert!(decode_ops(&payload).map(Option::unwrap).eq(all));
        assert!(FrameHead::decode(8, &bytes).is_none(), "another store's");
        for bit in 0..(HEAD_BYTES + head.payload) * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(whole(&flipped).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn zero_sectors_are_found_at_sector_boundaries() {
        let mut bytes = vec![1; 2000];
        bytes[600..1100].fill(0);
        assert!(!has_zero_sector(&bytes, 512));
        bytes[512..1100].fill(0);
        assert!(has_zero_sector(&bytes, 512) && !has_zero_sector(&bytes, 512 + 256));
        assert!(has_zero_sector(&[0; 3], 5) && !has_zero_sector(&[], 5));
    }
}
