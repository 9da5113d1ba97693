//! Errors of the admission chain. Their texts are upstream's.

use api::status::Status;

/// A failed construction of the admission chain.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The configuration of a plug-in is invalid.
    #[error("{0}")]
    Config(String),
    /// The watch cache cannot be indexed.
    #[error(transparent)]
    Index(#[from] store::StoreError),
    /// A plug-in cannot be constructed.
    #[error("couldn't init admission plugin {name:?}: {source}")]
    Init {
        /// The name of the plug-in.
        name: &'static str,
        /// The error of its constructor.
        source: Box<Self>,
    },
}

/// The reason for which a check denies a request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DenialReason(pub String);

impl AsRef<str> for DenialReason {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for DenialReason {
    fn from(reason: T) -> Self {
        Self(reason.into())
    }
}

impl From<String> for PluginError {
    fn from(message: String) -> Self {
        Self::Config(message)
    }
}

impl From<&str> for PluginError {
    fn from(message: &str) -> Self {
        Self::Config(message.to_owned())
    }
}

impl From<Status> for PluginError {
    fn from(status: Status) -> Self {
        Self::Config(status.message)
    }
}
