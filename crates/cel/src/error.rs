//! Evaluation errors.

/// An evaluation error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// The expression failed, with `cel-go`'s message. `&&`, `||` and the macros built on them may absorb it.
    #[error("{0}")]
    Failed(Box<str>),
    /// The evaluation exceeded its cost limit.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    /// The evaluation was cancelled.
    #[error("operation interrupted")]
    Interrupted,
}

impl From<formats::ParseError> for EvalError {
    fn from(error: formats::ParseError) -> Self {
        Self::new(error.0)
    }
}

impl From<formats::quantity::QuantityError> for EvalError {
    fn from(error: formats::quantity::QuantityError) -> Self {
        Self::new(error.to_string())
    }
}

impl EvalError {
    pub(crate) fn new(message: impl Into<Box<str>>) -> Self {
        Self::Failed(message.into())
    }

    pub(crate) fn no_such_overload() -> Self {
        Self::new("no such overload")
    }

    /// Whether the error aborts the whole evaluation, so that no operator may absorb it.
    pub(crate) fn is_fatal(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}
