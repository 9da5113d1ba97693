//! Why an object was not written: the store, or whoever makes the stored version of it.

use api::{schema::Resource, status::Status};

use super::failed;

/// Why an object was not written.
pub enum Unsaved {
    /// The store did not take it.
    Store(store::Error),
    /// It is not to be had in the version that is stored.
    Refused(Status),
}

impl From<store::Error> for Unsaved {
    fn from(error: store::Error) -> Self {
        Self::Store(error)
    }
}

impl From<Status> for Unsaved {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

impl Unsaved {
    /// What a client is told.
    pub fn status(self, resource: &Resource, name: &str) -> Status {
        match self {
            Self::Store(error) => failed(resource, name, error),
            Self::Refused(status) => status,
        }
    }
}
