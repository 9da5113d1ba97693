//! One authority, a certificate for the servers and one for the client, as files for the servers' flags.

use std::{fs, path::Path, path::PathBuf, sync::Arc};

use anyhow::Context;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::json;

/// The certificates of a run.
pub struct BenchPki {
    /// The authority.
    pub ca: PathBuf,
    /// The serving certificate.
    pub server: (PathBuf, PathBuf),
    /// The key pair of service account tokens.
    pub tokens: (PathBuf, PathBuf),
    /// The administrator's certificate.
    pub client: (PathBuf, PathBuf),
}

impl BenchPki {
    /// Makes them under a directory.
    pub fn create(dir: &Path) -> anyhow::Result<Self> {
        let ca_key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "bench-ca");
        let ca = params.self_signed(&ca_key)?;
        let issuer = Issuer::from_params(&params, &ca_key);
        let leaf = |name: &str, organization: Option<&str>| -> anyhow::Result<(PathBuf, PathBuf)> {
            let key = KeyPair::generate()?;
            let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
            params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
            params.distinguished_name.push(DnType::CommonName, name);
            if let Some(organization) = organization {
                params.distinguished_name.push(DnType::OrganizationName, organization);
            }
            let certificate = params.signed_by(&key, &issuer)?;
            let files = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
            fs::write(&files.0, certificate.pem())?;
            fs::write(&files.1, key.serialize_pem())?;
            Ok(files)
        };
        let file = dir.join("ca.crt");
        fs::write(&file, ca.pem())?;
        let (server, client) = (leaf("server", None)?, leaf("admin", Some("system:masters"))?);
        let (key, tokens) = (KeyPair::generate()?, (dir.join("tokens.key"), dir.join("tokens.pub")));
        fs::write(&tokens.0, key.serialize_pem())?;
        fs::write(&tokens.1, key.public_key_pem())?;
        Ok(Self { ca: file, server, tokens, client })
    }

    /// A kubeconfig of the client for the server at a port of loopback.
    pub fn kubeconfig(&self, port: u16) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "clusters": [{"name": "bench", "cluster": {
                "server": format!("https://127.0.0.1:{port}"), "certificate-authority": self.ca}}],
            "users": [{"name": "bench", "user": {
                "client-certificate": self.client.0, "client-key": self.client.1}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        })
        .to_string()
    }

    /// The client's TLS configuration.
    pub fn client(&self) -> anyhow::Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.ca).context("the authority")?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let chain = vec![CertificateDer::from_pem_file(&self.client.0).context("the client's certificate")?];
        let key = PrivateKeyDer::from_pem_file(&self.client.1).context("the client's key")?;
        let mut config = builder.with_root_certificates(roots).with_client_auth_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }
}
