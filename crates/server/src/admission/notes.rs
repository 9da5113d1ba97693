//! What plug-ins have to say of a request besides yes and no: warnings for its client, annotations for its audit.

use std::sync::{Arc, Mutex, PoisonError};

/// Notes of one request, shared by all who work on it.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    said: Arc<Mutex<Said>>,
}

#[derive(Debug, Default)]
struct Said {
    warnings: Vec<String>,
    annotations: Vec<(String, String)>,
}

impl Notes {
    /// For a `Warning` header; what was said before is not said again.
    pub fn warn(&self, text: impl Into<String>) {
        let (mut said, text) = (self.lock(), text.into());
        if !said.warnings.contains(&text) {
            said.warnings.push(text);
        }
    }

    /// For the audit of the request; the first of a key counts.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        let (mut said, key) = (self.lock(), key.into());
        if !said.annotations.iter().any(|(known, _)| *known == key) {
            said.annotations.push((key, value.into()));
        }
    }

    /// The warnings, once.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().warnings)
    }

    /// The annotations so far.
    pub fn annotations(&self) -> Vec<(String, String)> {
        self.lock().annotations.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
