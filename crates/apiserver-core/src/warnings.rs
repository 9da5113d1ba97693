//! What plug-ins have to say of a request besides yes and no: warnings for its client, annotations for its audit.

use std::sync::{Arc, Mutex, PoisonError};

/// Notes of one request, shared by all who work on it.
#[derive(Clone, Debug, Default)]
pub struct Warnings {
    warnings: Arc<Mutex<Vec<String>>>,
}

impl Warnings {
    /// For a `Warning` header; what was said before is not said again.
    pub fn warn(&self, text: impl Into<String>) {
        let (mut warnings, text) = (self.lock(), text.into());
        if !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    /// The same of each.
    pub fn warn_all(&self, texts: impl IntoIterator<Item = String>) {
        texts.into_iter().for_each(|text| self.warn(text));
    }

    /// For the audit of the request; the first of a key counts.
    pub fn annotate(&self, key: impl AsRef<str>, value: impl Into<String>) {
        crate::audit::annotate(key.as_ref(), || value.into());
    }

    /// The warnings, once.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
