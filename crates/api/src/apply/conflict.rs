//! Errors of server-side apply and their API responses.

use serde_json::json;

use super::{
    managed_fields::{ManagedFieldsEntry, ManagedFieldsError, format_path},
    path_element::PathElement,
    schema_check::SchemaMismatch,
    type_view::ListKeyError,
};
use crate::{Value, decode, status::Status};

/// A field owned by another manager with a different value.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldConflict {
    /// The managing entry, without its fields.
    pub owner: ManagedFieldsEntry,
    /// The field path.
    pub path: Vec<PathElement>,
}

/// A rejected apply request.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The object has another kind or version than the path.
    #[error("invalid object type: {0}")]
    WrongType(String),
    /// The configuration contains managed fields.
    #[error("metadata.managedFields must be nil")]
    ManagedFields,
    /// The configuration does not match the schema.
    #[error("failed to create typed patch object ({object}): {source}")]
    Patch {
        /// The object.
        object: String,
        /// The mismatch.
        source: SchemaMismatch,
    },
    /// The stored object does not fit the schema.
    #[error("failed to create typed live object ({object}): {source}")]
    Live {
        /// The object.
        object: String,
        /// The mismatch.
        source: SchemaMismatch,
    },
    /// List items without keys.
    #[error("failed to merge config: {0}")]
    Merge(#[from] ListKeyError),
    /// The result does not decode as the kind.
    #[error("failed to convert new object to proper version: {0}")]
    Result(#[from] decode::DecodeError),
    /// The stored managed fields are malformed.
    #[error("failed to decode managed fields: {0}")]
    ManagedFieldsUnreadable(#[from] ManagedFieldsError),
    /// Fields are owned by other managers.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<FieldConflict>),
}

impl ApplyError {
    /// Builds the API response.
    pub fn to_status(&self) -> Status {
        let message = self.to_string();
        match self {
            ApplyError::WrongType(_) | ApplyError::ManagedFields => Status::bad_request(message),
            ApplyError::Conflicts(conflicts) => {
                let causes: Vec<Value> = conflicts.iter().map(conflict_cause).collect();
                Status::new(409, "Conflict", message).with_details(json!({"causes": causes}))
            }
            _ => Status::new(500, "", message),
        }
    }
}

fn conflict_cause(conflict: &FieldConflict) -> Value {
    json!({
        "reason": "FieldManagerConflict",
        "message": format!("conflict with {}", describe_manager(&conflict.owner)),
        "field": format_path(&conflict.path),
    })
}

/// Formats `"name" with subresource "status" using apps/v1`; Apply entries have no version.
fn describe_manager(entry: &ManagedFieldsEntry) -> String {
    let mut text = format!("{:?}", entry.manager);
    if !entry.subresource.is_empty() {
        text += &format!(" with subresource {:?}", entry.subresource);
    }
    if !entry.applied {
        text += &format!(" using {}", entry.api_version);
    }
    text
}

fn conflict_message(conflicts: &[FieldConflict]) -> String {
    if let [one] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            describe_manager(&one.owner),
            format_path(&one.path)
        );
    }
    let mut lines = Vec::new();
    for same in conflicts.chunk_by(|a, b| a.owner.has_same_manager(&b.owner)) {
        lines.push(format!("conflicts with {}:", describe_manager(&same[0].owner)));
        lines.extend(same.iter().map(|conflict| format!("- {}", format_path(&conflict.path))));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}
