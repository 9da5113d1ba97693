//! Images: references, manifests, the store of blobs and layers, registries, archives.
//!
//! A blob is kept by its digest, a layer once by its chain id. Everything that is named in the store's index is complete on
//! disk; what a crash left besides it is removed at the next start.

mod archive;
mod content_locks;
mod layer;
mod manifest;
mod pull;
mod reference;
mod registry;
mod registry_auth;
mod registry_hosts;
mod save;
mod store;
mod unpack;

pub use archive::load_archive;
pub use manifest::{ImageConfig, ImageProcessConfig};
pub use pull::{PullOptions, pull_image};
pub use reference::ImageReference;
pub use registry::RegistryCredentials;
pub use save::save_archive;
pub use store::{ImageRecord, ImageStore};

use std::io;

/// An image could not be pulled, loaded or read.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A file could not be read or written.
    #[error("{operation}: {source}")]
    Io {
        /// The attempted operation.
        operation: String,
        /// The system's error.
        source: io::Error,
    },
    /// The reference is not valid.
    #[error("invalid reference format: {0:?}")]
    Reference(String),
    /// A manifest, configuration or archive is not valid.
    #[error("{0}")]
    Invalid(String),
    /// The content has another digest.
    #[error("{what}: the digest is {found}, not {expected}")]
    Digest {
        /// The document that was read.
        what: String,
        /// The digest that it should have.
        expected: String,
        /// The digest that it has.
        found: String,
    },
    /// The registry does not have it.
    #[error("{0}: not found")]
    NotFound(String),
    /// The registry refuses the credentials.
    #[error("{0}")]
    Unauthorized(String),
    /// The registry cannot be used.
    #[error("{0}")]
    Registry(String),
    /// A pull failed.
    #[error("failed to pull and unpack image \"{reference}\": {source}")]
    Pull {
        /// The image.
        reference: String,
        /// Why.
        source: Box<ImageError>,
    },
}

/// Names the operation of a failed system call.
trait Context<T> {
    fn while_doing(self, operation: impl FnOnce() -> String) -> Result<T, ImageError>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn while_doing(self, operation: impl FnOnce() -> String) -> Result<T, ImageError> {
        self.map_err(|source| ImageError::Io { operation: operation(), source: source.into() })
    }
}
