//! Label and field selectors: parsed once from a query, then matched against objects.

mod field;
mod label;
mod parse;

pub use field::{FieldSelector, comparisons};
pub use label::{LabelSelector, text};

/// A selector that cannot be read; the text says why, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);
