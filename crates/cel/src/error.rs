//! Why an evaluation has no value.

use std::fmt;

/// Why an evaluation has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The expression failed, in the words of `cel-go`. `&&`, `||` and the macros built on them may do without the failed part.
    Failed(Box<str>),
    /// It cost more than it may.
    CostLimit,
    /// Somebody asked to stop.
    Interrupted,
}

impl Error {
    pub(crate) fn failed(message: impl Into<Box<str>>) -> Self {
        Self::Failed(message.into())
    }

    pub(crate) fn no_such_overload() -> Self {
        Self::failed("no such overload")
    }

    /// Whether nothing may go on after it.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(message) => f.write_str(message),
            Self::CostLimit => f.write_str("operation cancelled: actual cost limit exceeded"),
            Self::Interrupted => f.write_str("operation interrupted"),
        }
    }
}

impl std::error::Error for Error {}
