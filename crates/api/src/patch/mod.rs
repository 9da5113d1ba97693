//! JSON patch, merge patch and strategic merge patch.

mod element_order;
mod json_patch_document;
mod json_patch_operation;
mod strategic_merge;

use crate::{Value, budget::MemoryBudget, json, schema::TypeId};

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

    /// Decodes a patch, with upstream's errors. Its budget is a quarter of an object's, since applying copies it.
    pub fn decode_patch(self, bytes: &[u8]) -> Result<Value, PatchError> {
        let patch = json::parse_within(bytes, &mut MemoryBudget::with_quarter());
        let patch = patch.map_err(|error| self.malformed(&error.to_string()))?;
        self.check_json_type(&patch).map(|()| patch)
    }

    fn malformed(self, error: &str) -> PatchError {
        let prefix = if self == PatchType::Strategic { "" } else { "error decoding patch: " };
        PatchError::Malformed(format!("{prefix}{error}"))
    }

    /// Checks that a JSON patch is a list, and that other patches are objects.
    fn check_json_type(self, patch: &Value) -> Result<(), PatchError> {
        let (wanted, fits) = match self {
            PatchType::Json => ("[]handlers.jsonPatchOp", patch.is_array()),
            PatchType::Merge | PatchType::Strategic => ("map[string]interface {}", patch.is_object()),
        };
        let found = json::value_type_name(patch);
        let mismatch = || self.malformed(&format!("json: cannot unmarshal {found} into Go value of type {wanted}"));
        fits.then_some(()).ok_or_else(mismatch)
    }

    /// Applies the patch to an object of type `ty`.
    pub fn apply_patch(self, ty: TypeId, object: &Value, patch: &Value) -> Result<Value, PatchError> {
        self.check_json_type(patch)?;
        match self {
            PatchType::Json => json_patch_document::apply_json_patch(object, patch),
            PatchType::Merge => {
                let mut out = object.clone();
                json_patch::merge(&mut out, patch);
                Ok(out)
            }
            PatchType::Strategic => strategic_merge::apply_strategic_merge_patch(ty, object, patch),
        }
    }
}

fn missing_merge_key(item: &Value, key: &str) -> PatchError {
    failed(format!("map: {} does not contain declared merge key: {key}", json::go_value(item)))
}

fn failed(message: String) -> PatchError {
    PatchError::Failed(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_patches_have_upstreams_errors() {
        let error = |kind: PatchType, body: &str| kind.decode_patch(body.as_bytes()).unwrap_err().to_string();
        let key = "invalid character 'b' looking for beginning of object key string";
        assert_eq!(error(PatchType::Strategic, "{bad"), key);
        assert_eq!(error(PatchType::Merge, "{bad"), format!("error decoding patch: {key}"));
        assert_eq!(error(PatchType::Json, "{bad"), format!("error decoding patch: {key}"));
        let list = "json: cannot unmarshal array into Go value of type map[string]interface {}";
        assert_eq!(error(PatchType::Strategic, "[]"), list);
    }
}
