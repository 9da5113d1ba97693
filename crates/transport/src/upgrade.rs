//! Upgraded connections: after both sides have switched protocols, bytes are copied unchanged.

use std::{future::Future, time::Duration};

use http::{HeaderMap, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy, split};
use tokio_util::sync::CancellationToken;

/// Time that one direction stays open after the other has ended.
const HALF_CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether a request asks for an upgrade.
pub fn is_upgrade_request(headers: &HeaderMap) -> bool {
    let connection = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    headers.contains_key(header::UPGRADE) && { connection }.any(|value| value.to_ascii_lowercase().contains("upgrade"))
}

/// Copies between two connections in the background, once both have switched protocols.
pub fn join_upgrades(client: OnUpgrade, backend: OnUpgrade, stopping: CancellationToken) {
    tokio::spawn(async move {
        match tokio::try_join!(client, backend) {
            Ok((client, backend)) => copy_streams(TokioIo::new(client), TokioIo::new(backend), stopping).await,
            Err(error) => tracing::debug!(%error, "transport: upgrade failed, closing the connection"),
        }
    });
}

/// Copies both ways until both sides have ended or the process stops. The end of one side is passed on at once; the
/// other direction then has a limited time.
async fn copy_streams(
    client: impl AsyncRead + AsyncWrite,
    backend: impl AsyncRead + AsyncWrite,
    stopping: CancellationToken,
) {
    let ((mut from_client, mut to_client), (mut from_backend, mut to_backend)) = (split(client), split(backend));
    let requests = copy_until_end(&mut from_client, &mut to_backend);
    let responses = copy_until_end(&mut from_backend, &mut to_client);
    stopping.run_until_cancelled(join_half_closed(requests, responses)).await;
    // A side may have been closed already, or have disconnected.
    let _ = tokio::join!(to_client.shutdown(), to_backend.shutdown());
}

/// Copies until the end, which it passes on. A disconnect ends the copy too.
async fn copy_until_end(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) {
    let _ = copy(from, to).await;
    let _ = to.shutdown().await;
}

async fn join_half_closed(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    tokio::pin!(one, other);
    let rest = tokio::select! {
        () = &mut one => tokio::time::timeout(HALF_CLOSE_TIMEOUT, other).await,
        () = &mut other => tokio::time::timeout(HALF_CLOSE_TIMEOUT, one).await,
    };
    if rest.is_err() {
        tracing::debug!("transport: half-closed connection timed out, closing it");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;

    #[tokio::test]
    async fn response_after_a_half_close_is_delivered() {
        let ((mut client, near), (mut backend, far)) = (duplex(64), duplex(64));
        let copying = tokio::spawn(copy_streams(near, far, CancellationToken::new()));
        client.write_all(b"request").await.unwrap();
        client.shutdown().await.unwrap();
        let (mut request, mut response) = (String::new(), String::new());
        backend.read_to_string(&mut request).await.unwrap();
        backend.write_all(b"response").await.unwrap();
        drop(backend);
        client.read_to_string(&mut response).await.unwrap();
        assert_eq!((&*request, &*response), ("request", "response"));
        copying.await.unwrap();
    }

    #[tokio::test]
    async fn connections_end_when_the_process_stops() {
        let ((mut client, near), (_backend, far)) = (duplex(64), duplex(64));
        let stopping = CancellationToken::new();
        let copying = tokio::spawn(copy_streams(near, far, stopping.clone()));
        stopping.cancel();
        copying.await.unwrap();
        assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
    }
}
