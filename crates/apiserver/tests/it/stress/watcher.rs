//! A watcher that is disconnected again and again and resumes from the last revision that it heard of.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use bytes::{Buf, Bytes, BytesMut};
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    stress::{
        SEED,
        history::{self, Told},
        writer::{GROUPS, NAMESPACES, PHASES},
    },
    wire::{Call, Client, JSON, Wire},
};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The scope of a watch.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Which watcher.
    pub index: usize,
    /// `configmaps` or `pods`.
    pub resource: &'static str,
    /// One namespace, or all.
    pub namespace: Option<&'static str>,
    /// Only objects whose label `group` has this value.
    pub group: Option<&'static str>,
    /// Only pods of this phase.
    pub phase: Option<&'static str>,
    /// Only the object of this name.
    pub name: Option<String>,
}

impl Scope {
    fn of(index: usize) -> Self {
        let random = &mut fastrand::Rng::with_seed(SEED + index as u64);
        let resource = if index.is_multiple_of(3) { "pods" } else { "configmaps" };
        let namespace = random.choice(NAMESPACES).copied().filter(|_| !index.is_multiple_of(4));
        let group = random.choice(GROUPS).copied().filter(|_| index % 5 < 3);
        let phase = random.choice(PHASES).copied().filter(|_| resource == "pods" && index.is_multiple_of(2));
        let name = (resource == "configmaps" && index % 5 == 4).then(|| format!("c-{}", random.usize(..4)));
        Self { index, resource, namespace, group, phase, name }
    }

    /// The key prefix of its objects in the store.
    pub fn prefix(&self) -> String {
        let namespace = self.namespace.map(|name| format!("{name}/")).unwrap_or_default();
        format!("/registry/{}/{namespace}", self.resource)
    }

    /// Whether an object is in its selection.
    pub fn selects(&self, object: &Value) -> bool {
        let is = |wanted: Option<&str>, pointer: &str| {
            wanted.is_none_or(|wanted| object.pointer(pointer).and_then(Value::as_str) == Some(wanted))
        };
        is(self.group, "/metadata/labels/group")
            && is(self.phase, "/status/phase")
            && is(self.name.as_deref(), "/metadata/name")
    }

    /// Whether an object is the one that ends the watch.
    pub fn ends(&self, object: &Value) -> bool {
        object.pointer("/metadata/labels/end").and_then(Value::as_str) == Some(&self.index.to_string())
    }

    fn path(&self, after: u64, bookmarks: bool) -> String {
        let namespace = self.namespace.map(|name| format!("namespaces/{name}/")).unwrap_or_default();
        let mut path = format!("/api/v1/{namespace}{}?watch=true&resourceVersion={after}", self.resource);
        if let Some(group) = self.group {
            path += &format!("&labelSelector=group%3D{group}");
        }
        let phase = self.phase.map(|phase| format!("status.phase={phase}"));
        let name = self.name.as_ref().map(|name| format!("metadata.name={name}"));
        let fields: Vec<String> = phase.into_iter().chain(name).collect();
        if !fields.is_empty() {
            path += &format!("&fieldSelector={}", fields.join(",").replace('=', "%3D"));
        }
        if bookmarks {
            path += "&allowWatchBookmarks=true";
        }
        path
    }
}

/// A connection that several watchers share; a new one takes its place when it is gone.
pub struct Link {
    wire: Arc<Wire>,
    client: Mutex<Option<Client>>,
}

impl Link {
    /// A link that connects when it is first used.
    pub fn new(wire: &Arc<Wire>) -> Self {
        Self { wire: wire.clone(), client: Mutex::default() }
    }

    async fn open(&self, path: &str, accept: &str) -> Option<http::Response<Incoming>> {
        let client = self.client.lock().await.get_or_insert(self.wire.client().await).clone();
        let call = Call { method: Method::GET, path, content_type: JSON, accept, body: Bytes::new() };
        match client.open(call).await {
            Ok(response) => Some(response),
            Err(_) => {
                // Whoever finds the connection gone makes room for the next.
                self.client.lock().await.take();
                None
            }
        }
    }
}

