//! The ciphers of kube-apiserver and their stored format: `k8s:enc:<cipher>:v1:<key name>:<bytes>`.

use aes::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit, block_padding::Pkcs7};
use aes_gcm::{
    AesGcm, KeyInit,
    aead::{Aead, OsRng, Payload, rand_core::RngCore},
    aes::{Aes128, Aes192, Aes256},
};
use bytes::Bytes;
use crypto_secretbox::XSalsa20Poly1305;

/// The prefix of every encrypted document.
pub(super) const ENCRYPTED_PREFIX: &[u8] = b"k8s:enc:";

type Gcm<A> = AesGcm<A, aes_gcm::aead::consts::U12>;

/// A document that cannot be encrypted or decrypted.
#[derive(Debug, thiserror::Error)]
pub(super) enum TransformError {
    #[error("it is encrypted with a key that --encryption-provider-config does not have")]
    NoKey,
    #[error("it is not encrypted, and --encryption-provider-config has no identity provider for it")]
    NotEncrypted,
    #[error("it cannot be decrypted with key {0:?}: the key is another one, or the document is damaged")]
    Damaged(String),
}

/// A cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CipherKind {
    AesCbc,
    AesGcm,
    SecretBox,
    Identity,
}

impl CipherKind {
    fn name(self) -> &'static str {
        match self {
            Self::AesCbc => "aescbc",
            Self::AesGcm => "aesgcm",
            Self::SecretBox => "secretbox",
            Self::Identity => "identity",
        }
    }

    /// The lengths that a key of it may have.
    pub fn key_lengths(self) -> &'static [usize] {
        match self {
            Self::AesCbc | Self::AesGcm => &[16, 24, 32],
            Self::SecretBox => &[32],
            Self::Identity => &[],
        }
    }

    fn nonce_len(self) -> usize {
        match self {
            Self::AesCbc => 16,
            Self::AesGcm => 12,
            Self::SecretBox => 24,
            Self::Identity => 0,
        }
    }
}

/// A cipher with one named key.
#[derive(Clone)]
pub(super) struct KeyProvider {
    cipher: CipherKind,
    name: String,
    prefix: Vec<u8>,
    key: Vec<u8>,
}

impl KeyProvider {
    /// The key has one of the cipher's lengths.
    pub fn new(cipher: CipherKind, name: &str, key: Vec<u8>) -> Self {
        let prefix = format!("k8s:enc:{}:v1:{name}:", cipher.name()).into_bytes();
        Self { cipher, name: name.into(), prefix, key }
    }

    pub fn is_identity(&self) -> bool {
        self.cipher == CipherKind::Identity
    }

    /// Returns whether this provider encrypted a document.
    pub fn has_encrypted(&self, value: &[u8]) -> bool {
        !self.is_identity() && value.starts_with(&self.prefix)
    }

    pub fn encrypt_value(&self, context: &[u8], value: Bytes) -> Result<Bytes, TransformError> {
        if self.is_identity() {
            return Ok(value);
        }
        let mut nonce = [0; 24];
        let nonce = &mut nonce[..self.cipher.nonce_len()];
        OsRng.fill_bytes(nonce);
        let sealed = self.encrypt(nonce, context, &value).ok_or_else(|| self.decryption_error())?;
        Ok([&self.prefix, &*nonce, &sealed].concat().into())
    }

    pub fn decrypt_value(&self, context: &[u8], value: Bytes) -> Result<Bytes, TransformError> {
        let sealed = value.strip_prefix(&*self.prefix).unwrap_or_default();
        let opened = sealed.split_at_checked(self.cipher.nonce_len());
        let opened = opened.and_then(|(nonce, sealed)| self.decrypt(nonce, context, sealed));
        opened.map(Into::into).ok_or_else(|| self.decryption_error())
    }

    fn decryption_error(&self) -> TransformError {
        TransformError::Damaged(self.name.clone())
    }

    fn encrypt(&self, nonce: &[u8], context: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        let key = &*self.key;
        let payload = Payload { msg: value, aad: context };
        match (self.cipher, key.len()) {
            (CipherKind::AesCbc, 16) => Some(cbc_encrypt::<aes::Aes128>(key, nonce, value)?),
            (CipherKind::AesCbc, 24) => Some(cbc_encrypt::<aes::Aes192>(key, nonce, value)?),
            (CipherKind::AesCbc, 32) => Some(cbc_encrypt::<aes::Aes256>(key, nonce, value)?),
            (CipherKind::AesGcm, 16) => Gcm::<Aes128>::new_from_slice(key).ok()?.encrypt(nonce.into(), payload).ok(),
            (CipherKind::AesGcm, 24) => Gcm::<Aes192>::new_from_slice(key).ok()?.encrypt(nonce.into(), payload).ok(),
            (CipherKind::AesGcm, 32) => Gcm::<Aes256>::new_from_slice(key).ok()?.encrypt(nonce.into(), payload).ok(),
            (CipherKind::SecretBox, 32) => {
                XSalsa20Poly1305::new_from_slice(key).ok()?.encrypt(nonce.into(), value).ok()
            }
            _ => None,
        }
    }

