//! The loads: every operation on the same objects, 1 KiB each, in JSON and in protobuf.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use api::{protobuf, schema::schema};
use bytes::Bytes;
use ferry_bench_api::{
    client::{BenchClient, BenchRequest},
    pki::BenchPki,
    servers::{MeasuredServer, expect},
};
use futures::future::try_join_all;
use http::Method;
use http_body_util::BodyExt;
use rustls::ClientConfig;
use serde_json::json;
use tokio::sync::Barrier;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";
/// One object in this many has the label that a list by label asks for.
const LABELLED: usize = 100;
/// Number of whole lists, and of lists by label.
const LISTS: usize = 40;
const LISTS_BY_LABEL: usize = 1000;
/// Number of changes for the watchers.
const CHANGES: usize = 2000;
/// Clients that make them.
const WRITERS: usize = 8;

/// The size of each load.
pub struct LoadPlan {
    /// Clients at once.
    pub clients: usize,
    /// Objects there are.
    pub objects: usize,
    /// Watchers at once.
    pub watchers: usize,
    /// Only loads whose names contain this.
    pub only: String,
}

/// The result of one load.
pub struct LoadResult {
    /// Its name.
    pub name: String,
    /// Operations.
    pub count: usize,
    /// The total duration.
    pub took: Duration,
    /// The CPU time of the server.
    pub cpu: Duration,
    /// The latency that 99 of 100 stay under.
    pub p99: Duration,
    /// The memory that the server has in use afterwards.
    pub resident: u64,
}

/// Runs every load in both encodings.
pub async fn run(server: &MeasuredServer, pki: &BenchPki, plan: &LoadPlan) -> anyhow::Result<Vec<LoadResult>> {
    let tls = pki.client()?;
    let mut results = Vec::new();
    for (media, suffix) in [(JSON, "json"), (PROTOBUF, "protobuf")] {
        let load = LoadRun { server, tls: &tls, plan, media };
        load.writes(&mut results, suffix).await?;
    }
    Ok(results)
}

struct LoadRun<'a> {
    server: &'a MeasuredServer,
    tls: &'a Arc<ClientConfig>,
    plan: &'a LoadPlan,
    media: &'static str,
}

type RequestSource = Arc<dyn Fn(usize) -> (Method, String, Bytes) + Send + Sync>;

