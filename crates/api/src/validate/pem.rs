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
