//! One change as bytes: a fixed head, the key, the document.

use super::state::LoggedChange;
use crate::Revision;

const TOMBSTONE: u8 = 0;
const DOCUMENT: u8 = 1;

/// The change of one revision.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LogEntry<'a> {
    /// The revision that this one replaced; 0: none.
    pub previous: Revision,
    /// In milliseconds since the Unix epoch.
    pub written: u64,
    /// In milliseconds since the Unix epoch; 0: never.
    pub expires: u64,
    pub key: &'a str,
    /// `None`: the key was deleted.
    pub value: Option<&'a [u8]>,
}

impl<'a> LogEntry<'a> {
    pub fn from_change(change: &'a LoggedChange) -> Self {
        Self {
            previous: change.event.previous.as_ref().map_or(0, |record| record.revision),
            written: change.written,
            expires: change.expires,
            key: &change.event.key,
            value: change.event.value.as_deref(),
        }
    }

    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.push(if self.value.is_some() { DOCUMENT } else { TOMBSTONE });
        for number in [self.previous, self.written, self.expires, self.key.len() as u64] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(self.key.as_bytes());
        out.extend_from_slice(self.value.unwrap_or_default());
    }

    /// `None` if these bytes are no entry.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (previous, rest) = split_number(rest)?;
        let (written, rest) = split_number(rest)?;
        let (expires, rest) = split_number(rest)?;
        let (key_len, rest) = split_number(rest)?;
        let (key, document) = rest.split_at_checked(usize::try_from(key_len).ok()?)?;
        let value = match *kind {
            DOCUMENT => Some(document),
            TOMBSTONE if document.is_empty() => None,
            _ => return None,
        };
        Some(Self { previous, written, expires, key: std::str::from_utf8(key).ok()?, value })
    }
}

fn split_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_entries_are_rejected() {
        for value in [Some(&b"document"[..]), Some(b""), None] {
            let entry = LogEntry { previous: 3, written: 4, expires: u64::MAX, key: "/a/ü", value };
            let mut bytes = Vec::new();
            entry.encode_into(&mut bytes);
            assert_eq!(LogEntry::decode(&bytes), Some(entry));
            let without_document = bytes.len() - value.map_or(0, <[u8]>::len);
            assert_eq!(LogEntry::decode(&bytes[..without_document - 1]), None);
        }
    }
}
