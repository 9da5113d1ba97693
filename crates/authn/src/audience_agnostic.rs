//! Wraps authenticators that know no audiences: their credentials are for this API server only.

use async_trait::async_trait;

use super::{AuthenticationRequest, AuthenticationResult, RequestAuthenticator, TokenAuthenticator};

/// An authenticator that is called only for this API server's audiences.
pub struct AudienceAgnostic<L> {
    authenticator: L,
    audiences: Vec<String>,
}

impl<L> AudienceAgnostic<L> {
    /// `audiences` are those of this API server.
    pub fn new(authenticator: L, audiences: &[String]) -> Self {
        Self { authenticator, audiences: audiences.to_vec() }
    }

    /// Returns the accepted audiences that are this server's; `None` if audiences are given and none is.
    fn shared_audiences(&self, accepted: &[String]) -> Option<Vec<String>> {
        let shared: Vec<String> = self.audiences.iter().filter(|own| accepted.contains(own)).cloned().collect();
        (accepted.is_empty() || !shared.is_empty()).then_some(shared)
    }
}

fn with_audiences(result: AuthenticationResult, audiences: Vec<String>) -> AuthenticationResult {
    Ok(result?.map(|mut response| {
        response.audiences = audiences;
        response
    }))
}

#[async_trait]
impl<L: RequestAuthenticator> RequestAuthenticator for AudienceAgnostic<L> {
    async fn authenticate(&self, request: &mut AuthenticationRequest<'_>) -> AuthenticationResult {
        let Some(audiences) = self.shared_audiences(request.audiences) else { return Ok(None) };
        with_audiences(self.authenticator.authenticate(request).await, audiences)
    }
}

#[async_trait]
impl<L: TokenAuthenticator> TokenAuthenticator for AudienceAgnostic<L> {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> AuthenticationResult {
        let Some(shared) = self.shared_audiences(audiences) else { return Ok(None) };
        with_audiences(self.authenticator.authenticate_token(token, audiences).await, shared)
    }
}
