//! Requests to the API server: many at a time, over a few connections.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::bail;
use bytes::Bytes;
use ferry_bench_api::client::{BenchClient, BenchRequest, BenchResponse};
use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use rustls::ClientConfig;
use serde_json::Value;
use tokio::time::{Instant, sleep};

/// Concurrent requests.
const AT_ONCE: usize = 64;
/// Connections that they share.
const CONNECTIONS: usize = 4;
/// Time for an object that a controller makes.
const PATIENCE: Duration = Duration::from_secs(60);
/// JSON.
pub const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Connections to the API server. Clones share them.
#[derive(Clone)]
pub struct BenchCluster {
    clients: Arc<Vec<BenchClient>>,
    next: Arc<AtomicUsize>,
    port: u16,
    tls: Arc<ClientConfig>,
}

impl BenchCluster {
    /// Connects.
    pub async fn connect(port: u16, tls: &Arc<ClientConfig>) -> anyhow::Result<Self> {
        let connect = |_| async { BenchClient::connect(port, tls).await.map(BenchClient::uncompressed) };
        let clients = stream::iter(0..CONNECTIONS).then(connect).try_collect().await?;
        Ok(Self { clients: Arc::new(clients), next: Arc::default(), port, tls: tls.clone() })
    }

    /// Opens a connection for a watch, whose answers are not compressed.
    pub async fn watch_client(&self) -> anyhow::Result<BenchClient> {
        Ok(BenchClient::connect(self.port, &self.tls).await?.uncompressed())
    }

    /// Creates objects at paths, as fast as the server takes them.
    pub async fn create_all(&self, objects: impl IntoIterator<Item = (String, Value)>) -> anyhow::Result<()> {
        let create = |(path, object): (String, Value)| async move {
            let answer = self.call(Method::POST, &path, JSON, object.to_string().into()).await?;
            expect(&answer, &[201], &path)
        };
        stream::iter(objects).map(Ok).try_for_each_concurrent(AT_ONCE, create).await
    }

    /// Patches the objects at paths alike.
    pub async fn patch_all(&self, paths: impl IntoIterator<Item = String>, patch: &Value) -> anyhow::Result<()> {
        let body = Bytes::from(patch.to_string());
        let patch = |path: String| {
            let body = body.clone();
            async move {
                let answer = self.call(Method::PATCH, &path, MERGE_PATCH, body).await?;
                expect(&answer, &[200], &path)
            }
        };
        stream::iter(paths).map(Ok).try_for_each_concurrent(AT_ONCE, patch).await
    }

    /// Deletes an object or a collection.
    pub async fn delete(&self, path: &str, options: &Value) -> anyhow::Result<()> {
        let answer = self.call(Method::DELETE, path, JSON, options.to_string().into()).await?;
        expect(&answer, &[200, 202], path)
    }

    /// Waits until an object exists.
    pub async fn wait_for_object(&self, path: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.call(Method::GET, path, JSON, Bytes::new()).await?.status != 200 {
            if Instant::now() > deadline {
                bail!("{path} is absent after {PATIENCE:?}");
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Sends a request; the answer is JSON.
    pub async fn call(&self, method: Method, path: &str, media: &str, body: Bytes) -> anyhow::Result<BenchResponse> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut client = self.clients[number % self.clients.len()].clone();
        client.send(BenchRequest { method, path, media, body }, JSON).await
    }

    /// Merges a patch into an object; returns the status of the answer.
    pub async fn patch(&self, path: &str, patch: &Value) -> anyhow::Result<u16> {
        Ok(self.call(Method::PATCH, path, MERGE_PATCH, patch.to_string().into()).await?.status)
    }
}

fn expect(answer: &BenchResponse, wanted: &[u16], path: &str) -> anyhow::Result<()> {
    if !wanted.contains(&answer.status) {
        bail!("{path} was answered with {}: {:?}", answer.status, answer.body);
    }
    Ok(())
}
