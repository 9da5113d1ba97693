//! The unit of both kinds of file: a frame, which is a checked head and a checked list of operations.
//!
//! A frame is written and made durable as one, so a change is in the log with all that were committed with it, or not
//! at all. Checksums are seeded with the store's identity: bytes of another store are never taken for ours.

use super::entry::Entry;
use crate::Revision;

const MAGIC: u32 = u32::from_le_bytes(*b"FRY1");
/// How long the head of a frame is.
pub(super) const HEAD: usize = 40;
/// The smallest unit that a disk writes whole.
pub(super) const SECTOR: usize = 512;
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
pub(super) enum Op<'a> {
    /// The next revision.
    Change(Entry<'a>),
    /// The history up to here is forgotten. Beyond the newest revision: the revision jumps there.
    Compact(Revision),
    /// Revisions up to here may have been handed out without being durable.
    Reserve(Revision),
    /// The segment ends here and another follows.
    Sealed,
    /// The store was closed in order.
    Closed,
    /// A current record, in a checkpoint.
    Record(Revision, Entry<'a>),
    /// The checkpoint is complete and has this many records.
    End(u64),
}

/// Builds a frame.
#[derive(Default)]
pub(super) struct Builder {
    bytes: Vec<u8>,
}

impl Builder {
    /// Forgets what was built and begins again, with room for the head.
    pub fn clear(&mut self) {
        // A rare large frame does not keep its memory.
        if self.bytes.capacity() > 8 << 20 {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.bytes.resize(HEAD, 0);
    }

    pub fn push(&mut self, op: &Op<'_>) {
        if self.bytes.is_empty() {
            self.clear();
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        match op {
            Op::Change(entry) => entry.append(&mut self.bytes),
            Op::Compact(revision) => self.number(COMPACT, *revision),
            Op::Reserve(revision) => self.number(RESERVE, *revision),
            Op::Sealed => self.bytes.push(SEALED),
            Op::Closed => self.bytes.push(CLOSED),
            Op::Record(revision, entry) => {
                self.number(RECORD, *revision);
                entry.append(&mut self.bytes);
            }
            Op::End(count) => self.number(END, *count),
        }
        let len = (self.bytes.len() - start - 4) as u32;
        self.bytes[start..start + 4].copy_from_slice(&len.to_le_bytes());
    }

    fn number(&mut self, kind: u8, number: u64) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    /// How long the frame is so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Finishes the frame for its place in a file and returns its bytes.
    pub fn finish(&mut self, id: u64, first: Revision, offset: u64, durable: u64) -> &[u8] {
        let payload = &self.bytes[HEAD..];
        let flags = if has_zero_sector(payload, offset as usize + HEAD) { HAS_ZEROS } else { 0 };
        let mut head = Vec::with_capacity(HEAD);
        head.extend_from_slice(&MAGIC.to_le_bytes());
        head.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        head.extend_from_slice(&first.to_le_bytes());
        head.extend_from_slice(&durable.to_le_bytes());
        head.extend_from_slice(&flags.to_le_bytes());
        head.extend_from_slice(&checksum(id, payload).to_le_bytes());
        head.extend_from_slice(&[FILL; 4]);
        head.extend_from_slice(&checksum(id, &head).to_le_bytes());
        self.bytes[..HEAD].copy_from_slice(&head);
        self.bytes.resize((self.bytes.len() + 1).next_multiple_of(ALIGN), FILL);
        &self.bytes
    }
}

/// The checked head of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub payload: usize,
    /// The revision of its first change, if it has any.
    pub first: Revision,
    /// How far the file was durable when this frame was written.
    pub durable: u64,
    flags: u32,
    checksum: u32,
}

impl Head {
    /// `None` if these bytes are no head.
    pub fn decode(id: u64, bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEAD] = bytes.first_chunk()?;
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if u32_at(0) != MAGIC || u32_at(HEAD - 4) != checksum(id, &bytes[..HEAD - 4]) {
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

    /// How much of the file the frame takes.
    pub fn len(&self) -> usize {
        (HEAD + self.payload + 1).next_multiple_of(ALIGN)
    }

    pub fn matches(&self, id: u64, payload: &[u8]) -> bool {
        self.checksum == checksum(id, payload)
    }

    /// Whether zeros in the payload tell that it was not written whole.
    pub fn zeros_tell(&self) -> bool {
        self.flags & HAS_ZEROS == 0
    }
}

/// The operations of a payload whose checksum matches. `None`: these bytes are no operations.
pub(super) fn ops(mut payload: &[u8]) -> impl Iterator<Item = Option<Op<'_>>> {
    std::iter::from_fn(move || {
        if payload.is_empty() {
            return None;
        }
        let body = split(&mut payload);
        if body.is_none() {
            payload = &[];
        }
        Some(body.and_then(decode))
    })
}

fn split<'a>(payload: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = payload.split_first_chunk::<4>()?;
    let (body, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *payload = rest;
    Some(body)
}

fn decode(body: &[u8]) -> Option<Op<'_>> {
    let number = |bytes: &[u8]| Some(u64::from_le_bytes(*bytes.get(1..)?.first_chunk()?));
    match *body.first()? {
        COMPACT => Some(Op::Compact(number(body)?)),
        RESERVE => Some(Op::Reserve(number(body)?)),
        SEALED => Some(Op::Sealed),
        CLOSED => Some(Op::Closed),
        RECORD => Some(Op::Record(number(body)?, Entry::decode(body.get(9..)?)?)),
        END => Some(Op::End(number(body)?)),
        _ => Some(Op::Change(Entry::decode(body)?)),
    }
}

/// Whether the part of any sector that these bytes cover, being at `offset` of a file, is all zeros.
pub(super) fn has_zero_sector(bytes: &[u8], offset: usize) -> bool {
    let first = (SECTOR - offset % SECTOR).min(bytes.len());
    let (head, rest) = bytes.split_at(first);
    let zero = |part: &[u8]| !part.is_empty() && part.iter().all(|byte| *byte == 0);
    zero(head) || rest.chunks(SECTOR).any(zero)
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
    fn a_frame_gives_back_its_operations_and_notices_every_flipped_bit() {
        let entry = |value| Entry { previous: 1, written: 2, expires: 3, key: "/a", value };
        let all = [
            Op::Change(entry(Some(b"document"))),
            Op::Change(entry(None)),
            Op::Compact(4),
            Op::Reserve(5),
            Op::Sealed,
            Op::Closed,
            Op::Record(6, entry(Some(b""))),
            Op::End(7),
        ];
        let mut builder = Builder::default();
        builder.clear();
        all.iter().for_each(|op| builder.push(op));
        let bytes = builder.finish(9, 10, 512, 11).to_vec();
        let whole = |bytes: &[u8]| {
            let head = Head::decode(9, bytes)?;
            let payload = bytes.get(HEAD..HEAD + head.payload)?;
            head.matches(9, payload).then_some((head, payload.to_vec()))
        };
        let (head, payload) = whole(&bytes).unwrap();
        assert_eq!((head.first, head.durable, head.len(), head.zeros_tell()), (10, 11, bytes.len(), true));
        assert!(ops(&payload).map(Option::unwrap).eq(all));
        assert!(Head::decode(8, &bytes).is_none(), "another store's");
        for bit in 0..(HEAD + head.payload) * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(whole(&flipped).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn zero_sectors_are_seen_where_sectors_are() {
        let mut bytes = vec![1; 2000];
        bytes[600..1100].fill(0);
        assert!(!has_zero_sector(&bytes, 512));
        bytes[512..1100].fill(0);
        assert!(has_zero_sector(&bytes, 512) && !has_zero_sector(&bytes, 512 + 256));
        assert!(has_zero_sector(&[0; 3], 5) && !has_zero_sector(&[], 5));
    }
}
