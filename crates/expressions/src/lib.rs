//! Where Kubernetes uses CEL: which variables an expression has, what it must evaluate to, what it may cost, and the words in
//! which users are told what is wrong. The server and the control loops use it; no IO, no async.
//!
//! - [`compile`](compile::compile): an expression of a known result, or upstream's [`Fault`].
//! - [`admission`]: policies that validate and mutate, match conditions, and the faults of those that are written.
//! - [`types`]: types of the API as types of CEL, read from the tables.
//! - [`json`]: values as documents.

pub mod admission;
pub mod compile;
pub mod json;
pub mod record;

pub use compile::{Compiled, Fault, FaultKind};
