//! A server on an empty store, for tests of this crate's own parts.

use std::sync::Arc;

use authn::TokenIssuer;

use crate::{Server, ServerConfig, ServerOptions};

/// A server, and the directory that it lives in.
pub async fn start_server(settings: ServerOptions) -> (Server, tempfile::TempDir) {
    start_server_with_tokens(settings, None).await
}

/// As [`start_server`], with tokens of service accounts.
pub async fn start_server_with_tokens(
    settings: ServerOptions,
    tokens: Option<TokenIssuer>,
) -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = store::EmbeddedStore::open(dir.path(), store::EmbeddedOptions::default()).await.unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    // Kubelet certificates are not verified.
    let config = ServerConfig {
        store: Arc::new(store),
        kubelet_tls: apiserver_core::backend::without_verification(&tls),
        tokens,
    };
    (Server::with_options(config, settings).await.unwrap(), dir)
}
