//! JSON Web Tokens in the compact serialization. Claims must not be trusted before [`Jwt::verify_signature`].

use api::Value;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};

use super::public_key::PublicKey;

/// The error of an invalid signature, in upstream's words; clients do not learn the cause.
pub const BAD_SIGNATURE: &str = "go-jose/go-jose: error in cryptographic primitive";

/// A parsed token.
#[derive(Debug)]
pub struct Jwt<'a> {
    signing_input: &'a str,
    signature: Vec<u8>,
    /// The `alg` header.
    pub algorithm: String,
    /// The `kid` header; empty if absent.
    pub key_id: String,
    /// The claims, an object.
    pub claims: Value,
    /// Whether the token has critical headers, which are not supported.
    critical: bool,
}

impl<'a> Jwt<'a> {
    /// Parses a token; `None` if it is malformed.
    pub fn parse(token: &'a str) -> Option<Self> {
        let (signing_input, signature) = token.rsplit_once('.')?;
        let (header, claims) = signing_input.split_once('.').filter(|(_, claims)| !claims.contains('.'))?;
        let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        let object = |text: &str| serde_json::from_slice::<Value>(&decode(text)?).ok().filter(Value::is_object);
        let (header, claims) = (object(header)?, object(claims)?);
        let text = |name: &str| header.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Self {
            signing_input,
            signature: decode(signature)?,
            algorithm: text("alg"),
            key_id: text("kid"),
            claims,
            critical: header.get("crit").is_some(),
        })
    }

    /// Returns a string claim; empty if it is absent or no string.
    pub fn string_claim(&self, claim: &str) -> &str {
        self.claims.get(claim).and_then(Value::as_str).unwrap_or_default()
    }

    /// The audiences of the token.
    pub fn audiences(&self) -> Vec<String> {
        match self.claims.get("aud") {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns a time claim in seconds; `None` if it is absent.
    pub fn time_claim(&self, claim: &str) -> Option<f64> {
        self.claims.get(claim).and_then(Value::as_f64)
    }

    /// Whether one of the keys signed the token.
    pub fn verify_signature<'k>(&self, keys: impl IntoIterator<Item = &'k PublicKey>) -> bool {
        !self.critical
            && keys
                .into_iter()
                .any(|key| key.verify_signature(&self.algorithm, self.signing_input.as_bytes(), &self.signature))
    }
}
