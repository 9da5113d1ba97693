//! Errors of plug-ins as the specification writes them: a code, a message and details.

use std::{fmt::Display, io};

use serde_json::json;

/// An error that is reported to the runtime.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PluginError {
    /// The code: below 100 the specification's, from 100 on the plug-in's own.
    pub code: u32,
    /// The failure.
    pub message: String,
    /// More about it.
    pub details: String,
}

impl PluginError {
    /// The version of the configuration is not supported.
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    /// A field is not supported.
    pub const UNSUPPORTED_FIELD: u32 = 2;
    /// The container is not known.
    pub const UNKNOWN_CONTAINER: u32 = 3;
    /// A variable of the environment is missing or wrong.
    pub const INVALID_ENVIRONMENT: u32 = 4;
    /// An operation failed.
    pub const IO_FAILURE: u32 = 5;
    /// The configuration cannot be decoded.
    pub const DECODING_FAILURE: u32 = 6;
    /// The configuration is wrong.
    pub const INVALID_CONFIGURATION: u32 = 7;
    /// An internal failure; the plug-in's own.
    pub const INTERNAL: u32 = 999;

    /// An error with a code.
    pub fn new(code: u32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: String::new() }
    }

    /// The configuration is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Self::INVALID_CONFIGURATION, message)
    }

    /// An operation of the kernel or of a file failed.
    pub fn io(what: impl Display, error: &io::Error) -> Self {
        Self::new(Self::IO_FAILURE, format!("{what}: {error}"))
    }

    /// Something is not as the result says, in CHECK.
    pub fn mismatch(message: impl Into<String>) -> Self {
        Self::new(Self::INTERNAL, message)
    }

    /// Renders the error for a version of the specification.
    pub fn to_json(&self, version: &str) -> String {
        let mut object = json!({ "cniVersion": version, "code": self.code, "msg": self.message });
        if !self.details.is_empty() {
            object["details"] = self.details.clone().into();
        }
        format!("{object:#}\n")
    }
}
