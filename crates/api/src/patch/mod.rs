//! Patches: JSON patch, merge patch and strategic merge patch, each a function from object and patch to object.

mod operations;
mod order;
mod step;
mod strategic;

use crate::{Value, budget::Budget, json, schema::TypeId};

/// The kinds of patch, by content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `application/json-patch+json`
    Json,
    /// `application/merge-patch+json`
    Merge,
    /// `application/strategic-merge-patch+json`
    Strategic,
}

/// Why a patch cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The patch cannot be read.
    #[error("{0}")]
    Malformed(String),
    /// The patch can be read but does not fit the object.
    #[error("{0}")]
    Unprocessable(String),
    /// An operation of a JSON patch does not apply. Clients are not told why, those who patch on their behalf are.
    #[error("the server rejected our request due to an error in our request")]
    Inapplicable {
        /// What the operation lacks.
        why: String,
        /// Whether it is a test that failed.
        test: bool,
    },
    /// The patch contradicts itself, which upstream takes for a fault of the server.
    #[error("{0}")]
    Failed(String),
}

impl Kind {
    /// The kind that a content type names.
    pub fn of(content_type: &str) -> Option<Self> {
        match content_type {
            "application/json-patch+json" => Some(Kind::Json),
            "application/merge-patch+json" => Some(Kind::Merge),
            "application/strategic-merge-patch+json" => Some(Kind::Strategic),
            _ => None,
        }
    }

    /// The object of type `ty` after the patch.
    pub fn apply(self, ty: TypeId, object: &Value, patch: &Value) -> Result<Value, Error> {
        match self {
            Kind::Json => operations::apply(object, patch),
            Kind::Merge if !patch.is_object() => {
                Err(Error::Malformed("error decoding patch: a merge patch must be an object".to_owned()))
            }
            Kind::Merge => {
                let mut out = object.clone();
                json_patch::merge(&mut out, patch);
                Ok(out)
            }
            Kind::Strategic => strategic::apply(ty, object, patch),
        }
    }
}

/// Reads a patch. It may take a quarter of the memory of an object, as it is copied while it is applied.
pub fn parse(bytes: &[u8]) -> Result<Value, json::Error> {
    json::parse_within(bytes, &mut Budget::quarter())
}
