//! Custom resources: what a definition makes of the rows that the server adds to its table at run time. No IO, no async.
//!
//! A [`Definition`] is read once; each of its [`Version`]s is an [`api::schema::Custom`], so that decoding, defaults, validation,
//! apply and tables work on custom resources as on built-in ones. The schema of a version is parsed when it is first used
//! ([`schema`]), from the stored document, which is not copied.

mod columns;
mod correlate;
mod default;
mod definition;
mod jsonpath;
pub mod openapi;
mod prune;
pub mod rules;
pub mod schema;
mod validate;

pub use definition::{Conversion, Definition, Scale, Version, check, version_order};
