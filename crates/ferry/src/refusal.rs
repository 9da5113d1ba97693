//! What ferry tells a user whose wish it cannot fulfil: what is wrong, and what to do about it.

/// A problem with its remedy.
#[derive(Debug, thiserror::Error)]
#[error("{problem}\n  {remedy}")]
pub struct Refusal {
    /// What is wrong, with the name of the thing.
    pub problem: String,
    /// What the user can do.
    pub remedy: String,
}

/// A refusal as an error.
pub fn refusal(problem: impl Into<String>, remedy: impl Into<String>) -> anyhow::Error {
    Refusal { problem: problem.into(), remedy: remedy.into() }.into()
}
