//! PEM blocks, as far as validation looks into them.

use base64::{Engine, prelude::BASE64_STANDARD};

/// One block.
pub(super) struct Block {
    /// What it says it is, for example `CERTIFICATE`.
    pub label: String,
    /// Whether there are headers before the data.
    pub has_headers: bool,
    /// The data.
    pub bytes: Vec<u8>,
}

/// The blocks of a text, whatever stands between them.
pub(super) fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().map(str::trim_end);
    while let Some(line) = lines.next() {
        let Some(label) = line.strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----")) else {
            continue;
        };
        let end = format!("-----END {label}-----");
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != end).collect();
        let (headers, data): (Vec<&str>, Vec<&str>) = body.into_iter().partition(|line| line.contains(':'));
        if let Ok(bytes) = BASE64_STANDARD.decode(data.concat()) {
            blocks.push(Block { label: label.to_owned(), has_headers: !headers.is_empty(), bytes });
        }
    }
    blocks
}

/// Whether the bytes are one DER sequence and nothing else.
pub(super) fn is_sequence(bytes: &[u8]) -> bool {
    let (Some(0x30), Some(first)) = (bytes.first(), bytes.get(1)) else { return false };
    let (length, header) = match first {
        0..=0x7f => (usize::from(*first), 2),
        0x81..=0x84 => {
            let count = usize::from(first & 0x0f);
            let Some(digits) = bytes.get(2..2 + count) else { return false };
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), 2 + count)
        }
        _ => return false,
    };
    header + length == bytes.len()
}
