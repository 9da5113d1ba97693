//! TLS of the API server from the files that its flags name; a self-signed certificate where none is named.

use std::{fs, path::Path, sync::Arc};

use anyhow::Context;
use client::certificates::ReloadingCertificate;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, pem::PemObject},
    server::danger::ClientCertVerifier,
    version::{TLS12, TLS13},
};
use tokio_util::sync::CancellationToken;

use super::options::ApiServerOptions;
use crate::{
    pki::crypto_provider,
    self_signed::{SelfSignedCertificate, TlsIdentity},
};

/// The serving TLS configuration, with optional client certificates.
pub fn serving_config(
    options: &ApiServerOptions,
    verifier: Arc<dyn ClientCertVerifier>,
) -> anyhow::Result<Arc<ServerConfig>> {
    let versions: &[_] = if options.files.tls13_only { &[&TLS13] } else { &[&TLS13, &TLS12] };
    let builder = ServerConfig::builder_with_provider(crypto_provider()).with_protocol_versions(versions)?;
    let builder = builder.with_client_cert_verifier(verifier);
    let mut config = match &options.files.serving {
        Some(certificate) => builder.with_cert_resolver(certificate.clone()),
        None => {
            let (chain, key) = self_signed(options)?;
            builder.with_single_cert(chain, key)?
        }
    };
    if options.settings.serving.http2 {
        config.alpn_protocols.push(b"h2".to_vec());
    }
    config.alpn_protocols.push(b"http/1.1".to_vec());
    config.ignore_client_order = true;
    Ok(Arc::new(config))
}

/// The TLS configuration for kubelets.
pub fn kubelet_client(options: &ApiServerOptions) -> anyhow::Result<Arc<ClientConfig>> {
    let builder = ClientConfig::builder_with_provider(crypto_provider()).with_safe_default_protocol_versions()?;
    let authority = options.files.kubelet_ca.as_ref();
    let roots = authority.map_or_else(|| Ok(RootCertStore::empty()), |file| root_store([read_file(file)?.as_str()]))?;
    let builder = builder.with_root_certificates(roots);
    let config = match &options.files.kubelet_client {
        Some(certificate) => builder.with_client_cert_resolver(certificate.clone()),
        None => builder.with_no_client_auth(),
    };
    // Without an authority any certificate of a kubelet is taken, as upstream does.
    Ok(if authority.is_some() { Arc::new(config) } else { apiserver::without_verification(&config) })
}

/// Reads the files of certificates again when they change, until `shutdown`.
pub async fn run_reload(certificates: Vec<Arc<ReloadingCertificate>>, shutdown: CancellationToken) {
    futures::future::join_all(certificates.into_iter().map(|certificate| certificate.run(shutdown.clone()))).await;
    shutdown.cancelled().await;
}

fn read_file(file: &Path) -> anyhow::Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

fn root_store<'a>(authorities: impl IntoIterator<Item = &'a str>) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for pem in authorities {
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            roots.add(certificate?)?;
        }
    }
    Ok(roots)
}

/// The certificate that an earlier start made, or a new one.
fn self_signed(options: &ApiServerOptions) -> anyhow::Result<TlsIdentity> {
    let service = options.settings.service_networks.iter().map(|network| network.address_at(1));
    let subject = SelfSignedCertificate {
        pair_name: "apiserver",
        host: &options.settings.host_name,
        names: &["kubernetes.default.svc", "kubernetes.default", "kubernetes"],
        ips: service.chain(options.settings.advertise.map(|(ip, _)| ip)).collect(),
    };
    subject.load_or_create(Some(&options.files.cert_dir))
}
