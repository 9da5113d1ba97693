//! Errors of writes: from the store, or from converting to the storage version.

use api::{schema::Resource, status::Status};

use super::status_from_store_error;

/// A failed write.
pub enum SaveError {
    /// The store rejected the write.
    Store(store::StoreError),
    /// The conversion to the storage version failed.
    Conversion(Status),
}

impl From<store::StoreError> for SaveError {
    fn from(error: store::StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Status> for SaveError {
    fn from(status: Status) -> Self {
        Self::Conversion(status)
    }
}

impl SaveError {
    /// The response status.
    pub fn into_status(self, resource: &Resource, name: &str) -> Status {
        match self {
            Self::Store(error) => status_from_store_error(resource, name, error),
            Self::Conversion(status) => status,
        }
    }
}