/// Cuts connections until it is over; returns how many.
pub async fn cut(links: Vec<Arc<Link>>, over: CancellationToken) -> usize {
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut cuts = 0;
    loop {
        let pause = tokio::time::sleep(Duration::from_millis(random.u64(100..600)));
        if over.run_until_cancelled(pause).await.is_none() {
            return cuts;
        }
        let link = random.choice(&links).expect("there are links");
        if let Some(client) = link.client.lock().await.take() {
            client.cut();
            cuts += 1;
        }
    }
}

/// A watcher and what it has heard.
pub struct Watcher {
    /// The watched scope.
    pub scope: Scope,
    last: u64,
    random: fastrand::Rng,
    heard: Vec<Told>,
}

/// The events of a watcher from first to last.
pub struct Heard {
    /// The watched scope.
    pub scope: Scope,
    /// In the order of hearing.
    pub events: Vec<Told>,
    /// The number of restarts.
    pub resumed: usize,
}

impl Watcher {
    /// A watcher that begins after a revision.
    pub fn new(index: usize, after: u64) -> Self {
        let random = fastrand::Rng::with_seed(SEED ^ (index as u64) << 32);
        Self { scope: Scope::of(index), last: after, random, heard: Vec::new() }
    }

    /// Watches until its end comes.
    pub async fn run(mut self, link: Arc<Link>) -> Heard {
        let mut resumed = 0;
        while self.watch(&link).await.is_continue() {
            resumed += 1;
        }
        Heard { scope: self.scope, events: self.heard, resumed }
    }

    /// One watch, until its end comes or the connection ends or the watcher loses interest.
    async fn watch(&mut self, link: &Link) -> ControlFlow<()> {
        let binary = self.scope.index % 4 == 1;
        let accept = if binary { PROTOBUF } else { JSON };
        let path = self.scope.path(self.last, self.scope.index.is_multiple_of(2));
        let Some(response) = link.open(&path, accept).await else { return ControlFlow::Continue(()) };
        assert_eq!(response.status(), 200, "{path}");
        let patience = self.random.usize(1..150);
        let (mut body, mut buffer, mut events) = (response.into_body(), BytesMut::new(), 0);
        while let Some(Ok(frame)) = body.frame().await {
            buffer.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            while let Some((kind, object)) = if binary { protobuf(&mut buffer) } else { json(&mut buffer) } {
                self.hear(&kind, &object)?;
                events += 1;
                if events == patience {
                    return ControlFlow::Continue(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn hear(&mut self, kind: &str, object: &Value) -> ControlFlow<()> {
        let revision = object.pointer("/metadata/resourceVersion").and_then(Value::as_str).and_then(|r| r.parse().ok());
        let revision: u64 = revision.unwrap_or_else(|| panic!("{kind} of {:?}: {object}", self.scope));
        assert!(revision >= self.last, "{kind} {revision} after {} of {:?}", self.last, self.scope);
        self.last = revision;
        if kind == "BOOKMARK" {
            return ControlFlow::Continue(());
        }
        self.heard.push(history::seen(kind, object, revision));
        if kind != "DELETED" && self.scope.ends(object) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// The next line, if it is whole.
fn json(buffer: &mut BytesMut) -> Option<(String, Value)> {
    let end = buffer.iter().position(|byte| *byte == b'\n')?;
    let mut event: Value = serde_json::from_slice(&buffer.split_to(end + 1)).expect("a line is JSON");
    Some((event["type"].as_str().expect("a type").to_owned(), event["object"].take()))
}

/// The next frame, if it is whole.
fn protobuf(buffer: &mut BytesMut) -> Option<(String, Value)> {
    let length = u32::from_be_bytes(*buffer.first_chunk()?) as usize;
    if buffer.len() < 4 + length {
        return None;
    }
    buffer.advance(4);
    let frame = buffer.split_to(length);
    Some(api::protobuf::decode_watch_event(&frame).expect("a frame is an event"))
}
