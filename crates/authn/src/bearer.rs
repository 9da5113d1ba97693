//! Bearer tokens: in the `Authorization` header, or in a WebSocket subprotocol, because browsers cannot set headers.

use std::sync::Arc;

use async_trait::async_trait;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue, header};

use super::{
    AuthenticationErrors, AuthenticationRequest, AuthenticationResult, RequestAuthenticator, TokenAuthenticator,
};

/// The error of an unknown token.
pub const INVALID_TOKEN: &str = "invalid bearer token";
const EXTRA_SPACE_WARNING: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";
/// Prefix of the subprotocol that carries a token.
const TOKEN_SUBPROTOCOL_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Extracts bearer tokens from requests and authenticates them.
pub struct BearerAuthenticator {
    tokens: Arc<dyn TokenAuthenticator>,
}

impl BearerAuthenticator {
    /// Authenticates with `tokens`.
    pub fn new(tokens: Arc<dyn TokenAuthenticator>) -> Self {
        Self { tokens }
    }

    async fn authenticate_known_token(&self, token: &str, audiences: &[String]) -> AuthenticationResult {
        let response = self.tokens.authenticate_token(token, audiences).await?;
        response.map(Some).ok_or_else(|| AuthenticationErrors::single(INVALID_TOKEN))
    }

    async fn authenticate_header(&self, request: &mut AuthenticationRequest<'_>) -> AuthenticationResult {
        let Some(token) = header_token(request) else { return Ok(None) };
        let response = self.authenticate_known_token(&token, request.audiences).await?;
        request.headers.remove(header::AUTHORIZATION);
        Ok(response)
    }

    async fn authenticate_subprotocol(&self, request: &mut AuthenticationRequest<'_>) -> AuthenticationResult {
        if !is_websocket(request.headers) {
            return Ok(None);
        }
        let Some((token, others)) = split_subprotocols(request.headers)? else { return Ok(None) };
        let response = self.authenticate_known_token(&token, request.audiences).await?;
        // The value was read from a header, so it is valid in one.
        if let Ok(value) = HeaderValue::from_str(&others.join(",")) {
            request.headers.insert(header::SEC_WEBSOCKET_PROTOCOL, value);
        }
        Ok(response)
    }
}

#[async_trait]
impl RequestAuthenticator for BearerAuthenticator {
    async fn authenticate(&self, request: &mut AuthenticationRequest<'_>) -> AuthenticationResult {
        let mut errors = AuthenticationErrors::none();
        match self.authenticate_header(request).await {
            Ok(Some(response)) => return Ok(Some(response)),
            Ok(None) => {}
            Err(error) => errors.merge(error),
        }
        match self.authenticate_subprotocol(request).await {
            Ok(None) if !errors.is_empty() => Err(errors),
            Err(error) => {
                errors.merge(error);
                Err(errors)
            }
            response => response,
        }
    }
}

/// Returns the token of the `Authorization` header, if there is one.
fn header_token(request: &mut AuthenticationRequest<'_>) -> Option<String> {
    let value = String::from_utf8_lossy(request.headers.get(header::AUTHORIZATION)?.as_bytes()).into_owned();
    let mut words = value.trim().splitn(3, ' ');
    if !words.next()?.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let token = words.next()?;
    if token.is_empty() && words.next().is_some() {
        request.notes.warnings.push(EXTRA_SPACE_WARNING.to_owned());
    }
    (!token.is_empty()).then(|| token.to_owned())
}

fn is_websocket(headers: &HeaderMap) -> bool {
    let contains = |name, word: &str| {
        let value = headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        value.is_some_and(|value| value.to_ascii_lowercase().contains(word))
    };
    contains(header::CONNECTION, "upgrade") && contains(header::UPGRADE, "websocket")
}

/// Returns the token among the subprotocols, and the others.
fn split_subprotocols(headers: &HeaderMap) -> Result<Option<(String, Vec<String>)>, AuthenticationErrors> {
    let (mut token, mut others) = (None, Vec::new());
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    for protocol in values.flat_map(|value| value.split(',')).map(str::trim) {
        match protocol.strip_prefix(TOKEN_SUBPROTOCOL_PREFIX) {
            None => others.push(protocol.to_owned()),
            Some(_) if token.is_some() => {
                return Err(AuthenticationErrors::single("multiple base64.bearer.authorization tokens specified"));
            }
            Some(encoded) => token = Some(decode_token(encoded)?),
        }
    }
    match token.filter(|token| !token.is_empty()) {
        None => Ok(None),
        // The client and server must agree on another subprotocol.
        Some(_) if others.is_empty() => Err(AuthenticationErrors::single("missing additional subprotocol")),
        Some(token) => Ok(Some((token, others))),
    }
}

fn decode_token(encoded: &str) -> Result<String, AuthenticationErrors> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(encoded);
    let bytes =
        bytes.map_err(|_| AuthenticationErrors::single("invalid base64.bearer.authorization token encoding"))?;
    String::from_utf8(bytes).map_err(|_| AuthenticationErrors::single("invalid base64.bearer.authorization token"))
}
