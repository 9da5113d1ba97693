//! Signed tokens (JWS in its compact form), taken apart. What a token claims is not to be believed before its signature is
//! verified with [`Jwt::authenticate_token`].

use api::Value;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};

use super::public::PublicKey;

/// What is wrong with a signature, in upstream's words: which of several things it is, is not for the client to know.
pub const BAD_SIGNATURE: &str = "go-jose/go-jose: error in cryptographic primitive";

/// A token.
#[derive(Debug)]
pub struct Jwt<'a> {
    signed: &'a str,
    signature: Vec<u8>,
    /// How it is signed, as it says.
    pub algorithm: String,
    /// With which key, as it says; empty if it does not.
    pub key_id: String,
    /// What it says; an object.
    pub claims: Value,
    /// Something that must be understood, and is not.
    critical: bool,
}

impl<'a> Jwt<'a> {
    /// Takes a token apart; `None` if it is none.
    pub fn parse(token: &'a str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.').filter(|(_, claims)| !claims.contains('.'))?;
        let part = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        let object = |text: &str| serde_json::from_slice::<Value>(&part(text)?).ok().filter(Value::is_object);
        let (header, claims) = (object(header)?, object(claims)?);
        let text = |name: &str| header.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Self {
            signed,
            signature: part(signature)?,
            algorithm: text("alg"),
            key_id: text("kid"),
            claims,
            critical: header.get("crit").is_some(),
        })
    }

    /// A claim that is text; empty if it is not.
    pub fn text(&self, claim: &str) -> &str {
        self.claims.get(claim).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whom it is for: one or several.
    pub fn audiences(&self) -> Vec<String> {
        match self.claims.get("aud") {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    }

    /// A claim that is a time, in seconds; `None` if it is not there.
    pub fn seconds(&self, claim: &str) -> Option<f64> {
        self.claims.get(claim).and_then(Value::as_f64)
    }

    /// Whether one of the keys signed it.
    pub fn verify<'k>(&self, keys: impl IntoIterator<Item = &'k PublicKey>) -> bool {
        !self.critical
            && keys.into_iter().any(|key| key.verify(&self.algorithm, self.signed.as_bytes(), &self.signature))
    }
}
