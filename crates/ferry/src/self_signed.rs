//! Self-signed serving certificates of components that are given none.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::Path,
    time::SystemTime,
};

use anyhow::{Context, anyhow};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::{atomic, pki};

/// A certificate chain and its key.
pub type TlsIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The subject of a self-signed certificate.
pub struct SelfSignedCertificate<'a> {
    /// The name of the files, without suffix.
    pub pair_name: &'a str,
    /// The host's name.
    pub host: &'a str,
    /// DNS names besides `localhost` and the host.
    pub names: &'a [&'a str],
    /// Addresses besides 127.0.0.1.
    pub ips: Vec<IpAddr>,
}

impl SelfSignedCertificate<'_> {
    /// Returns the certificate that an earlier start made in `directory`, or makes it. Without a directory it is kept in
    /// memory only.
    pub fn load_or_create(&self, directory: Option<&Path>) -> anyhow::Result<TlsIdentity> {
        let Some(directory) = directory else {
            let (certificate, key) = self.create()?;
            return parse_pair(&certificate, &key);
        };
        let file = |suffix: &str| directory.join(format!("{}.{suffix}", self.pair_name));
        let (certificate_file, key_file) = (file("crt"), file("key"));
        if !certificate_file.exists() || !key_file.exists() {
            fs::create_dir_all(directory).with_context(|| format!("--cert-dir {}", directory.display()))?;
            let (certificate, key) = self.create()?;
            // The key first: it is never taken for a pair without its certificate.
            atomic::write_file(&key_file, key.as_bytes(), atomic::PRIVATE)?;
            atomic::write_file(&certificate_file, certificate.as_bytes(), atomic::PUBLIC)?;
            tracing::info!(file = %certificate_file.display(), "made a self-signed certificate");
        }
        let read = |file: &Path| fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()));
        parse_pair(&read(&certificate_file)?, &read(&key_file)?).with_context(|| certificate_file.display().to_string())
    }

    fn create(&self) -> anyhow::Result<(String, String)> {
        let names = self.names.iter().copied().chain(["localhost", self.host]).map(str::to_owned);
        let mut params = CertificateParams::new(names.collect::<Vec<_>>())?;
        params.distinguished_name.push(DnType::CommonName, format!("{}@self-signed", self.host));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let ips = [IpAddr::V4(Ipv4Addr::LOCALHOST)].into_iter().chain(self.ips.iter().copied());
        params.subject_alt_names.extend(ips.map(SanType::IpAddress));
        pki::set_year(&mut params, SystemTime::now());
        let key = KeyPair::generate()?;
        Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
    }
}

fn parse_pair(certificate: &str, key: &str) -> anyhow::Result<TlsIdentity> {
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    if chain.is_empty() {
        return Err(anyhow!("there is no certificate"));
    }
    Ok((chain, PrivateKeyDer::from_pem_slice(key.as_bytes())?))
}
