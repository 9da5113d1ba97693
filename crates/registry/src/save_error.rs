//! Why an object was not written: the store, or whoever makes the stored version of it.

use api::{schema::Resource, status::Status};

use super::failed;

/// Why an object was not written.
pub enum SaveError {
    /// The store did not take it.
    Store(store::StoreError),
    /// It is not to be had in the version that is stored.
    Refused(Status),
}

impl From<store::StoreError> for SaveError {
    fn from(error: store::StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Status> for SaveError {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

impl SaveError {
    /// What a client is told.
    pub fn status(self, resource: &Resource, name: &str) -> Status {
        match self {
            Self::Store(error) => failed(resource, name, error),
            Self::Refused(status) => status,
        }
    }
}
