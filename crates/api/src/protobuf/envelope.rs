//! The protobuf envelope (`runtime.Unknown`): four magic bytes, then a message with `apiVersion`, `kind` and the
//! object.

use formats::wire::{self, WireReader, WireValue};

use super::ProtobufError;

/// The magic prefix.
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// The content of an envelope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownObject<'a> {
    /// The object's `apiVersion`.
    pub api_version: String,
    /// The object's `kind`.
    pub kind: String,
    /// The object's message.
    pub raw: &'a [u8],
    /// The content encoding; empty if uncompressed.
    pub encoding: String,
    /// The content type; empty for protobuf.
    pub content_type: String,
}

/// Wraps a message in an envelope.
pub fn seal_envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let (mut out, tail) = envelope_around(api_version, kind, raw.len());
    out.reserve_exact(raw.len() + tail.len());
    out.extend_from_slice(raw);
    out.extend_from_slice(&tail);
    out
}

/// Returns the bytes before and after a message of a given length.
pub fn envelope_around(api_version: &str, kind: &str, length: usize) -> (Vec<u8>, Vec<u8>) {
    let mut head = Vec::with_capacity(api_version.len() + kind.len() + 32);
    head.extend_from_slice(MAGIC);
    wire::put_message(&mut head, 1, |out| {
        wire::put_bytes(out, 1, api_version.as_bytes());
        wire::put_bytes(out, 2, kind.as_bytes());
    });
    wire::put_length(&mut head, 2, length);
    let mut tail = Vec::new();
    wire::put_bytes(&mut tail, 3, b"");
    wire::put_bytes(&mut tail, 4, b"");
    (head, tail)
}

/// Opens an envelope.
pub fn open_envelope(bytes: &[u8]) -> Result<UnknownObject<'_>, ProtobufError> {
    let mut fields = match bytes.strip_prefix(MAGIC) {
        None if bytes.is_empty() => return Err(ProtobufError::Empty),
        None => return Err(ProtobufError::Prefix),
        Some(b"") => return Err(ProtobufError::EmptyBody),
        Some(rest) => WireReader::new(rest),
    };
    let mut unknown = UnknownObject::default();
    while let Some((number, value)) = fields.next_field().map_err(|error| error.with_type("Unknown"))? {
        match (number, value) {
            (1, WireValue::Bytes(bytes)) => read_type_meta(bytes, &mut unknown)?,
            (2, WireValue::Bytes(bytes)) => unknown.raw = bytes,
            (3, WireValue::Bytes(bytes)) => unknown.encoding = decode_text(bytes),
            (4, WireValue::Bytes(bytes)) => unknown.content_type = decode_text(bytes),
            (1..=4, value) => {
                let field = ["TypeMeta", "Raw", "ContentEncoding", "ContentType"][number as usize - 1].to_owned();
                return Err(ProtobufError::WireType { wire: value.wire_type(), field });
            }
            _ => {}
        }
    }
    Ok(unknown)
}

fn read_type_meta(bytes: &[u8], unknown: &mut UnknownObject<'_>) -> Result<(), ProtobufError> {
    let mut fields = WireReader::new(bytes);
    while let Some((number, value)) = fields.next_field().map_err(|error| error.with_type("TypeMeta"))? {
        match (number, value) {
            (1, WireValue::Bytes(bytes)) => unknown.api_version = decode_text(bytes),
            (2, WireValue::Bytes(bytes)) => unknown.kind = decode_text(bytes),
            (1 | 2, value) => {
                let field = ["APIVersion", "Kind"][number as usize - 1].to_owned();
                return Err(ProtobufError::WireType { wire: value.wire_type(), field });
            }
            _ => {}
        }
    }
    Ok(())
}

fn decode_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
