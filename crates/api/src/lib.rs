//! The Kubernetes API as data: tables of types and resources, and everything that is derived from them.
//!
//! Decoding, defaults, patches, selectors, validation, conversion, discovery, OpenAPI and table output read the tables in
//! `schema/`; there is no Rust type per kind. Objects are [`serde_json::Value`]s. No IO, no async.

pub mod apply;
pub mod cached_document;
pub mod convert;
pub mod decode;
pub mod defaults;
pub mod disabled_fields;
pub mod discovery;
pub mod document_cache;
pub mod field_error;
pub mod json_encoder;
pub mod meta;
pub mod openapi;
pub mod patch;
pub mod protobuf;
pub mod qos;
pub mod quota;
mod render;
pub mod request_body;
pub mod resource_list;
pub mod schema;
pub mod selector;
pub mod status;
pub mod table;
pub mod validate;
pub mod yaml;

use formats::field_path;
pub use formats::{ParseError, budget, cron, duration, json, quantity, time};

/// An object or a part of one.
pub type Value = serde_json::Value;
/// The fields of an object.
pub type Map = serde_json::Map<String, serde_json::Value>;

/// The version of Kubernetes whose API this is.
pub const KUBERNETES_VERSION: &str = "v1.36.4";
