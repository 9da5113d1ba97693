//! Verification keys: RSA, and ECDSA on P-256 and P-384, from PEM, certificates and JSON Web Keys.

use api::Value;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::{digest, rsa, signature};
use serde_json::json;
use x509_parser::{prelude::FromDer, public_key::PublicKey as Parsed, x509::SubjectPublicKeyInfo};

use super::key_error::KeyError;

/// A verification key.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    kind: KeyMaterial,
    id: String,
}

#[derive(Clone, PartialEq, Eq)]
enum KeyMaterial {
    /// Modulus and exponent.
    Rsa(Vec<u8>, Vec<u8>),
    /// The uncompressed point: 4, then both coordinates.
    P256(Vec<u8>),
    P384(Vec<u8>),
}

impl PublicKey {
    /// Parses a `SubjectPublicKeyInfo`; the key ID is its digest.
    pub fn from_der(der: &[u8]) -> Result<Self, KeyError> {
        let (_, info) = SubjectPublicKeyInfo::from_der(der).map_err(|_| KeyError::NotPublic)?;
        let kind = match info.parsed().map_err(|_| KeyError::NotPublic)? {
            Parsed::RSA(key) => KeyMaterial::Rsa(strip_leading_zeros(key.modulus), strip_leading_zeros(key.exponent)),
            Parsed::EC(point) => KeyMaterial::from_point(point.data()).ok_or(KeyError::NotPublic)?,
            _ => return Err(KeyError::NotPublic),
        };
        let id = BASE64_URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, der));
        Ok(Self { kind, id })
    }

    /// Parses a JSON Web Key; `None` if it is not a supported signature key.
    pub fn from_jwk(key: &Value) -> Option<Self> {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        let bytes = |name: &str| BASE64_URL_SAFE_NO_PAD.decode(text(name)?).ok();
        if text("use").is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let point = || Some([&[4], bytes("x")?.as_slice(), bytes("y")?.as_slice()].concat());
        let kind = match (text("kty")?, text("crv")) {
            ("RSA", _) => KeyMaterial::Rsa(strip_leading_zeros(&bytes("n")?), strip_leading_zeros(&bytes("e")?)),
            ("EC", Some("P-256" | "P-384")) => KeyMaterial::from_point(&point()?)?,
            _ => return None,
        };
        Some(Self { kind, id: text("kid").unwrap_or_default().to_owned() })
    }

    /// The key ID.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The default algorithm of the key.
    pub fn algorithm(&self) -> &'static str {
        match self.kind {
            KeyMaterial::Rsa(..) => "RS256",
            KeyMaterial::P256(_) => "ES256",
            KeyMaterial::P384(_) => "ES384",
        }
    }

    /// Verifies a signature; the algorithm must fit the key.
    pub fn verify_signature(&self, algorithm: &str, message: &[u8], signature_bytes: &[u8]) -> bool {
        let verify_ecdsa = |algorithm: &'static dyn signature::VerificationAlgorithm, key: &[u8]| {
            signature::UnparsedPublicKey::new(algorithm, key).verify(message, signature_bytes).is_ok()
        };
        match (&self.kind, algorithm) {
            (KeyMaterial::P256(key), "ES256") => verify_ecdsa(&signature::ECDSA_P256_SHA256_FIXED, key),
            (KeyMaterial::P384(key), "ES384") => verify_ecdsa(&signature::ECDSA_P384_SHA384_FIXED, key),
            (KeyMaterial::Rsa(n, e), algorithm) => {
                let parameters = match algorithm {
                    "RS256" => &signature::RSA_PKCS1_2048_8192_SHA256,
                    "RS384" => &signature::RSA_PKCS1_2048_8192_SHA384,
                    "RS512" => &signature::RSA_PKCS1_2048_8192_SHA512,
                    "PS256" => &signature::RSA_PSS_2048_8192_SHA256,
                    "PS384" => &signature::RSA_PSS_2048_8192_SHA384,
                    "PS512" => &signature::RSA_PSS_2048_8192_SHA512,
                    _ => return false,
                };
                rsa::PublicKeyComponents { n, e }.verify(parameters, message, signature_bytes).is_ok()
            }
            _ => false,
        }
    }

    /// The key as a JSON Web Key.
    pub fn to_jwk(&self) -> Value {
        let text = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let algorithm = self.algorithm();
        let curve = |name: &str, point: &[u8]| {
            let (x, y) = point[1..].split_at(point.len() / 2);
            json!({
                "use": "sig", "kty": "EC", "kid": self.id, "crv": name, "alg": algorithm, "x": text(x), "y": text(y),
            })
        };
        match &self.kind {
            KeyMaterial::Rsa(n, e) => json!({
                "use": "sig", "kty": "RSA", "kid": self.id, "alg": algorithm, "n": text(n), "e": text(e),
            }),
            KeyMaterial::P256(point) => curve("P-256", point),
            KeyMaterial::P384(point) => curve("P-384", point),
        }
    }
}

impl KeyMaterial {
    fn from_point(point: &[u8]) -> Option<Self> {
        match (point.first(), point.len()) {
            (Some(4), 65) => Some(KeyMaterial::P256(point.to_vec())),
            (Some(4), 97) => Some(KeyMaterial::P384(point.to_vec())),
            _ => None,
        }
    }
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PublicKey({} {})", self.algorithm(), self.id)
    }
}

/// Removes leading zero bytes.
fn strip_leading_zeros(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes[zeros..].to_vec()
}
