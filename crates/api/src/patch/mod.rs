//! JSON patch, merge patch and strategic merge patch.

mod element_order;
mod json_patch_document;
mod json_patch_operation;
mod strategic_merge;

use crate::{Value, budget::Budget, json, schema::TypeId};

/// The patch types, by content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// `application/json-patch+json`
    Json,
    /// `application/merge-patch+json`
    Merge,
    /// `application/strategic-merge-patch+json`
    Strategic,
}

/// A patch that cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
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

impl PatchType {
    /// Returns the patch type of a content type.
    pub fn from_content_type(content_type: &str) -> Option<Self> {
        match content_type {
            "application/json-patch+json" => Some(PatchType::Json),
            "application/merge-patch+json" => Some(PatchType::Merge),
            "application/strategic-merge-patch+json" => Some(PatchType::Strategic),
            _ => None,
        }
    }

    /// Applies the patch to an object of type `ty`.
    pub fn apply_patch(self, ty: TypeId, object: &Value, patch: &Value) -> Result<Value, PatchError> {
        match self {
            PatchType::Json => json_patch_document::apply_json_patch(object, patch),
            PatchType::Merge if !patch.is_object() => {
                Err(PatchError::Malformed("error decoding patch: a merge patch must be an object".to_owned()))
            }
            PatchType::Merge => {
                let mut out = object.clone();
                json_patch::merge(&mut out, patch);
                Ok(out)
            }
            PatchType::Strategic => strategic_merge::apply_strategic_merge_patch(ty, object, patch),
        }
    }
}

/// Parses a patch. Its budget is a quarter of an object's, since applying copies it.
pub fn parse_patch(bytes: &[u8]) -> Result<Value, json::Error> {
    json::parse_within(bytes, &mut Budget::quarter())
}
