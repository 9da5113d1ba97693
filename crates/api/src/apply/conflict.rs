//! Why an apply is refused, and how clients are told.

use serde_json::json;

use super::{
    check::Mismatch,
    element::Element,
    managed::{Entry, Unreadable, path_text},
    view::NoKey,
};
use crate::{Value, decode, status::Status};

/// A field that another manager owns with another value.
#[derive(Clone, Debug, PartialEq)]
pub struct Conflict {
    /// The owner, without the fields.
    pub owner: Entry,
    /// The field.
    pub path: Vec<Element>,
}

/// Why an apply is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another kind or version than that of the path.
    #[error("invalid object type: {0}")]
    Type(String),
    /// A client does not apply who owns what.
    #[error("metadata.managedFields must be nil")]
    ManagedFields,
    /// What is applied does not fit the schema.
    #[error("failed to create typed patch object ({object}): {source}")]
    Patch {
        /// The object.
        object: String,
        /// What does not fit.
        source: Mismatch,
    },
    /// The stored object does not fit the schema.
    #[error("failed to create typed live object ({object}): {source}")]
    Live {
        /// The object.
        object: String,
        /// What does not fit.
        source: Mismatch,
    },
    /// List items that cannot be told apart.
    #[error("failed to merge config: {0}")]
    Merge(#[from] NoKey),
    /// The result is no object of the kind.
    #[error("failed to convert new object to proper version: {0}")]
    Result(#[from] decode::Error),
    /// What is stored about owners cannot be read.
    #[error("failed to decode managed fields: {0}")]
    Stored(#[from] Unreadable),
    /// Others own the fields.
    #[error("{}", message(.0))]
    Conflicts(Vec<Conflict>),
}

impl Error {
    /// What a client is told.
    pub fn status(&self) -> Status {
        let message = self.to_string();
        match self {
            Error::Type(_) | Error::ManagedFields => Status::bad_request(message),
            Error::Conflicts(conflicts) => {
                let causes: Vec<Value> = conflicts.iter().map(cause).collect();
                Status { code: 409, reason: "Conflict", message, details: Some(json!({"causes": causes})), next: None }
            }
            _ => Status { code: 500, reason: "", message, details: None, next: None },
        }
    }
}

fn cause(conflict: &Conflict) -> Value {
    json!({
        "reason": "FieldManagerConflict",
        "message": format!("conflict with {}", owner(&conflict.owner)),
        "field": path_text(&conflict.path),
    })
}

/// `"name" with subresource "status" using apps/v1`; appliers have no version.
fn owner(entry: &Entry) -> String {
    let mut text = format!("{:?}", entry.manager);
    if !entry.subresource.is_empty() {
        text += &format!(" with subresource {:?}", entry.subresource);
    }
    if !entry.applied {
        text += &format!(" using {}", entry.api_version);
    }
    text
}

fn message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", owner(&one.owner), path_text(&one.path));
    }
    let mut lines = Vec::new();
    for same in conflicts.chunk_by(|a, b| a.owner.is_same(&b.owner)) {
        lines.push(format!("conflicts with {}:", owner(&same[0].owner)));
        lines.extend(same.iter().map(|conflict| format!("- {}", path_text(&conflict.path))));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}
