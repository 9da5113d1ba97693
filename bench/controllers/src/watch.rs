//! Watches of the API server: the events of one, and the number of objects that have come to a state.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use bytes::Bytes;
use ferry_bench_api::client::{BenchClient, BenchRequest};
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use crate::cluster::{BenchCluster, JSON};

/// Time without any change of the count after which a run is given up.
const PATIENCE: Duration = Duration::from_secs(120);

/// An event of a watch.
#[derive(serde::Deserialize)]
pub struct WatchEvent<K> {
    /// ADDED, MODIFIED, DELETED or ERROR.
    #[serde(rename = "type")]
    pub kind: String,
    /// The object.
    pub object: K,
}

/// A watch that begins with all objects.
pub struct EventStream {
    client: BenchClient,
    path: String,
    body: Incoming,
    buffer: Vec<u8>,
    /// The bytes of the buffer that hold no end of line.
    searched: usize,
}

impl EventStream {
    /// Begins the watch of a collection.
    pub async fn open(cluster: &BenchCluster, collection: &str) -> anyhow::Result<Self> {
        let path = format!("{collection}?watch=1&timeoutSeconds=3600");
        let mut client = cluster.watch_client().await?;
        let body = open_watch(&mut client, &path).await?;
        Ok(Self { client, path, body, buffer: Vec::new(), searched: 0 })
    }

    /// The next event. `None` says that the watch ended and begins anew, with all objects.
    pub async fn next<K: DeserializeOwned>(&mut self) -> anyhow::Result<Option<WatchEvent<K>>> {
        loop {
            if let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=self.searched + end).collect();
                self.searched = 0;
                return serde_json::from_slice(&line).context("an event of a watch");
            }
            self.searched = self.buffer.len();
            match self.body.frame().await {
                Some(Ok(frame)) => self.buffer.extend(frame.data_ref().unwrap_or(&Bytes::new())),
                Some(Err(_)) | None => {
                    self.body = open_watch(&mut self.client, &self.path).await?;
                    self.buffer.clear();
                    self.searched = 0;
                    return Ok(None);
                }
            }
        }
    }
}

async fn open_watch(client: &mut BenchClient, path: &str) -> anyhow::Result<Incoming> {
    let request = BenchRequest { method: Method::GET, path, media: JSON, body: Bytes::new() };
    match client.open(request).await? {
        (200, body) => Ok(body),
        (status, _) => bail!("the watch of {path} was answered with {status}"),
    }
}

/// The numbers of objects of a collection.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ObjectCount {
    /// Those that there are.
    pub existing: usize,
    /// Those in the state that is waited for.
    pub done: usize,
}

/// Counts the objects of a collection, kept current by a watch.
pub struct ObjectCounter {
    count: watch::Receiver<ObjectCount>,
    follower: JoinHandle<anyhow::Result<()>>,
}

impl ObjectCounter {
    /// Begins to count; `is_done` says which objects are in the state that is waited for.
    pub async fn start(cluster: &BenchCluster, collection: &str, is_done: fn(&Value) -> bool) -> anyhow::Result<Self> {
        let mut events = EventStream::open(cluster, collection).await?;
        let (sender, count) = watch::channel(ObjectCount::default());
        let follower = tokio::spawn(async move {
            let mut objects = HashMap::new();
            let mut count = ObjectCount::default();
            loop {
                let Some(event) = events.next::<Value>().await? else {
                    objects.clear();
                    count = ObjectCount::default();
                    continue;
                };
                let uid = event.object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                let was_done = match event.kind.as_str() {
                    "DELETED" => objects.remove(&uid),
                    "ADDED" | "MODIFIED" => {
                        let done = is_done(&event.object);
                        count.done += usize::from(done);
                        objects.insert(uid, done)
                    }
                    other => bail!("a watch sent {other}"),
                };
                count.done -= usize::from(was_done == Some(true));
                count.existing = objects.len();
                sender.send_replace(count);
            }
        });
        Ok(Self { count, follower })
    }

    /// Waits until the count is as wanted; returns when that was.
    pub async fn wait_for(&mut self, wanted: impl Fn(ObjectCount) -> bool) -> anyhow::Result<Instant> {
        loop {
            let count = *self.count.borrow_and_update();
            if wanted(count) {
                return Ok(Instant::now());
            }
            match timeout(PATIENCE, self.count.changed()).await {
                Err(_) => bail!("{count:?}, then no change for {PATIENCE:?}"),
                Ok(Err(_)) => return (&mut self.follower).await.context("the watch panicked")?.and(Ok(Instant::now())),
                Ok(Ok(())) => {}
            }
        }
    }
}

impl Drop for ObjectCounter {
    fn drop(&mut self) {
        self.follower.abort();
    }
}
