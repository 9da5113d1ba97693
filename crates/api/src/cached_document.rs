//! Encoded discovery and OpenAPI documents with the hash for their `ETag`.

use std::fmt::Write as _;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::{Value, json_encoder};

/// An encoded document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedDocument {
    /// The encoded bytes.
    pub bytes: Bytes,
    /// The hash in upper-case hexadecimal, quoted in `ETag` and named by `?hash=`.
    pub hash: String,
}

impl CachedDocument {
    /// Hashes and wraps bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let hash = Sha256::digest(&bytes).iter().fold(String::new(), |mut out, byte| {
            // Writing to a String cannot fail.
            let _ = write!(out, "{byte:02X}");
            out
        });
        Self { bytes, hash }
    }

    /// Encodes a JSON document: objects with a kind as upstream's serializer does, others with sorted keys.
    pub fn from_json(value: &Value) -> Self {
        if value.get("kind").is_some() {
            return Self::new([&*json_encoder::encode_object(value), b"\n"].concat());
        }
        // Encoding a value with string keys cannot fail.
        Self::new(serde_json::to_vec(value).unwrap_or_default())
    }

    /// Wraps bytes with the hash of their source.
    pub fn with_hash(bytes: impl Into<Bytes>, hash: String) -> Self {
        Self { bytes: bytes.into(), hash }
    }

    /// The `ETag` header.
    pub fn etag(&self) -> String {
        format!("\"{}\"", self.hash)
    }

    /// Whether an `If-None-Match` header matches the document.
    pub fn matches_etag(&self, if_none_match: &str) -> bool {
        let tags = if_none_match.split(',').map(|tag| tag.trim().trim_start_matches("W/"));
        tags.map(|tag| tag.trim_matches('"')).any(|tag| tag == "*" || tag == self.hash)
    }
}
