//! Anonymous requests, for all paths or some.

use apiserver_core::User;

use super::{ANONYMOUS_USER, AuthenticationRequest, AuthenticationResponse, UNAUTHENTICATED_GROUP};

/// Authenticates requests without credentials.
pub struct AnonymousAuthenticator {
    /// Allowed paths; empty allows all.
    paths: Vec<String>,
}

impl AnonymousAuthenticator {
    /// Allows anonymous requests for `paths`; for all if there are none.
    pub fn new(paths: &[String]) -> Self {
        Self { paths: paths.to_vec() }
    }

    /// Returns the anonymous user, if the path allows it.
    pub fn anonymous_response(&self, request: &AuthenticationRequest<'_>) -> Option<AuthenticationResponse> {
        if !self.paths.is_empty() && !self.paths.iter().any(|path| path == request.path) {
            return None;
        }
        let user = User { name: ANONYMOUS_USER.into(), groups: vec![UNAUTHENTICATED_GROUP.into()], ..User::default() };
        Some(AuthenticationResponse { audiences: request.audiences.to_vec(), ..AuthenticationResponse::for_user(user) })
    }
}
