//! Warnings of a request for its client, and annotations for its audit event.

use std::sync::{Arc, Mutex, PoisonError};

/// The warnings of a request; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Warnings {
    warnings: Arc<Mutex<Vec<String>>>,
}

impl Warnings {
    /// Adds a `Warning` header; duplicates are dropped.
    pub fn add_warning(&self, text: impl Into<String>) {
        let (mut warnings, text) = (self.lock(), text.into());
        if !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    /// Adds several warnings.
    pub fn add_warnings(&self, texts: impl IntoIterator<Item = String>) {
        texts.into_iter().for_each(|text| self.add_warning(text));
    }

    /// Annotates the audit event; the first value of a key wins.
    pub fn annotate_audit(&self, key: impl AsRef<str>, value: impl Into<String>) {
        crate::audit::annotate(key.as_ref(), || value.into());
    }

    /// Takes the warnings.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