impl LoadRun<'_> {
    async fn writes(&self, results: &mut Vec<LoadResult>, suffix: &str) -> anyhow::Result<()> {
        let (objects, media) = (self.plan.objects, self.media);
        let create: RequestSource = Arc::new(move |n| (Method::POST, COLLECTION.to_owned(), body(n, 0, media)));
        let get: RequestSource = Arc::new(|n| (Method::GET, path(n), Bytes::new()));
        let update: RequestSource = Arc::new(move |n| (Method::PUT, path(n), body(n, 1, media)));
        let list: RequestSource = Arc::new(|_| (Method::GET, COLLECTION.to_owned(), Bytes::new()));
        let by_label: RequestSource =
            Arc::new(|_| (Method::GET, format!("{COLLECTION}?labelSelector=bench%3Dyes"), Bytes::new()));
        let delete: RequestSource = Arc::new(|n| (Method::DELETE, path(n), Bytes::new()));
        results.push(self.measure(format!("create {suffix}"), objects, 201, &create).await?);
        for (name, count, requests) in [
            ("get", objects, &get),
            ("update", objects, &update),
            ("list", LISTS, &list),
            ("list by label", LISTS_BY_LABEL, &by_label),
        ] {
            let name = format!("{name} {suffix}");
            if name.contains(&self.plan.only) {
                results.push(self.measure(name, count, 200, requests).await?);
            }
        }
        let name = format!("watch event {suffix}");
        if name.contains(&self.plan.only) {
            results.push(self.watch(name).await?);
        }
        results.push(self.measure(format!("delete {suffix}"), objects, 200, &delete).await?);
        Ok(())
    }

    /// `count` requests by all clients, as fast as they are answered.
    async fn measure(
        &self,
        name: String,
        count: usize,
        wanted: u16,
        requests: &RequestSource,
    ) -> anyhow::Result<LoadResult> {
        let next = Arc::new(AtomicUsize::new(0));
        let connections = (0..self.plan.clients).map(|_| BenchClient::connect(self.server.port, self.tls));
        let mut connections = try_join_all(connections).await?;
        if wanted == 200 && requests(0).0 == Method::GET {
            // What is made once is not what an operation costs.
            let (method, path, body) = requests(0);
            for client in connections.iter_mut().take(2) {
                let (method, body) = (method.clone(), body.clone());
                expect(
                    client.call(BenchRequest { method, path: &path, media: self.media, body }).await?.status,
                    wanted,
                    &name,
                )?;
            }
        }
        let (cpu, began) = (self.server.cpu()?, Instant::now());
        let workers = connections.into_iter().map(|mut client| {
            let (next, requests, media) = (next.clone(), requests.clone(), self.media);
            let name = name.clone();
            tokio::spawn(async move {
                let mut times = Vec::new();
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        return anyhow::Ok(times);
                    }
                    let (method, path, body) = requests(n);
                    let sent = Instant::now();
                    let answer = client.call(BenchRequest { method, path: &path, media, body }).await?;
                    times.push(sent.elapsed());
                    expect(answer.status, wanted, &name)?;
                    if answer.body.is_empty() {
                        bail!("{name} was answered with nothing");
                    }
                }
            })
        });
        let mut times = Vec::new();
        for worker in try_join_all(workers).await? {
            times.extend(worker?);
        }
        let took = began.elapsed();
        times.sort_unstable();
        let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or_default();
        Ok(LoadResult { name, count, took, cpu: self.server.cpu()? - cpu, p99, resident: self.server.resident()? })
    }

    /// Changes that every watcher hears of; the cost is per event and watcher.
    async fn watch(&self, name: String) -> anyhow::Result<LoadResult> {
        let ready = Arc::new(Barrier::new(self.plan.watchers + 1));
        let watched = format!("{COLLECTION}?watch=1&resourceVersion={}", self.revision().await?);
        let watchers = (0..self.plan.watchers).map(|_| {
            let (tls, port, media, path, ready) =
                (self.tls.clone(), self.server.port, self.media, watched.clone(), ready.clone());
            tokio::spawn(async move {
                let mut client = BenchClient::connect(port, &tls).await?;
                let (status, mut body) =
                    client.open(BenchRequest { method: Method::GET, path: &path, media, body: Bytes::new() }).await?;
                expect(status, 200, "a watch")?;
                ready.wait().await;
                let mut counter = LatencyCounter::new(media);
                while counter.events < CHANGES {
                    let frame = body.frame().await.context("the watch ended early")??;
                    counter.feed(frame.data_ref().map(Bytes::as_ref).unwrap_or_default());
                }
                anyhow::Ok(())
            })
        });
        let watchers: Vec<_> = watchers.collect();
        ready.wait().await;
        let (cpu, began) = (self.server.cpu()?, Instant::now());
        let media = self.media;
        let change: RequestSource = Arc::new(move |n| (Method::PUT, path(n), body(n, 2, media)));
        // Upstream cuts off watchers that a larger burst leaves behind.
        let plan = LoadPlan { clients: WRITERS.min(self.plan.clients), only: String::new(), ..*self.plan };
        let writers = LoadRun { plan: &plan, ..*self };
        writers.measure("a change".to_owned(), CHANGES, 200, &change).await?;
        for watcher in try_join_all(watchers).await? {
            watcher?;
        }
        let took = began.elapsed();
        let count = CHANGES * self.plan.watchers;
        Ok(LoadResult {
            name,
            count,
            took,
            cpu: self.server.cpu()? - cpu,
            p99: Duration::ZERO,
            resident: self.server.resident()?,
        })
    }

    async fn revision(&self) -> anyhow::Result<String> {
        let mut client = BenchClient::connect(self.server.port, self.tls).await?;
        let answer = client.get(&format!("{COLLECTION}?limit=1"), JSON).await?;
        let list: serde_json::Value = serde_json::from_slice(&answer.body)?;
        list["metadata"]["resourceVersion"].as_str().map(str::to_owned).context("a list without a revision")
    }
}

/// Counts events without decoding them: lines of JSON, or frames that begin with their length.
struct LatencyCounter {
    frames: bool,
    events: usize,
    /// Bytes of the current frame that are still to come.
    left: usize,
    head: Vec<u8>,
}

impl LatencyCounter {
    fn new(media: &str) -> Self {
        Self { frames: media == PROTOBUF, events: 0, left: 0, head: Vec::new() }
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        if !self.frames {
            self.events += bytes.iter().filter(|byte| **byte == b'\n').count();
            return;
        }
        while !bytes.is_empty() {
            if self.left == 0 {
                let take = (4 - self.head.len()).min(bytes.len());
                self.head.extend_from_slice(&bytes[..take]);
                bytes = &bytes[take..];
                if let Ok(length) = <[u8; 4]>::try_from(self.head.as_slice()) {
                    self.left = u32::from_be_bytes(length) as usize;
                    self.head.clear();
                }
                continue;
            }
            let take = self.left.min(bytes.len());
            self.left -= take;
            bytes = &bytes[take..];
            self.events += usize::from(self.left == 0);
        }
    }
}

fn path(n: usize) -> String {
    format!("{COLLECTION}/bench-{n}")
}

/// An object of about 1 KiB; `generation` makes it differ from the one before.
fn body(n: usize, generation: usize, media: &str) -> Bytes {
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("bench-{n}"), "namespace": "default", "labels": {"bench": "no"}},
        "data": {"generation": generation.to_string(), "text": "x".repeat(900)}});
    if n.is_multiple_of(LABELLED) {
        object["metadata"]["labels"]["bench"] = "yes".into();
    }
    match schema().resource("", "v1", "configmaps") {
        Some(resource) if media == PROTOBUF => protobuf::encode_object(resource, &object).into(),
        _ => object.to_string().into(),
    }
}
