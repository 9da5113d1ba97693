//! The authenticator in use, which a reloaded configuration replaces.

use std::sync::{Arc, PoisonError, RwLock};

use crate::Authenticator;

/// Holds the current [`Authenticator`]; requests that are under way keep the one they began with.
pub struct ReloadableAuthenticator(RwLock<Arc<Authenticator>>);

impl ReloadableAuthenticator {
    /// Starts with `authenticator`.
    pub fn new(authenticator: Authenticator) -> Self {
        Self(RwLock::new(Arc::new(authenticator)))
    }

    /// Returns the current authenticator.
    pub fn get(&self) -> Arc<Authenticator> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the authenticator for new requests.
    pub fn replace(&self, authenticator: Authenticator) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(authenticator);
    }
}
