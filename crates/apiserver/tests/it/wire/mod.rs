//! A server on a TLS port of loopback, as other machines see it, and what it takes to reach it.
//!
//! Each test starts its own, on a port that the kernel chooses and with an authority of its own. It ends when dropped.

#![allow(dead_code, unused_imports, reason = "each test uses a part")]

mod client;

use std::sync::Arc;

pub use client::{Answer, Call, Client, JSON};
use ferry_apiserver::{Server, ServerOptions, client_verifier};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::danger::ClientCertVerifier,
};
use store::Store;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::fixture;

/// A running server.
pub struct Wire {
    /// The port on loopback.
    pub port: u16,
    /// The store.
    pub store: Arc<dyn Store>,
    identities: Identities,
    ending: CancellationToken,
    _dir: tempfile::TempDir,
}

impl Wire {
    /// A server with upstream's settings on an empty store.
    pub async fn start() -> Self {
        let admission = fixture::without_accounts();
        Self::start_with(ServerOptions { admission, ..ServerOptions::default() }).await
    }

    /// A server on an empty store.
    pub async fn start_with(mut settings: ServerOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = store::EmbeddedStore::open(dir.path(), store::EmbeddedOptions::default()).await.unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        let identities = Identities::create();
        settings.authentication.client_ca = Some(ferry_apiserver::CaBundle::from_pem(&identities.pem).unwrap());
        let tls = identities.server(client_verifier(&settings.authentication));
        let server = Server::with_options(fixture::config(store.clone()), settings).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let ending = CancellationToken::new();
        tokio::spawn(server.serve(listener, tls, ending.clone()));
        Self { port, store, identities, ending, _dir: dir }
    }

    /// An administrator on an HTTP/2 connection of its own.
    pub async fn client(&self) -> Client {
        Client::connect(self.port, &self.tls(&["h2"])).await.expect("the server takes connections")
    }

    /// A client without a certificate, on an HTTP/2 connection of its own.
    pub async fn stranger(&self) -> Client {
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
        let mut tls = builder.with_root_certificates(self.identities.roots()).with_no_client_auth();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Client::connect(self.port, &Arc::new(tls)).await.expect("the server takes connections")
    }

    /// The kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> String {
        let encode = |der: &[u8], name: &str| {
            let text = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, der);
            let pem = format!("-----BEGIN {name}-----\n{text}\n-----END {name}-----\n");
            base64::Engine::encode(&base64::prelude::BASE64_STANDARD, pem)
        };
        let (certificate, key) = &self.identities.administrator;
        let cluster = serde_json::json!({"server": format!("https://127.0.0.1:{}", self.port),
            "certificate-authority-data": encode(&self.identities.authority, "CERTIFICATE")});
        let user = serde_json::json!({"client-certificate-data": encode(certificate, "CERTIFICATE"),
            "client-key-data": encode(key.secret_der(), "PRIVATE KEY")});
        serde_json::json!({"apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]})
        .to_string()
    }

    /// Asks it to end.
    pub fn end(&self) {
        self.ending.cancel();
    }

    /// The TLS configuration of an administrator that offers these protocols.
    pub fn tls(&self, protocols: &[&str]) -> Arc<ClientConfig> {
        self.identities.client(protocols)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.ending.cancel();
    }
}

type Identity = (CertificateDer<'static>, PrivateKeyDer<'static>);

/// An authority, and who it vouches for.
struct Identities {
    authority: CertificateDer<'static>,
    pem: String,
    server: Identity,
    administrator: Identity,
}

impl Identities {
    fn create() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test-ca");
        let authority = params.self_signed(&key).unwrap();
        let (authority, pem) = (authority.der().clone(), authority.pem());
        let issuer = Issuer::from_params(&params, &key);
        let leaf = |name: &str, group: &str| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
            params.distinguished_name.push(DnType::CommonName, name);
            params.distinguished_name.push(DnType::OrganizationName, group);
            let certificate = params.signed_by(&key, &issuer).unwrap().der().clone();
            (certificate, PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())))
        };
        Self { authority, pem, server: leaf("server", "servers"), administrator: leaf("admin", "system:masters") }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.clone()).unwrap();
        roots
    }

    fn server(&self, verifier: Arc<dyn ClientCertVerifier>) -> Arc<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_client_cert_verifier(verifier);
        let (certificate, key) = &self.server;
        let mut config = builder.with_single_cert(vec![certificate.clone()], key.clone_key()).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }

    fn client(&self, protocols: &[&str]) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
        let (certificate, key) = &self.administrator;
        let builder = builder.with_root_certificates(self.roots());
        let mut config = builder.with_client_auth_cert(vec![certificate.clone()], key.clone_key()).unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
