//! The types and traits that the stages of the API server share: request info and attributes, users, content negotiation,
//! stored documents, warnings, indexes over the watch cache, the outbound HTTP client and metric primitives.
//!
//! Invariant: this crate knows no stage. Stages meet in the traits of [`storage`], which the registry implements.

pub mod attributes;
pub mod audit;
pub mod backend;
pub mod body;
pub mod bootstrap_table;
pub mod cache_index;
pub mod catalog;
pub mod clock;
pub mod custom_resources;
pub mod deferred;
pub mod document;
pub mod http_client;
pub mod initializers;
pub mod loopback;
pub mod metrics;
pub mod names;
pub mod negotiation;
pub mod object_key;
pub mod request;
pub mod resource_config;
pub mod selectors;
pub mod services;
pub mod storage;
pub mod user;
pub mod warnings;
pub mod webhook;

pub use body::{Body, BodyError};
pub use transport::query;
pub use user::{Caller, User};

/// Response extension: the response was proxied from an aggregated API server.
#[derive(Clone, Copy, Debug)]
pub struct ProxiedResponse;
