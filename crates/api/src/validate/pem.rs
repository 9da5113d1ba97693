//! Parses PEM blocks for validation.

use base64::{Engine, prelude::BASE64_STANDARD};

/// A PEM block.
pub(super) struct PemBlock {
    /// The label, for example `CERTIFICATE`.
    pub label: String,
    /// Whether it has headers.
    pub has_headers: bool,
    /// The decoded data.
    pub bytes: Vec<u8>,
}

/// Parses the PEM blocks of a text, ignoring other content.
pub(super) fn parse_pem_blocks(text: &str) -> Vec<PemBlock> {
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
            blocks.push(PemBlock { label: label.to_owned(), has_headers: !headers.is_empty(), bytes });
        }
    }
    blocks
}
