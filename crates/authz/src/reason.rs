//! The reason of a decision. Most reasons are never read, so they are formatted on demand.

use std::{fmt, sync::Arc};

/// A reason, and the error of the authorizer, if any.
#[derive(Clone, Default)]
pub struct Reason {
    text: Text,
    error: Option<String>,
}

#[derive(Clone)]
enum Text {
    Static(&'static str),
    Owned(String),
    Shared(Arc<dyn fmt::Display + Send + Sync>),
}

impl Default for Text {
    fn default() -> Self {
        Text::Static("")
    }
}

impl Reason {
    /// No reason.
    pub const fn none() -> Self {
        Self { text: Text::Static(""), error: None }
    }

    /// Whether there is neither reason nor error.
    pub fn is_none(&self) -> bool {
        self.error.is_none() && matches!(&self.text, Text::Static(""))
    }

    /// A reason that is formatted on demand.
    pub fn shared(reason: Arc<dyn fmt::Display + Send + Sync>) -> Self {
        Self { text: Text::Shared(reason), error: None }
    }

    /// The authorizer failed.
    pub fn failed(error: impl Into<String>) -> Self {
        Self { text: Text::default(), error: Some(error.into()) }
    }

    /// Joins reasons, one per line, and aggregates their errors.
    pub fn joined(reasons: Vec<Reason>) -> Self {
        let texts: Vec<String> = reasons.iter().map(Reason::to_string).filter(|text| !text.is_empty()).collect();
        let error = aggregate(reasons.into_iter().filter_map(|reason| reason.error));
        Self { text: Text::Owned(texts.join("\n")), error }
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
pub fn aggregate(errors: impl IntoIterator<Item = String>) -> Option<String> {
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
            Text::Static(text) => out.write_str(text),
            Text::Owned(text) => out.write_str(text),
            Text::Shared(text) => text.fmt(out),
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
        Self { text: Text::Static(text), error: None }
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self { text: Text::Owned(text), error: None }
    }
}
