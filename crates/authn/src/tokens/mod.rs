//! Tokens of service accounts: who may be trusted to be which pod.
//!
//! [`Tokens`] signs what `serviceaccounts/<name>/token` asks for, verifies what clients show, and publishes the keys, so that
//! anybody can verify a token without asking this server.

mod jwt;
mod key;
mod public;

use std::time::Duration;

use api::Value;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
pub use jwt::{BAD_SIGNATURE, Jwt};
use key::Key;
pub use key::KeyError;
pub use public::PublicKey;
use serde_json::json;

/// Signs and verifies tokens, and says how others verify them.
pub struct Tokens {
    /// The first one is that of new tokens.
    issuers: Vec<String>,
    audiences: Vec<String>,
    /// Without, tokens are only verified.
    key: Option<Key>,
    keys: Vec<PublicKey>,
    limits: Limits,
    /// Where others find the keys, if not at this server.
    keys_uri: Option<String>,
}

/// How long tokens live.
#[derive(Clone, Debug)]
pub struct Limits {
    /// What kubelets ask for lives much longer, for clients that never read their token again.
    pub extend: bool,
    /// At most; zero: as long as is asked for.
    pub longest: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { extend: true, longest: Duration::ZERO }
    }
}

impl Tokens {
    /// Signs with a private key in PEM: RSA, or ECDSA on P-256; the same key verifies. `issuer` is a URL; tokens are for its
    /// own API server unless their request names other audiences.
    pub fn new(issuer: impl Into<String>, pem: &str) -> Result<Self, KeyError> {
        let key = Key::from_pem(pem)?;
        let keys = vec![key.public_key()?];
        Ok(Self { key: Some(key), keys, ..Self::verifying(vec![issuer.into()], Vec::new()) })
    }

    /// Only verifies, tokens of these issuers that these keys signed.
    pub fn verifying(issuers: Vec<String>, keys: Vec<PublicKey>) -> Self {
        Self { audiences: issuers.clone(), issuers, key: None, keys, limits: Limits::default(), keys_uri: None }
    }

    /// Also accepts what others issued.
    #[must_use]
    pub fn also_from(mut self, issuers: impl IntoIterator<Item = String>) -> Self {
        self.issuers.extend(issuers);
        self.audiences = self.issuers.clone();
        self
    }

    /// Is for others than the issuers, unless there are none.
    #[must_use]
    pub fn for_audiences(mut self, audiences: Vec<String>) -> Self {
        if !audiences.is_empty() {
            self.audiences = audiences;
        }
        self
    }

    /// Verifies with these keys, unless there are none.
    #[must_use]
    pub fn verified_by(mut self, keys: Vec<PublicKey>) -> Self {
        if !keys.is_empty() {
            self.keys = keys;
        }
        self
    }

    /// Limits how long tokens live.
    #[must_use]
    pub fn limited(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sends others elsewhere for the keys.
    #[must_use]
    pub fn published_at(mut self, uri: Option<String>) -> Self {
        self.keys_uri = uri;
        self
    }

    /// The API server's own audiences.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Whose tokens are accepted.
    pub fn issuers(&self) -> &[String] {
        &self.issuers
    }

    /// The keys that may have signed a token: the one that it names, or all if it names none.
    pub fn keys(&self, id: &str) -> Vec<&PublicKey> {
        self.keys.iter().filter(|key| id.is_empty() || key.id() == id).collect()
    }

    /// Whether there is a private key: without one tokens are only verified.
    pub fn can_sign(&self) -> bool {
        self.key.is_some()
    }

    /// The limits of token lifetimes.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Signs a token with these claims and the issuer; `None` without a private key.
    pub fn sign(&self, mut claims: Value) -> Option<Result<String, KeyError>> {
        let key = self.key.as_ref()?;
        Some(self.sign_with(key, &mut claims))
    }

    fn sign_with(&self, key: &Key, claims: &mut Value) -> Result<String, KeyError> {
        claims["iss"] = self.issuers.first().map_or("", String::as_str).into();
        let header = json!({"alg": key.algorithm(), "kid": key.id()});
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(claims));
        let signature = key.sign(signed.as_bytes())?;
        Ok(format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The OpenID discovery document or JWKS at a path, with its media type; `host` is how the client reaches this server.
    pub fn published(&self, path: &str, host: &str) -> Option<(Value, &'static str)> {
        match path {
            "/.well-known/openid-configuration" => Some((self.discovery(host)?, "application/json")),
            "/openid/v1/jwks" => {
                let keys: Vec<Value> = self.keys.iter().map(PublicKey::jwk).collect();
                Some((json!({"keys": keys}), "application/jwk-set+json"))
            }
            _ => None,
        }
    }

    fn discovery(&self, host: &str) -> Option<Value> {
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
