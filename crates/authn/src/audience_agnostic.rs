//! Links that know nothing of audiences: what they accept is for this API server, and for nobody else.

use async_trait::async_trait;

use super::{AuthenticationRequest, AuthenticationResult, RequestAuthenticator, TokenAuthenticator};

/// A link, asked only about credentials that may be for this API server.
pub struct AudienceAgnostic<L> {
    link: L,
    audiences: Vec<String>,
}

impl<L> AudienceAgnostic<L> {
    /// `audiences` are those of this API server.
    pub fn new(link: L, audiences: &[String]) -> Self {
        Self { link, audiences: audiences.to_vec() }
    }

    /// Which of the wanted audiences are this server's; `None` if there are some and none is.
    fn shared(&self, wanted: &[String]) -> Option<Vec<String>> {
        let shared: Vec<String> = self.audiences.iter().filter(|own| wanted.contains(own)).cloned().collect();
        (wanted.is_empty() || !shared.is_empty()).then_some(shared)
    }
}

fn for_these(verdict: AuthenticationResult, audiences: Vec<String>) -> AuthenticationResult {
    Ok(verdict?.map(|mut found| {
        found.audiences = audiences;
        found
    }))
}

#[async_trait]
impl<L: RequestAuthenticator> RequestAuthenticator for AudienceAgnostic<L> {
    async fn authenticate(&self, shown: &mut AuthenticationRequest<'_>) -> AuthenticationResult {
        let Some(audiences) = self.shared(shown.audiences) else { return Ok(None) };
        for_these(self.link.authenticate(shown).await, audiences)
    }
}

#[async_trait]
impl<L: TokenAuthenticator> TokenAuthenticator for AudienceAgnostic<L> {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> AuthenticationResult {
        let Some(shared) = self.shared(audiences) else { return Ok(None) };
        for_these(self.link.authenticate_token(token, audiences).await, shared)
    }
}
