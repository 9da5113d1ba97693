//! Pieces of HTTP and TLS connections that the API server, the kubelet and kubectl share: query parameters, upgraded connections,
//! SPDY, and server certificates that are not verified.
//!
//! Invariant: knows no other crate and nothing of Kubernetes.

pub mod query;
mod server_certificate;
pub mod spdy;
mod upgrade;

pub use server_certificate::without_verification;
pub use upgrade::{is_upgrade_request, join_upgrades};
