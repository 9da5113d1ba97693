//! Label and field selectors, parsed from queries or objects and matched against objects.

mod field;
mod label;
mod parse;

pub use field::{FieldSelector, comparisons};
pub use label::{LabelSelector, text};

/// A malformed selector, with upstream's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);
