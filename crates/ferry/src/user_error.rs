//! Errors for users: the problem and its remedy.

/// A problem with its remedy.
#[derive(Debug, thiserror::Error)]
#[error("{problem}\n  {remedy}")]
pub struct UserError {
    /// The problem, with the name of the object.
    pub problem: String,
    /// The remedy.
    pub remedy: String,
}

/// A refusal as an error.
pub fn user_error(problem: impl Into<String>, remedy: impl Into<String>) -> anyhow::Error {
    UserError { problem: problem.into(), remedy: remedy.into() }.into()
}
