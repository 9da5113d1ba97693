//! Validates the `--etcd-*` flags and connects.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::{
    EtcdStore, KeyLayout,
    client::EtcdClient,
    retry::{CallKind, retry_call},
};
use crate::{Store, StoreError};

/// Time for the first response of the cluster.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The first patch release of each minor release whose responses to progress requests are reliable.
const RELIABLE_PROGRESS_SINCE: [(u32, u32, u32); 2] = [(3, 4, 31), (3, 5, 13)];

/// Connection options for an etcd cluster.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// `--etcd-servers`: URLs, any of which may answer.
    pub servers: Vec<String>,
    /// The key layout; `--etcd-prefix`.
    pub layout: KeyLayout,
    /// `--etcd-cafile`: the CA bundle of the servers' certificates. Needed for `https`.
    pub ca: Option<PathBuf>,
    /// `--etcd-certfile` and `--etcd-keyfile`: the client certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// An etcd cluster that cannot be used.
#[derive(Debug, thiserror::Error)]
enum ConnectError {
    #[error("no server is named; use --etcd-servers")]
    NoServers,
    #[error("all of --etcd-servers must be https, or none")]
    MixedSchemes,
    #[error("https needs --etcd-cafile")]
    NoCaFile,
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: no {what} in it", path.display())]
    NoPem { path: PathBuf, what: &'static str },
    #[error("no answer in {CONNECT_TIMEOUT:?}; check --etcd-servers and that etcd runs")]
    Timeout(#[from] tokio::time::error::Elapsed),
    #[error("{}; check --etcd-servers and its TLS files", error_chain(.0))]
    Store(#[from] StoreError),
    #[error("{}; check --etcd-servers and its TLS files", error_chain(.0))]
    Transport(#[from] tonic::transport::Error),
    #[error("{}; check --etcd-servers and its TLS files", error_chain(.0))]
    Status(#[from] tonic::Status),
}

pub(super) async fn connect_store(options: EtcdOptions) -> Result<EtcdStore, StoreError> {
    let connected = async { tokio::time::timeout(CONNECT_TIMEOUT, reach_cluster(&options)).await? };
    let unusable = |error| StoreError::Unusable(format!("etcd at {}: {error}", options.servers.join(",")));
    connected.await.map_err(|error: ConnectError| unusable(error))
}

async fn reach_cluster(options: &EtcdOptions) -> Result<EtcdStore, ConnectError> {
    let client = EtcdClient::new(&options.servers, tls_config(options)?)?;
    let mut etcd = EtcdStore { client, layout: Arc::new(options.layout.clone()), supports_progress_requests: false };
    etcd.revision().await?;
    let status = retry_call(CallKind::Read, || etcd.client.status()).await?;
    etcd.supports_progress_requests = has_reliable_progress(&status.version);
    Ok(etcd)
}

/// The TLS configuration of `https` servers; `None` for `http`.
fn tls_config(options: &EtcdOptions) -> Result<Option<ClientTlsConfig>, ConnectError> {
    if options.servers.is_empty() {
        return Err(ConnectError::NoServers);
    }
    let tls = options.servers.iter().filter(|server| server.starts_with("https://")).count();
    if tls == 0 {
        return Ok(None);
    }
    if tls < options.servers.len() {
        return Err(ConnectError::MixedSchemes);
    }
    let ca = options.ca.as_deref().ok_or(ConnectError::NoCaFile)?;
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read_pem(ca, "CERTIFICATE")?));
    if let Some((certificate, key)) = &options.identity {
        tls = tls.identity(Identity::from_pem(read_pem(certificate, "CERTIFICATE")?, read_pem(key, "PRIVATE KEY")?));
    }
    Ok(Some(tls))
}

fn read_pem(path: &Path, what: &'static str) -> Result<String, ConnectError> {
    let text = fs::read_to_string(path).map_err(|source| ConnectError::Read { path: path.to_owned(), source })?;
    let has_pem = text.contains(&format!("{what}-----"));
    if has_pem { Ok(text) } else { Err(ConnectError::NoPem { path: path.to_owned(), what }) }
}

/// Formats an error with its sources: tonic's own message is only "transport error".
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

fn has_reliable_progress(version: &str) -> bool {
    let mut parts = version.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let (Some(major), Some(minor), patch) = (parts.next(), parts.next(), parts.next().unwrap_or(0)) else {
        return false;
    };
    let fixed = RELIABLE_PROGRESS_SINCE.into_iter().find(|fixed| (fixed.0, fixed.1) == (major, minor));
    fixed.map_or((major, minor) > (3, 5), |fixed| patch >= fixed.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reliable_progress_is_detected_by_version() {
        let truly = ["3.4.31", "3.5.13", "3.5.21", "3.6.0", "3.6.8", "4.0.0"].map(has_reliable_progress);
        let not = ["3.4.23", "3.5.12", "3.3.10", "", "x"].map(has_reliable_progress);
        assert_eq!((truly, not), ([true; 6], [false; 5]));
    }

    #[tokio::test]
    async fn invalid_configuration_is_rejected_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let empty = dir.path().join("empty.pem");
        fs::write(&empty, "").unwrap();
        let layout = KeyLayout::Upstream("/registry".into());
        let options = EtcdOptions { servers: vec!["https://127.0.0.1:1".into()], layout, ca: None, identity: None };
        let check = async |options: EtcdOptions, expected: &str| {
            let refused = EtcdStore::open(options).await.err().expect("connected").to_string();
            assert!(refused.contains(expected), "{refused}");
        };
        check(options.clone(), "--etcd-cafile").await;
        check(EtcdOptions { ca: Some(dir.path().join("none.pem")), ..options.clone() }, "none.pem").await;
        check(EtcdOptions { ca: Some(empty), ..options.clone() }, "no CERTIFICATE").await;
        check(EtcdOptions { servers: vec![], ..options.clone() }, "--etcd-servers").await;
        check(EtcdOptions { servers: vec!["http://127.0.0.1:1".into()], ..options }, "127.0.0.1:1").await;
    }
}
