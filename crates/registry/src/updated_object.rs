//! The result of a write.

use api::Value;

use crate::{RequestOutcome, StoredDocument};

/// An object that was written.
pub struct UpdatedObject {
    /// The object after the write.
    pub object: Value,
    /// The stored document; `None` if nothing was stored or the object differs from it.
    pub stored: Option<StoredDocument>,
}

impl UpdatedObject {
    /// The request outcome with this status code.
    pub fn into_outcome(self, code: u16) -> RequestOutcome {
        RequestOutcome::Object { object: self.object, stored: self.stored, code }
    }
}
