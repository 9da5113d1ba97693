//! The formats in which Kubernetes says things, as Go and upstream's libraries read and write them: JSON, YAML, quantities,
//! durations, times, patterns, addresses, and the formats that schemas name. What cannot be read is refused in their words.
//!
//! Nothing here knows a kind of object, and everything that a client can send is bounded in depth, size and memory
//! ([`budget`]).

pub mod budget;
pub mod duration;
pub mod json;
pub mod named;
pub mod net;
pub mod path;
pub mod pattern;
pub mod quantity;
pub mod time;
pub mod url;
pub mod yaml;

/// Any JSON.
pub type Value = serde_json::Value;
/// The entries of a JSON object.
pub type Map = serde_json::Map<String, serde_json::Value>;
