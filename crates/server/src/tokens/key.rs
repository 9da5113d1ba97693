//! The key that signs tokens: RSA (RS256) or ECDSA on P-256 (ES256).

use api::Value;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::{
    digest,
    rand::SystemRandom,
    rsa,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256},
};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use serde_json::json;

/// Why a key cannot sign tokens.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It is not a private key in PEM.
    #[error("the key of service accounts is not a private key in PEM: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// It is in a form, or of a kind, that is not supported.
    #[error(
        "the key of service accounts is not supported: RSA (PKCS#1 or PKCS#8) of 2048 bits or more, or ECDSA on P-256 \
         (PKCS#8) is needed"
    )]
    Unsupported,
    /// Signing failed.
    #[error("a token cannot be signed")]
    Sign,
}

/// A key that signs.
pub struct Key {
    pair: Pair,
    id: String,
    random: SystemRandom,
}

enum Pair {
    Rsa(Box<rsa::KeyPair>),
    Ecdsa(Box<EcdsaKeyPair>),
}

impl Key {
    /// Reads a private key.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let rsa = |pair| Pair::Rsa(Box::new(pair));
        let pair = match PrivateKeyDer::from_pem_slice(pem.as_bytes())? {
            PrivateKeyDer::Pkcs1(der) => rsa::KeyPair::from_der(der.secret_pkcs1_der()).map(rsa),
            PrivateKeyDer::Pkcs8(der) => {
                let der = der.secret_pkcs8_der();
                EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random)
                    .map(|pair| Pair::Ecdsa(Box::new(pair)))
                    .or_else(|_| rsa::KeyPair::from_pkcs8(der).map(rsa))
            }
            _ => return Err(KeyError::Unsupported),
        };
        let pair = pair.map_err(|_| KeyError::Unsupported)?;
        let id = BASE64_URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, &pair.public_der()));
        Ok(Self { pair, id, random })
    }

    /// The name of the key, which is a digest of its public half.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The algorithm, as tokens name it.
    pub fn algorithm(&self) -> &'static str {
        match self.pair {
            Pair::Rsa(_) => "RS256",
            Pair::Ecdsa(_) => "ES256",
        }
    }

    /// Signs.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &self.random, message, &mut signature).map_err(|_| KeyError::Sign)?;
                Ok(signature)
            }
            Pair::Ecdsa(pair) => {
                let signature = pair.sign(&self.random, message).map_err(|_| KeyError::Sign)?;
                Ok(signature.as_ref().to_vec())
            }
        }
    }

    /// The public half as a JSON Web Key.
    pub fn public(&self) -> Value {
        let text = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        match &self.pair {
            Pair::Rsa(pair) => {
                let public = rsa::PublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({"use": "sig", "kty": "RSA", "kid": self.id, "alg": "RS256", "n": text(&public.n), "e": text(&public.e)})
            }
            Pair::Ecdsa(pair) => {
                // An uncompressed point: a four, then both coordinates.
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({"use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256", "x": text(x), "y": text(y)})
            }
        }
    }
}

impl Pair {
    /// The public half as certificates carry it (`SubjectPublicKeyInfo`).
    fn public_der(&self) -> Vec<u8> {
        const RSA: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
        const P256: &[u8] = &[
            0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01,
            0x07,
        ];
        let (algorithm, key) = match self {
            Pair::Rsa(pair) => (RSA, pair.public().as_ref().to_vec()),
            Pair::Ecdsa(pair) => (P256, pair.public_key().as_ref().to_vec()),
        };
        let bits = [&[0], key.as_slice()].concat();
        der(0x30, &[der(0x30, algorithm), der(0x03, &bits)].concat())
    }
}

/// One value in DER; keys are shorter than 64 KiB.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len() as u16;
    let [high, low] = length.to_be_bytes();
    let head = match length {
        0..0x80 => vec![tag, low],
        0x80..0x100 => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    [head, content.to_vec()].concat()
}
