//! Bearer tokens: in the header `Authorization`, or as a subprotocol of a WebSocket, where browsers can set no headers.

use std::sync::Arc;

use async_trait::async_trait;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue, header};

use super::{
    AuthenticationErrors, AuthenticationRequest, AuthenticationResult, RequestAuthenticator, TokenAuthenticator,
};

/// What is said of a token that nobody knows.
pub const INVALID: &str = "invalid bearer token";
const SPACE: &str = "the provided Authorization header contains extra space before the bearer token, and is ignored";
/// What a subprotocol that carries a token begins with.
const PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Takes tokens out of requests and has them verified.
pub struct Bearer {
    tokens: Arc<dyn TokenAuthenticator>,
}

impl Bearer {
    /// Tokens that `tokens` knows.
    pub fn new(tokens: Arc<dyn TokenAuthenticator>) -> Self {
        Self { tokens }
    }

    async fn verified(&self, token: &str, audiences: &[String]) -> AuthenticationResult {
        let found = self.tokens.authenticate_token(token, audiences).await?;
        found.map(Some).ok_or_else(|| AuthenticationErrors::one(INVALID))
    }

    async fn in_header(&self, shown: &mut AuthenticationRequest<'_>) -> AuthenticationResult {
        let Some(token) = token_of(shown) else { return Ok(None) };
        let found = self.verified(&token, shown.audiences).await?;
        shown.headers.remove(header::AUTHORIZATION);
        Ok(found)
    }

    async fn in_protocol(&self, shown: &mut AuthenticationRequest<'_>) -> AuthenticationResult {
        if !is_websocket(shown.headers) {
            return Ok(None);
        }
        let Some((token, others)) = protocols(shown.headers)? else { return Ok(None) };
        let found = self.verified(&token, shown.audiences).await?;
        // Headers that could be read can be written.
        if let Ok(value) = HeaderValue::from_str(&others.join(",")) {
            shown.headers.insert(header::SEC_WEBSOCKET_PROTOCOL, value);
        }
        Ok(found)
    }
}

#[async_trait]
impl RequestAuthenticator for Bearer {
    async fn authenticate(&self, shown: &mut AuthenticationRequest<'_>) -> AuthenticationResult {
        let mut reasons = AuthenticationErrors::none();
        match self.in_header(shown).await {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => {}
            Err(why) => reasons.add(why),
        }
        match self.in_protocol(shown).await {
            Ok(None) if !reasons.is_empty() => Err(reasons),
            Err(why) => {
                reasons.add(why);
                Err(reasons)
            }
            found => found,
        }
    }
}

/// The token of the header, if there is one.
fn token_of(shown: &mut AuthenticationRequest<'_>) -> Option<String> {
    let value = String::from_utf8_lossy(shown.headers.get(header::AUTHORIZATION)?.as_bytes()).into_owned();
    let mut words = value.trim().splitn(3, ' ');
    if !words.next()?.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let token = words.next()?;
    if token.is_empty() && words.next().is_some() {
        shown.notes.warnings.push(SPACE.to_owned());
    }
    (!token.is_empty()).then(|| token.to_owned())
}

fn is_websocket(headers: &HeaderMap) -> bool {
    let says = |name, wanted: &str| {
        let value = headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        value.is_some_and(|value| value.to_ascii_lowercase().contains(wanted))
    };
    says(header::CONNECTION, "upgrade") && says(header::UPGRADE, "websocket")
}

/// The token among the subprotocols, and the others.
fn protocols(headers: &HeaderMap) -> Result<Option<(String, Vec<String>)>, AuthenticationErrors> {
    let (mut token, mut others) = (None, Vec::new());
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    for protocol in values.flat_map(|value| value.split(',')).map(str::trim) {
        match protocol.strip_prefix(PROTOCOL) {
            None => others.push(protocol.to_owned()),
            Some(_) if token.is_some() => {
                return Err(AuthenticationErrors::one("multiple base64.bearer.authorization tokens specified"));
            }
            Some(encoded) => token = Some(decoded(encoded)?),
        }
    }
    match token.filter(|token| !token.is_empty()) {
        None => Ok(None),
        // One must be left to agree on.
        Some(_) if others.is_empty() => Err(AuthenticationErrors::one("missing additional subprotocol")),
        Some(token) => Ok(Some((token, others))),
    }
}

fn decoded(encoded: &str) -> Result<String, AuthenticationErrors> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(encoded);
    let bytes = bytes.map_err(|_| AuthenticationErrors::one("invalid base64.bearer.authorization token encoding"))?;
    String::from_utf8(bytes).map_err(|_| AuthenticationErrors::one("invalid base64.bearer.authorization token"))
}
