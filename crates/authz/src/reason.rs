//! The reason of a decision. Most reasons are never read, so they are formatted on demand.

use std::{fmt, sync::Arc};

/// A reason, and the error of the authorizer, if any.
#[derive(Clone, Default)]
pub struct Reason {
    text: ReasonText,
    error: Option<String>,
}

#[derive(Clone)]
enum ReasonText {
    Static(&'static str),
    Owned(String),
    Shared(Arc<dyn fmt::Display + Send + Sync>),
}

impl Default for ReasonText {
    fn default() -> Self {
        ReasonText::Static("")
    }
}

impl Reason {
    /// No reason.
    pub const fn none() -> Self {
        Self { text: ReasonText::Static(""), error: None }
    }

    /// Whether there is neither reason nor error.
    pub fn is_none(&self) -> bool {
        self.error.is_none() && matches!(&self.text, ReasonText::Static(""))
    }

    /// A reason that is formatted on demand.
    pub fn from_display(reason: Arc<dyn fmt::Display + Send + Sync>) -> Self {
        Self { text: ReasonText::Shared(reason), error: None }
    }

    /// The authorizer failed.
    pub fn from_error(error: impl Into<String>) -> Self {
        Self { text: ReasonText::default(), error: Some(error.into()) }
    }

    /// Joins reasons, one per line, and aggregates their errors.
    pub fn join(reasons: Vec<Reason>) -> Self {
        let texts: Vec<String> = reasons.iter().map(Reason::to_string).filter(|text| !text.is_empty()).collect();
        let error = aggregate_errors(reasons.into_iter().filter_map(|reason| reason.error));
        Self { text: ReasonText::Owned(texts.join("\n")), error }
    }

    /// Adds an error.
    #[must_use]
    pub fn with_error(mut self, error: impl Into<String>) -> Self {
        self.error = Some(error.into());
        self
    }

    /// The error of the authorizer.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

/// Aggregates errors as Go's `utilerrors.NewAggregate`, without duplicates; `None` for none.
pub fn aggregate_errors(errors: impl IntoIterator<Item = String>) -> Option<String> {
    let mut all: Vec<String> = Vec::new();
    for error in errors {
        if !all.contains(&error) {
            all.push(error);
        }
    }
    if all.len() > 1 { Some(format!("[{}]", all.join(", "))) } else { all.pop() }
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            ReasonText::Static(text) => out.write_str(text),
            ReasonText::Owned(text) => out.write_str(text),
            ReasonText::Shared(text) => text.fmt(out),
        }
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} {:?}", self.to_string(), self.error)
    }
}

impl From<&'static str> for Reason {
    fn from(text: &'static str) -> Self {
        Self { text: ReasonText::Static(text), error: None }
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self { text: ReasonText::Owned(text), error: None }
    }
}
