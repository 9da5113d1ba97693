//! Evaluation errors.

use std::fmt;

/// An evaluation error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The expression failed, with `cel-go`'s message. `&&`, `||` and the macros built on them may absorb it.
    Failed(Box<str>),
    /// The evaluation exceeded its cost limit.
    CostLimit,
    /// The evaluation was cancelled.
    Interrupted,
}

impl Error {
    pub(crate) fn failed(message: impl Into<Box<str>>) -> Self {
        Self::Failed(message.into())
    }

    pub(crate) fn no_such_overload() -> Self {
        Self::failed("no such overload")
    }

    /// Whether the error aborts the whole evaluation, so that no operator may absorb it.
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
