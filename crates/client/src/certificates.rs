//! TLS certificates that are re-read from their files while the process runs.
//!
//! A [`ReloadingCertificate`] resolves the serving or client certificate of new connections, so that renewed files take
//! effect without a restart. Invalid or half-written files are logged and the current certificate stays in use.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use rustls::{
    SignatureScheme,
    client::ResolvesClientCert,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio_util::sync::CancellationToken;

/// Interval at which files are checked for changes.
const RELOAD_PERIOD: Duration = Duration::from_secs(60);

/// A certificate and its key could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file is unreadable.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A file is not PEM.
    #[error("{}: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The PEM error.
        source: rustls::pki_types::pem::Error,
    },
    /// The key is unsupported or does not belong to the certificate.
    #[error("{}: {source}", path.display())]
    Key {
        /// The key file.
        path: PathBuf,
        /// The TLS error.
        source: rustls::Error,
    },
}

/// A certificate chain and key that follow their PEM files.
#[derive(Debug)]
pub struct ReloadingCertificate {
    certificate_file: PathBuf,
    key_file: PathBuf,
    provider: Arc<CryptoProvider>,
    current: RwLock<Arc<CertifiedKey>>,
}

impl ReloadingCertificate {
    /// Loads the certificate; fails if the files are not usable.
    pub fn load(
        certificate_file: &Path,
        key_file: &Path,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<Self>, CertificateError> {
        let current = RwLock::new(Arc::new(read_certified_key(certificate_file, key_file, &provider)?));
        let (certificate_file, key_file) = (certificate_file.to_owned(), key_file.to_owned());
        Ok(Arc::new(Self { certificate_file, key_file, provider, current }))
    }

    /// Returns the current certificate and key.
    pub fn current(&self) -> Arc<CertifiedKey> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files again; returns whether the certificate changed. Blocks.
    pub fn reload(&self) -> Result<bool, CertificateError> {
        let new = read_certified_key(&self.certificate_file, &self.key_file, &self.provider)?;
        let changed = new.cert != self.current().cert;
        if changed {
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        }
        Ok(changed)
    }

    /// Reloads periodically until `shutdown`.
    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        while shutdown.run_until_cancelled(tokio::time::sleep(RELOAD_PERIOD)).await.is_some() {
            let certificate = self.clone();
            let file = self.certificate_file.display();
            match tokio::task::spawn_blocking(move || certificate.reload()).await {
                Ok(Ok(true)) => tracing::info!(%file, "certificates: reloaded"),
                Ok(Ok(false)) => {}
                Ok(Err(error)) => tracing::warn!(%error, "certificates: reload failed, keeping the current one"),
                Err(error) => tracing::error!(%error, "certificates: reload panicked"),
            }
        }
    }
}

fn read_certified_key(
    certificate_file: &Path,
    key_file: &Path,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, CertificateError> {
    let read = |path: &Path| fs::read(path).map_err(|source| CertificateError::Read { path: path.into(), source });
    let pem = |path: &Path| {
        let path = path.to_owned();
        move |source| CertificateError::Pem { path, source }
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(certificate_file)?).collect();
    let chain = chain.map_err(pem(certificate_file))?;
    let key = PrivateKeyDer::from_pem_slice(&read(key_file)?).map_err(pem(key_file))?;
    CertifiedKey::from_der(chain, key, provider)
        .map_err(|source| CertificateError::Key { path: key_file.into(), source })
}

impl ResolvesServerCert for ReloadingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl ResolvesClientCert for ReloadingCertificate {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let current = self.current();
        current.key.choose_scheme(schemes).is_some().then_some(current)
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_pair(directory: &Path, name: &str) -> rcgen::KeyPair {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap();
        fs::write(directory.join("tls.crt"), certificate.pem()).unwrap();
        fs::write(directory.join("tls.key"), key.serialize_pem()).unwrap();
        key
    }

    fn load(directory: &Path) -> Arc<ReloadingCertificate> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        ReloadingCertificate::load(&directory.join("tls.crt"), &directory.join("tls.key"), provider).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn renewed_files_take_effect_and_broken_ones_do_not() {
        let directory = tempfile::tempdir().unwrap();
        write_pair(directory.path(), "old");
        let certificate = load(directory.path());
        let old = certificate.current();
        assert!(!certificate.reload().unwrap());
        fs::write(directory.path().join("tls.crt"), "-----BEGIN CERTIFICATE-----\nAAAA").unwrap();
        assert!(certificate.reload().is_err());
        assert_eq!(certificate.current().cert, old.cert);

        let key = write_pair(directory.path(), "new");
        let shutdown = CancellationToken::new();
        let reloading = tokio::spawn(certificate.clone().run(shutdown.clone()));
        tokio::time::sleep(RELOAD_PERIOD * 2).await;
        while certificate.current().cert == old.cert {
            tokio::task::yield_now().await;
        }
        shutdown.cancel();
        reloading.await.unwrap();

        // A certificate whose key was not written yet does not take effect.
        let new = certificate.current();
        write_pair(directory.path(), "newer");
        fs::write(directory.path().join("tls.key"), key.serialize_pem()).unwrap();
        assert!(certificate.reload().is_err());
        assert_eq!(certificate.current().cert, new.cert);
    }
}
