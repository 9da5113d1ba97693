//! TLS of the API server from the files that its flags name; a self-signed certificate where none is named.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::Path,
    sync::Arc,
    time::SystemTime,
};

use anyhow::{Context, anyhow};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    version::{TLS12, TLS13},
};

use super::options::Options;
use crate::{
    atomic,
    pki::{self, provider},
};

/// How the server answers TLS; clients may show certificates.
pub fn serving(options: &Options) -> anyhow::Result<Arc<ServerConfig>> {
    let (chain, key) = match &options.files.serving {
        Some((certificate, key)) => pair(certificate, key)?,
        None => self_signed(options)?,
    };
    let versions: &[_] = if options.files.tls13_only { &[&TLS13] } else { &[&TLS13, &TLS12] };
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(versions)?;
    let builder = builder.with_client_cert_verifier(apiserver::client_verifier(&options.settings.authentication));
    let mut config = builder.with_single_cert(chain, key)?;
    if options.settings.serving.http2 {
        config.alpn_protocols.push(b"h2".to_vec());
    }
    config.alpn_protocols.push(b"http/1.1".to_vec());
    config.ignore_client_order = true;
    Ok(Arc::new(config))
}

/// How kubelets are reached.
pub fn kubelet_client(options: &Options) -> anyhow::Result<Arc<ClientConfig>> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let authority = options.files.kubelet_ca.as_ref();
    let roots = authority.map_or_else(|| Ok(RootCertStore::empty()), |file| roots([read(file)?.as_str()]))?;
    let builder = builder.with_root_certificates(roots);
    let config = match &options.files.kubelet_client {
        Some((certificate, key)) => {
            let (chain, key) = pair(certificate, key)?;
            builder.with_client_auth_cert(chain, key)?
        }
        None => builder.with_no_client_auth(),
    };
    // Without an authority any certificate of a kubelet is taken, as upstream does.
    Ok(if authority.is_some() { Arc::new(config) } else { apiserver::unverified(&config) })
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn pair(certificate: &Path, key: &Path) -> anyhow::Result<Identity> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(read(certificate)?.as_bytes()).collect();
    let chain = chain.with_context(|| certificate.display().to_string())?;
    if chain.is_empty() {
        return Err(anyhow!("{} has no certificate", certificate.display()));
    }
    let key = PrivateKeyDer::from_pem_slice(read(key)?.as_bytes()).with_context(|| key.display().to_string())?;
    Ok((chain, key))
}

fn read(file: &Path) -> anyhow::Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

fn roots<'a>(authorities: impl IntoIterator<Item = &'a str>) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for pem in authorities {
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            roots.add(certificate?)?;
        }
    }
    Ok(roots)
}

/// The certificate that an earlier start made, or a new one.
fn self_signed(options: &Options) -> anyhow::Result<Identity> {
    let directory = &options.files.cert_dir;
    let (certificate_file, key_file) = (directory.join("apiserver.crt"), directory.join("apiserver.key"));
    if certificate_file.exists() && key_file.exists() {
        return pair(&certificate_file, &key_file);
    }
    fs::create_dir_all(directory).with_context(|| format!("--cert-dir {}", directory.display()))?;
    let key = KeyPair::generate()?;
    let certificate = parameters(options)?.self_signed(&key)?;
    // The key first: it is never taken for a pair without its certificate.
    atomic::write(&key_file, key.serialize_pem().as_bytes(), atomic::PRIVATE)?;
    atomic::write(&certificate_file, certificate.pem().as_bytes(), atomic::PUBLIC)?;
    tracing::info!(file = %certificate_file.display(), "made a self-signed certificate");
    pair(&certificate_file, &key_file)
}

fn parameters(options: &Options) -> anyhow::Result<CertificateParams> {
    let host = &options.settings.host_name;
    let names =
        ["kubernetes.default.svc", "kubernetes.default", "kubernetes", "localhost", host.as_str()].map(str::to_owned);
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, format!("{host}@self-signed"));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let service = options.settings.service_networks.iter().map(|network| network.at(1));
    let mut ips: Vec<IpAddr> = [IpAddr::V4(Ipv4Addr::LOCALHOST)].into_iter().chain(service).collect();
    ips.extend(options.settings.advertise.map(|(ip, _)| ip));
    params.subject_alt_names.extend(ips.into_iter().map(SanType::IpAddress));
    pki::set_year(&mut params, SystemTime::now());
    Ok(params)
}
