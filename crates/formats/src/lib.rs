//! The formats in which Kubernetes says things, as Go and upstream's libraries read and write them: JSON, YAML, the wire format
//! of protobuf, quantities, durations, times, schedules, patterns, URLs, addresses, names, and the formats that schemas name.
//! What cannot be read is refused in their words.
//!
//! Nothing here knows a kind of object, and everything that a client can send is bounded in depth, size and memory
//! ([`budget`]).

pub mod budget;
pub mod bytes;
pub mod cron;
pub mod diff;
pub mod duration;
pub mod json;
pub mod named;
pub mod names;
pub mod net;
pub mod path;
pub mod pattern;
pub mod quantity;
pub mod time;
pub mod url;
pub mod wire;
pub mod yaml;

/// Any JSON.
pub type Value = serde_json::Value;
/// The entries of a JSON object.
pub type Map = serde_json::Map<String, serde_json::Value>;
