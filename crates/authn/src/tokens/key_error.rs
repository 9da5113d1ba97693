//! Errors of signing and verification keys.

/// An unusable key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The key is not PEM.
    #[error("the key of service accounts is not a key in PEM: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// The signing key is not supported.
    #[error(
        "the key of service accounts is not supported: RSA (PKCS#1 or PKCS#8) of 2048 bits or more, or ECDSA on P-256 \
         (PKCS#8 or SEC 1 with its public half) is needed"
    )]
    Unsupported,
    /// The verification key is not supported.
    #[error(
        "no key that verifies tokens of service accounts: RSA of 2048 bits or more, or ECDSA on P-256 or P-384, is needed, as \
         a public key, a private key or a certificate in PEM"
    )]
    NotPublic,
    /// Signing failed.
    #[error("a token cannot be signed")]
    Sign,
}
