//! The data formats of Kubernetes, parsed and formatted as Go and upstream's libraries do: JSON, YAML, the protobuf
//! wire format, quantities, durations, times, cron schedules, regular expressions, URLs, IP addresses, names, and the
//! formats of OpenAPI schemas. Errors have upstream's messages.
//!
//! This crate knows no API kinds, and bounds all client input in depth, size and memory ([`budget`]).

pub mod budget;
pub mod cron;
pub mod diff;
pub mod duration;
pub mod field_path;
pub mod go_base64;
pub mod go_regexp;
pub mod json;
pub mod names;
pub mod net;
pub mod quantity;
pub mod strfmt;
pub mod time;
pub mod url;
pub mod wire;
pub mod yaml;

/// A JSON value.
pub type Value = serde_json::Value;
/// The entries of a JSON object.
pub type Map = serde_json::Map<String, serde_json::Value>;

/// A parse error with the message of Go or of upstream's library.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);
