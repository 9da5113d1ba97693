//! JSON patch, merge patch and strategic merge patch.

mod element_order;
mod json_patch_document;
mod json_patch_operation;
mod strategic_merge;

use crate::{Value, budget::Budget, json, schema::TypeId};

/// The patch types, by content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `application/json-patch+json`
    Json,
    /// `application/merge-patch+json`
    Merge,
    /// `application/strategic-merge-patch+json`
    Strategic,
}

/// A patch that cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The patch is malformed.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not apply to the object.
    #[error("{0}")]
    Unprocessable(String),
    /// An operation of a JSON patch does not apply. The cause is reported to mutating webhooks' callers, not to
    /// clients.
    #[error("the server rejected our request due to an error in our request")]
    Inapplicable {
        /// The cause.
        why: String,
        /// Whether a `test` operation failed.
        test: bool,
    },
    /// The patch contradicts itself, which upstream reports as an internal error.
    #[error("{0}")]
    Failed(String),
}

impl Kind {
    /// Returns the patch type of a content type.
    pub fn of(content_type: &str) -> Option<Self> {
        match content_type {
            "application/json-patch+json" => Some(Kind::Json),
            "application/merge-patch+json" => Some(Kind::Merge),
            "application/strategic-merge-patch+json" => Some(Kind::Strategic),
            _ => None,
        }
    }

    /// Applies the patch to an object of type `ty`.
    pub fn apply(self, ty: TypeId, object: &Value, patch: &Value) -> Result<Value, Error> {
        match self {
            Kind::Json => json_patch_document::apply_json_patch(object, patch),
            Kind::Merge if !patch.is_object() => {
                Err(Error::Malformed("error decoding patch: a merge patch must be an object".to_owned()))
            }
            Kind::Merge => {
                let mut out = object.clone();
                json_patch::merge(&mut out, patch);
                Ok(out)
            }
            Kind::Strategic => strategic_merge::apply_strategic_merge_patch(ty, object, patch),
        }
    }
}

/// Parses a patch. Its budget is a quarter of an object's, since applying copies it.
pub fn parse_patch(bytes: &[u8]) -> Result<Value, json::Error> {
    json::parse_within(bytes, &mut Budget::quarter())
}
