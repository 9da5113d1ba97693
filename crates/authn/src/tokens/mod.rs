//! Issues and verifies service account tokens.
//!
//! [`ServiceAccountTokens`] signs the tokens of `serviceaccounts/<name>/token`, verifies presented tokens, and
//! publishes the keys, so that others can verify tokens offline.

mod jwt;
mod key_error;
mod public_key;
mod signing_key;

use std::time::Duration;

use api::Value;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
pub use jwt::{BAD_SIGNATURE, Jwt};
pub use key_error::KeyError;
pub use public_key::PublicKey;
use serde_json::json;
use signing_key::SigningKey;

/// Signs and verifies service account tokens, and publishes the keys.
pub struct TokenIssuer {
    /// The first issuer signs new tokens.
    issuers: Vec<String>,
    audiences: Vec<String>,
    /// The signing key; `None`: tokens are only verified.
    key: Option<SigningKey>,
    keys: Vec<PublicKey>,
    limits: TokenLimits,
    /// The published key set URL, if it is not this server's.
    keys_uri: Option<String>,
}

/// Limits of token lifetimes.
#[derive(Clone, Debug)]
pub struct TokenLimits {
    /// Whether kubelet tokens are extended, for clients that do not reload them.
    pub extend: bool,
    /// Maximum lifetime; zero: no maximum.
    pub longest: Duration,
}

impl Default for TokenLimits {
    fn default() -> Self {
        Self { extend: true, longest: Duration::ZERO }
    }
}

impl TokenIssuer {
    /// Signs with a private key in PEM (RSA, or ECDSA on P-256), which also verifies. `issuer` is a URL, and the
    /// default audience.
    pub fn new(issuer: impl Into<String>, pem: &str) -> Result<Self, KeyError> {
        let key = SigningKey::from_pem(pem)?;
        let keys = vec![key.public_key()?];
        Ok(Self { key: Some(key), keys, ..Self::verifier(vec![issuer.into()], Vec::new()) })
    }

    /// Only verifies tokens of `issuers` with `keys`.
    pub fn verifier(issuers: Vec<String>, keys: Vec<PublicKey>) -> Self {
        Self { audiences: issuers.clone(), issuers, key: None, keys, limits: TokenLimits::default(), keys_uri: None }
    }

    /// Accepts further issuers.
    #[must_use]
    pub fn with_issuers(mut self, issuers: impl IntoIterator<Item = String>) -> Self {
        self.issuers.extend(issuers);
        self.audiences = self.issuers.clone();
        self
    }

    /// Sets the API server's audiences, unless they are empty.
    #[must_use]
    pub fn with_audiences(mut self, audiences: Vec<String>) -> Self {
        if !audiences.is_empty() {
            self.audiences = audiences;
        }
        self
    }

    /// Sets the verification keys, unless they are empty.
    #[must_use]
    pub fn with_verification_keys(mut self, keys: Vec<PublicKey>) -> Self {
        if !keys.is_empty() {
            self.keys = keys;
        }
        self
    }

    /// Sets the lifetime limits.
    #[must_use]
    pub fn with_limits(mut self, limits: TokenLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the published key set URL.
    #[must_use]
    pub fn with_jwks_uri(mut self, uri: Option<String>) -> Self {
        self.keys_uri = uri;
        self
    }

    /// The API server's audiences.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// The accepted issuers.
    pub fn issuers(&self) -> &[String] {
        &self.issuers
    }

    /// Returns the keys that may verify a token: the one with `id`, or all if it is empty.
    pub fn keys(&self, id: &str) -> Vec<&PublicKey> {
        self.keys.iter().filter(|key| id.is_empty() || key.id() == id).collect()
    }

    /// Whether tokens can be signed.
    pub fn can_sign(&self) -> bool {
        self.key.is_some()
    }

    /// The limits of token lifetimes.
    pub fn limits(&self) -> &TokenLimits {
        &self.limits
    }

    /// Signs a token with these claims and the issuer; `None` without a signing key.
    pub fn sign_claims(&self, mut claims: Value) -> Option<Result<String, KeyError>> {
        let key = self.key.as_ref()?;
        Some(self.sign_with(key, &mut claims))
    }

    fn sign_with(&self, key: &SigningKey, claims: &mut Value) -> Result<String, KeyError> {
        claims["iss"] = self.issuers.first().map_or("", String::as_str).into();
        let header = json!({"alg": key.algorithm(), "kid": key.id()});
        let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", encode(&header), encode(claims));
        let signature = key.sign_message(message.as_bytes())?;
        Ok(format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The OpenID discovery document or JWKS at a path, with its media type; `host` is the server's address for the
    /// client.
    pub fn discovery_document(&self, path: &str, host: &str) -> Option<(Value, &'static str)> {
        match path {
            "/.well-known/openid-configuration" => Some((self.openid_configuration(host)?, "application/json")),
            "/openid/v1/jwks" => {
                let keys: Vec<Value> = self.keys.iter().map(PublicKey::to_jwk).collect();
                Some((json!({"keys": keys}), "application/jwk-set+json"))
            }
            _ => None,
        }
    }

    fn openid_configuration(&self, host: &str) -> Option<Value> {
        let mut algorithms: Vec<&str> = self.keys.iter().map(PublicKey::algorithm).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        let keys = self.keys_uri.clone().unwrap_or_else(|| format!("https://{host}/openid/v1/jwks"));
        Some(json!({
            "issuer": self.issuers.first()?, "jwks_uri": keys,
            "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        }))
    }
}
