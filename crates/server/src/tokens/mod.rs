//! Tokens of service accounts: who may be trusted to be which pod.
//!
//! [`Tokens`] signs what `serviceaccounts/<name>/token` asks for and publishes the key that checks it, so that anybody can
//! verify a token without asking this server.

mod key;
mod request;

use api::Value;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{HeaderValue, Response, header};
use serde_json::json;

pub use key::KeyError;
pub use request::answer;

use crate::{Body, encode};
use key::Key;

/// Signs tokens and says how they are checked.
pub struct Tokens {
    issuer: String,
    audiences: Vec<String>,
    key: Key,
}

impl Tokens {
    /// Signs with a private key in PEM: RSA, or ECDSA on P-256. `issuer` is a URL; tokens are for its own API server unless
    /// their request names other audiences.
    pub fn new(issuer: impl Into<String>, pem: &str) -> Result<Self, KeyError> {
        let issuer = issuer.into();
        Ok(Self { audiences: vec![issuer.clone()], key: Key::from_pem(pem)?, issuer })
    }

    /// The API server's own audiences.
    fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// A signed token with these claims; who issued it is added.
    fn sign(&self, mut claims: Value) -> Result<String, KeyError> {
        claims["iss"] = self.issuer.as_str().into();
        let header = json!({"alg": self.key.algorithm(), "kid": self.key.id()});
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let signature = self.key.sign(signed.as_bytes())?;
        Ok(format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
    }

    /// What is published at a path, for whoever checks tokens; `host` is how the client reaches this server.
    pub fn published(&self, path: &str, host: &str) -> Option<Response<Body>> {
        let (body, media) = match path {
            "/.well-known/openid-configuration" => (self.discovery(host), "application/json"),
            "/openid/v1/jwks" => (json!({"keys": [self.key.public()]}), "application/jwk-set+json"),
            _ => return None,
        };
        let mut response = encode::json(200, &body);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
        Some(response)
    }

    fn discovery(&self, host: &str) -> Value {
        json!({
            "issuer": self.issuer, "jwks_uri": format!("https://{host}/openid/v1/jwks"),
            "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [self.key.algorithm()],
        })
    }
}