    fn decrypt(&self, nonce: &[u8], context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let key = &*self.key;
        let payload = Payload { msg: sealed, aad: context };
        match (self.cipher, key.len()) {
            (CipherKind::AesCbc, 16) => cbc_decrypt::<aes::Aes128>(key, nonce, sealed),
            (CipherKind::AesCbc, 24) => cbc_decrypt::<aes::Aes192>(key, nonce, sealed),
            (CipherKind::AesCbc, 32) => cbc_decrypt::<aes::Aes256>(key, nonce, sealed),
            (CipherKind::AesGcm, 16) => Gcm::<Aes128>::new_from_slice(key).ok()?.decrypt(nonce.into(), payload).ok(),
            (CipherKind::AesGcm, 24) => Gcm::<Aes192>::new_from_slice(key).ok()?.decrypt(nonce.into(), payload).ok(),
            (CipherKind::AesGcm, 32) => Gcm::<Aes256>::new_from_slice(key).ok()?.decrypt(nonce.into(), payload).ok(),
            (CipherKind::SecretBox, 32) => {
                XSalsa20Poly1305::new_from_slice(key).ok()?.decrypt(nonce.into(), sealed).ok()
            }
            _ => None,
        }
    }
}

fn cbc_encrypt<A>(key: &[u8], iv: &[u8], value: &[u8]) -> Option<Vec<u8>>
where
    A: aes::cipher::BlockEncryptMut + aes::cipher::BlockCipher + aes::cipher::KeyInit,
{
    Some(cbc::Encryptor::<A>::new_from_slices(key, iv).ok()?.encrypt_padded_vec_mut::<Pkcs7>(value))
}

fn cbc_decrypt<A>(key: &[u8], iv: &[u8], sealed: &[u8]) -> Option<Vec<u8>>
where
    A: aes::cipher::BlockDecryptMut + aes::cipher::BlockCipher + aes::cipher::KeyInit,
{
    cbc::Decryptor::<A>::new_from_slices(key, iv).ok()?.decrypt_padded_vec_mut::<Pkcs7>(sealed).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<_> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
    }

    #[track_caller]
    fn check(cipher: CipherKind, key: &str, nonce: &str, context: &str, plain: &str, sealed: &str) {
        let provider = KeyProvider::new(cipher, "k", hex(key));
        let (nonce, context, plain, sealed) = (hex(nonce), hex(context), hex(plain), hex(sealed));
        let encrypted = provider.encrypt(&nonce, &context, &plain).unwrap();
        assert_eq!(encrypted[..sealed.len()], sealed);
        assert_eq!(provider.decrypt(&nonce, &context, &encrypted).unwrap(), plain);
    }

    #[test]
    fn ciphers_match_published_vectors() {
        // NIST SP 800-38A, F.2.1 and F.2.5: the first block.
        let (iv, plain) = ("000102030405060708090a0b0c0d0e0f", "6bc1bee22e409f96e93d7e117393172a");
        check(
            CipherKind::AesCbc,
            "2b7e151628aed2a6abf7158809cf4f3c",
            iv,
            "",
            plain,
            "7649abac8119b246cee98e9b12e9197d",
        );
        let key = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4";
        check(CipherKind::AesCbc, key, iv, "", plain, "f58c4c04d6e5f1ba779eabfb5f7bfbd6");
        // The GCM specification, test cases 4 and 16.
        let (nonce, context) = ("cafebabefacedbaddecaf888", "feedfacedeadbeeffeedfacedeadbeefabaddad2");
        let plain = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525\
                     b16aedf5aa0de657ba637b39";
        let sealed = "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa05\
                      1ba30b396a0aac973d58e0915bc94fbc3221a5db94fae95ae7121a47";
        check(CipherKind::AesGcm, "feffe9928665731c6d6a8f9467308308", nonce, context, plain, sealed);
        let key = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308";
        let sealed = "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838\
                      c5f61e6393ba7a0abcc9f66276fc6ece0f4e1768cddf8853bb2d551b";
        check(CipherKind::AesGcm, key, nonce, context, plain, sealed);
        // NaCl's crypto_secretbox test: the tag comes first.
        let key = "1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389";
        let nonce = "69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37";
        let plain = "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c6129\
                     6cdc3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde\
                     048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f937763848645e0705";
        let sealed = "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186a\
                      c0dfc17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae\
                      90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74\
                      e355a5";
        check(CipherKind::SecretBox, key, nonce, "", plain, sealed);
    }

    #[test]
    fn ciphertext_is_bound_to_key_name_and_storage_key() {
        for cipher in [CipherKind::AesCbc, CipherKind::AesGcm, CipherKind::SecretBox] {
            for length in cipher.key_lengths() {
                let provider = KeyProvider::new(cipher, "k1", vec![7; *length]);
                let value = Bytes::from_static(b"{\"a\":1}");
                let sealed = provider.encrypt_value(b"/registry/secrets/a/b", value.clone()).unwrap();
                assert!(sealed.starts_with(format!("k8s:enc:{}:v1:k1:", cipher.name()).as_bytes()));
                assert!(
                    provider.has_encrypted(&sealed)
                        && !KeyProvider::new(cipher, "k2", vec![7; *length]).has_encrypted(&sealed)
                );
                assert_eq!(provider.decrypt_value(b"/registry/secrets/a/b", sealed.clone()).unwrap(), value);
                assert!(provider.decrypt_value(b"/registry/secrets/a/b", sealed.slice(..sealed.len() - 1)).is_err());
                if cipher == CipherKind::AesGcm {
                    assert!(provider.decrypt_value(b"/registry/secrets/a/c", sealed).is_err(), "moved to another key");
                }
            }
        }
    }
}
