//! The key that signs tokens: RSA (RS256) or ECDSA on P-256 (ES256).

use ring::{
    rand::SystemRandom,
    rsa,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256},
};
use rustls::pki_types::pem::{PemObject, SectionKind};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{key_error::KeyError, public_key::PublicKey};

/// The signing key.
pub struct SigningKey {
    pair: SigningKeyPair,
    id: String,
    random: SystemRandom,
}

enum SigningKeyPair {
    Rsa(Box<rsa::KeyPair>),
    Ecdsa(Box<EcdsaKeyPair>),
}

impl PublicKey {
    /// Parses all keys of a PEM file: public keys, private keys, certificates.
    pub fn from_pem(pem: &str) -> Result<Vec<Self>, KeyError> {
        let mut keys = Vec::new();
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem.as_bytes()) {
            let (kind, der) = section?;
            keys.push(match kind {
                SectionKind::PublicKey => Self::from_der(&der)?,
                SectionKind::Certificate => {
                    let (_, certificate) = X509Certificate::from_der(&der).map_err(|_| KeyError::NotPublic)?;
                    Self::from_der(certificate.public_key().raw)?
                }
                SectionKind::RsaPrivateKey | SectionKind::PrivateKey | SectionKind::EcPrivateKey => {
                    SigningKey::from_section(kind, &der)?.public_key()?
                }
                _ => continue,
            });
        }
        if keys.is_empty() { Err(KeyError::NotPublic) } else { Ok(keys) }
    }
}

impl SigningKey {
    /// Parses a private key.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let is_private = |section: &Result<(SectionKind, Vec<u8>), _>| {
            let Ok((kind, _)) = section else { return true };
            matches!(kind, SectionKind::RsaPrivateKey | SectionKind::PrivateKey | SectionKind::EcPrivateKey)
        };
        let section = <(SectionKind, Vec<u8>)>::pem_slice_iter(pem.as_bytes()).find(is_private);
        let (kind, der) = section.ok_or(rustls::pki_types::pem::Error::NoItemsFound)??;
        Self::from_section(kind, &der)
    }

    /// Parses a private key in a PEM section.
    pub fn from_section(kind: SectionKind, der: &[u8]) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let rsa = |pair| SigningKeyPair::Rsa(Box::new(pair));
        let elliptic = |pkcs8: &[u8]| {
            let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random);
            pair.map(|pair| SigningKeyPair::Ecdsa(Box::new(pair)))
        };
        let pair = match kind {
            SectionKind::RsaPrivateKey => rsa::KeyPair::from_der(der).map(rsa),
            SectionKind::PrivateKey => elliptic(der).or_else(|_| rsa::KeyPair::from_pkcs8(der).map(rsa)),
            SectionKind::EcPrivateKey => elliptic(&sec1_to_pkcs8(der)),
            _ => return Err(KeyError::Unsupported),
        };
        let pair = pair.map_err(|_| KeyError::Unsupported)?;
        let id = PublicKey::from_der(&pair.public_der()).map_err(|_| KeyError::Unsupported)?.id().to_owned();
        Ok(Self { pair, id, random })
    }

    /// Returns the public key.
    pub fn public_key(&self) -> Result<PublicKey, KeyError> {
        PublicKey::from_der(&self.pair.public_der())
    }

    /// The key ID: a digest of the public key.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The JWS algorithm.
    pub fn algorithm(&self) -> &'static str {
        match self.pair {
            SigningKeyPair::Rsa(_) => "RS256",
            SigningKeyPair::Ecdsa(_) => "ES256",
        }
    }

    /// Signs a message.
    pub fn sign_message(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        match &self.pair {
            SigningKeyPair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &self.random, message, &mut signature).map_err(|_| KeyError::Sign)?;
                Ok(signature)
            }
            SigningKeyPair::Ecdsa(pair) => {
                let signature = pair.sign(&self.random, message).map_err(|_| KeyError::Sign)?;
                Ok(signature.as_ref().to_vec())
            }
        }
    }
}

const RSA: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
const P256: &[u8] =
    &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];

/// Wraps a SEC 1 key on P-256 in PKCS#8.
fn sec1_to_pkcs8(sec1: &[u8]) -> Vec<u8> {
    encode_der(0x30, &[vec![0x02, 0x01, 0x00], encode_der(0x30, P256), encode_der(0x04, sec1)].concat())
}

impl SigningKeyPair {
    /// The public key as `SubjectPublicKeyInfo`.
    fn public_der(&self) -> Vec<u8> {
        let (algorithm, key) = match self {
            SigningKeyPair::Rsa(pair) => (RSA, pair.public().as_ref().to_vec()),
            SigningKeyPair::Ecdsa(pair) => (P256, pair.public_key().as_ref().to_vec()),
        };
        let bits = [&[0], key.as_slice()].concat();
        encode_der(0x30, &[encode_der(0x30, algorithm), encode_der(0x03, &bits)].concat())
    }
}

/// Encodes a DER value; keys are shorter than 64 KiB.
fn encode_der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len() as u16;
    let [high, low] = length.to_be_bytes();
    let head = match length {
        0..0x80 => vec![tag, low],
        0x80..0x100 => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    [head, content.to_vec()].concat()
}
