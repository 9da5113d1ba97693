//! Where Kubernetes uses CEL: which variables an expression has, what it must evaluate to, what it may cost, and the words in
//! which users are told what is wrong. The server and the control loops use it; no IO, no async.
//!
//! - [`compile`](compile::compile): an expression of a known result, or upstream's [`Fault`].
//! - [`admission`]: policies that validate and mutate, match conditions, and the faults of those that are written.
//! - [`authentication`] and [`authorization`]: expressions of the files that configure them.
//! - [`type_check`]: what may be wrong with a policy, given the types of what it is about.
//! - [`types`]: types of the API as types of CEL, read from the tables.
//! - [`json`]: values as documents.

pub mod admission;
pub mod authentication;
pub mod authorization;
pub mod compile;
pub mod json;
pub mod record;
pub mod type_check;
pub mod types;

pub use compile::{Compiled, Fault, FaultKind};
