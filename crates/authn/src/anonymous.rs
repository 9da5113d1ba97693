//! Requests that show nothing: everybody's, or only those for some paths.

use apiserver_core::User;

use super::{ANONYMOUS_USER, AuthenticationRequest, AuthenticationResponse, UNAUTHENTICATED_GROUP};

/// Knows everybody who shows nothing.
pub struct Anonymous {
    /// Exact paths; empty: all.
    paths: Vec<String>,
}

impl Anonymous {
    /// Anonymous requests for these paths; for all if there are none.
    pub fn new(paths: &[String]) -> Self {
        Self { paths: paths.to_vec() }
    }

    /// The user of a request that shows nothing.
    pub fn found(&self, shown: &AuthenticationRequest<'_>) -> Option<AuthenticationResponse> {
        if !self.paths.is_empty() && !self.paths.iter().any(|path| path == shown.path) {
            return None;
        }
        let user = User { name: ANONYMOUS_USER.into(), groups: vec![UNAUTHENTICATED_GROUP.into()], ..User::default() };
        Some(AuthenticationResponse { audiences: shown.audiences.to_vec(), ..AuthenticationResponse::user(user) })
    }
}
