//! Patches: JSON patch, merge patch and strategic merge patch, each a function from object and patch to object.

mod strategic;

use crate::{Value, schema::TypeId};

/// How many operations a JSON patch may have.
const MAX_OPERATIONS: usize = 10_000;

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
            Kind::Json => json(object, patch),
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

fn json(object: &Value, patch: &Value) -> Result<Value, Error> {
    let operations: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| Error::Malformed(format!("error decoding patch: {error}")))?;
    if operations.0.len() > MAX_OPERATIONS {
        let message = format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}", operations.0.len());
        return Err(Error::Malformed(message));
    }
    let mut out = object.clone();
    json_patch::patch(&mut out, &operations).map_err(|_| {
        Error::Unprocessable("the server rejected our request due to an error in our request".to_owned())
    })?;
    Ok(out)
}
