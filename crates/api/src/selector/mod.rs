//! Label and field selectors, parsed from queries or objects and matched against objects.

mod field;
mod label;
mod parse;
mod requirement;

pub use field::{FieldSelector, parse_requirements};
pub use label::{LabelSelector, format_label_selector};

/// A malformed selector, with upstream's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);
