//! HTTPS serving of components beside the API server: the kubelet, the controller manager, the scheduler.
//!
//! Authentication and authorization are delegated to the API server ([`DelegatedAuth`]); [`serve_https`] accepts
//! connections; [`ComponentEndpoints`] are `/healthz`, `/livez`, `/readyz`, `/metrics` and `/configz`.
//!
//! Invariant: knows no crate but the shared cache and transport.

mod delegated_auth;
mod endpoints;
mod https_server;

pub use delegated_auth::{AccessAttributes, DelegatedAuth, DelegatedAuthConfig, TokenRejected, UserInfo};
pub use endpoints::{ComponentEndpoints, HealthCheck, UnhealthyError};
pub use https_server::{HttpsHandler, ResponseBody, body_of, serve_https};
