//! The objects of a workload on an API server: created by many requests at a time, observed by a watch.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail};
use bytes::Bytes;
use ferry_bench_api::client::{BenchClient, BenchRequest};
use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rustls::ClientConfig;
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

/// Concurrent requests.
const AT_ONCE: usize = 64;
/// Connections that they share.
const CONNECTIONS: usize = 4;
/// Time without a single pod bound after which a run is given up.
const PATIENCE: Duration = Duration::from_secs(120);
const JSON: &str = "application/json";

/// Connections to the API server.
#[derive(Clone)]
pub struct BenchCluster {
    clients: Arc<Vec<BenchClient>>,
    port: u16,
    tls: Arc<ClientConfig>,
}

/// An object to create: the path of its collection, and its body.
pub struct NewObject {
    path: String,
    body: Bytes,
}

impl NewObject {
    /// Encodes an object.
    pub fn new(path: &str, object: &Value) -> Self {
        Self { path: path.to_owned(), body: Bytes::from(object.to_string()) }
    }
}

impl BenchCluster {
    /// Connects.
    pub async fn connect(port: u16, tls: &Arc<ClientConfig>) -> anyhow::Result<Self> {
        let clients = stream::iter(0..CONNECTIONS).then(|_| BenchClient::connect(port, tls)).try_collect().await?;
        Ok(Self { clients: Arc::new(clients), port, tls: tls.clone() })
    }

    /// Creates objects, as fast as the server takes them.
    pub async fn create_all(&self, objects: Vec<NewObject>) -> anyhow::Result<()> {
        let requests = stream::iter(objects.into_iter().enumerate()).map(Ok);
        requests.try_for_each_concurrent(AT_ONCE, |(number, object)| self.create(number, object)).await
    }

    async fn create(&self, number: usize, object: NewObject) -> anyhow::Result<()> {
        let request = BenchRequest { method: Method::POST, path: &object.path, media: JSON, body: object.body };
        let answer = self.client(number).call(request).await?;
        if answer.status != 201 {
            bail!("creating at {} was answered with {}: {:?}", object.path, answer.status, answer.body);
        }
        Ok(())
    }

    /// Deletes an object at once; one that is gone is fine.
    pub async fn delete(&self, path: &str) -> anyhow::Result<()> {
        let body = Bytes::from_static(br#"{"gracePeriodSeconds":0}"#);
        let answer = self.client(0).call(BenchRequest { method: Method::DELETE, path, media: JSON, body }).await?;
        match answer.status {
            200 | 202 | 404 => Ok(()),
            status => bail!("deleting {path} was answered with {status}: {:?}", answer.body),
        }
    }

    /// Patches objects alike.
    pub async fn patch_all(&self, paths: &[String], body: &'static str) -> anyhow::Result<()> {
        let requests = stream::iter(paths.iter().enumerate()).map(Ok);
        requests.try_for_each_concurrent(AT_ONCE, |(number, path)| self.patch(number, path, body)).await
    }

    async fn patch(&self, number: usize, path: &str, body: &'static str) -> anyhow::Result<()> {
        let (media, body) = ("application/merge-patch+json", Bytes::from_static(body.as_bytes()));
        let request = BenchRequest { method: Method::PATCH, path, media, body };
        let answer = self.client(number).send(request, JSON).await?;
        if answer.status != 200 {
            bail!("{path} was answered with {}: {:?}", answer.status, answer.body);
        }
        Ok(())
    }

    fn client(&self, number: usize) -> BenchClient {
        self.clients[number % self.clients.len()].clone()
    }

    /// Watches the bound pods of a namespace. A watch that the server ends is begun again; then all are counted anew.
    pub async fn watch_bound(&self, namespace: &str) -> anyhow::Result<BoundPods> {
        let path = format!("/api/v1/namespaces/{namespace}/pods?watch=1&fieldSelector=spec.nodeName!%3D");
        let mut client = BenchClient::connect(self.port, &self.tls).await?.uncompressed();
        let mut body = open_watch(&mut client, &path).await?;
        let (sender, count) = watch::channel(0);
        tokio::spawn(async move {
            loop {
                let (mut begins_line, mut kept) = (true, Vec::new());
                while let Some(Ok(frame)) = body.frame().await {
                    let Some(data) = frame.data_ref() else { continue };
                    let added = count_added(data, &mut begins_line, &mut kept);
                    sender.send_modify(|count| *count += added);
                }
                match open_watch(&mut client, &path).await {
                    Ok(again) => body = again,
                    // The receiver finds the channel closed.
                    Err(_) => return,
                }
                sender.send_replace(0);
            }
        });
        Ok(BoundPods { count })
    }
}

async fn open_watch(client: &mut BenchClient, path: &str) -> anyhow::Result<Incoming> {
    let request = BenchRequest { method: Method::GET, path, media: JSON, body: Bytes::new() };
    match client.open(request).await? {
        (200, body) => Ok(body),
        (status, _) => bail!("the watch of {path} was answered with {status}"),
    }
}

/// The beginning of the event of a pod that was bound.
const ADDED: &[u8] = br#"{"type":"ADDED""#;

/// Counts events of added objects in a part of a watch; `kept` is the beginning of a line so far.
fn count_added(data: &[u8], begins_line: &mut bool, kept: &mut Vec<u8>) -> usize {
    let mut added = 0;
    for (place, line) in data.split(|byte| *byte == b'\n').enumerate() {
        if place > 0 {
            *begins_line = true;
            kept.clear();
        }
        if *begins_line {
            kept.extend(line.iter().take(ADDED.len() - kept.len()));
            if kept.len() == ADDED.len() {
                added += usize::from(kept == ADDED);
                *begins_line = false;
            }
        }
    }
    added
}

/// The number of pods that were bound since the watch began.
pub struct BoundPods {
    count: watch::Receiver<usize>,
}

impl BoundPods {
    /// Waits until so many pods are bound; returns when that was.
    pub async fn wait_for(&mut self, wanted: usize) -> anyhow::Result<Instant> {
        loop {
            let count = *self.count.borrow_and_update();
            if count >= wanted {
                return Ok(Instant::now());
            }
            let stuck = || format!("{count} of {wanted} pods were bound, then none for {PATIENCE:?}");
            timeout(PATIENCE, self.count.changed()).await.with_context(stuck)?.context("the watch ended")?;
        }
    }
}
