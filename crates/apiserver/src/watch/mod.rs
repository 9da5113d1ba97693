//! Watches: changes after a revision as a stream of JSON lines or protobuf frames, thinned by selectors.
//!
//! An object that begins to match is ADDED, one that ceases to match is DELETED. A watch ends at its time-out, when the
//! server stops, or with an ERROR event when the history it needs is gone.

mod event_stream;
pub mod websocket;
mod event_encoder;

use std::{sync::Arc, time::Duration};

use api::{schema::ResourceRef, status::Status};
use apiserver_core::{
    Body, BodyError, document,
    negotiation::{ResponseEncoding, MediaTypeOptions},
    request::ResourceRequest,
};
use bytes::Bytes;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use http::{HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use registry::{ListOptions, Registry};
use store::{CacheWatcher, ResourceVersionMatch, Snapshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{event_stream::EventStream, event_encoder::EventEncoder};
use crate::{Server, encode};

/// The content type of a watch in protobuf.
const PROTOBUF_STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch";
/// Changes are told soon after they were made: what was not told for so long is not there.
const DELETED_CRD_DRAIN: Duration = Duration::from_millis(50);
/// No watch lasts longer.
const MAX_WATCH_SECONDS: u64 = 86_400;

/// Answers a watch.
pub async fn handle_watch(
    server: &Server,
    target: ResourceRequest,
    form: MediaTypeOptions,
) -> Result<Response<Body>, Status> {
    let pieces = open_stream(server, target, form).await?;
    let mut response = encode::json_bytes_response(200, Bytes::new());
    *response.body_mut() = StreamBody::new(pieces.map(|piece| Ok::<_, BodyError>(Frame::data(piece)))).boxed_unsync();
    if form.encoding == ResponseEncoding::Protobuf {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROTOBUF_STREAM));
    }
    Ok(response)
}

/// What a watch says, piece by piece, until it ends.
async fn open_stream(
    server: &Server,
    target: ResourceRequest,
    form: MediaTypeOptions,
) -> Result<BoxStream<'static, Bytes>, Status> {
    let options = ListOptions::from_request(&target)?;
    let start = find_start(server, &target, &options).await?;
    let ends = Instant::now() + watch_duration(server, options.timeout);
    let resource = target.resource.clone();
    let ended = server.shared.registry.crds().ended(&resource);
    let view = EventEncoder::new(target, form, options.selection).converted_by(&server.shared.registry);
    let lines = EventStream::new(view, start, options.bookmarks, ends);
    let stopping = server.shared.stopping.clone();
    let until = async move {
        tokio::select! {
            () = tokio::time::sleep_until(ends) => {}
            () = stopping.cancelled() => {}
        }
    };
    let watched = WatchedResource { registry: server.shared.registry.clone(), resource, lines, ended };
    let pieces = stream::unfold(watched, |mut watched| async move { watched.next_chunk().await.map(|line| (line, watched)) });
    Ok(pieces.take_until(until).boxed())
}

/// A watch of a resource that may cease to be.
struct WatchedResource {
    registry: Arc<Registry>,
    resource: ResourceRef,
    lines: EventStream,
    /// Cancelled when the definition of the resource changes or goes; `None`: it never does.
    ended: Option<CancellationToken>,
}

impl WatchedResource {
    /// The next piece. Who watches a custom resource whose definition changes begins anew; if it goes, the objects that went
    /// before it are told, but nothing of another one that has its name.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        let Some(ended) = &self.ended else { return self.lines.next_chunk().await };
        let replaced = || ended.is_cancelled() && self.registry.crds().is_replaced(&self.resource);
        if replaced() {
            return None;
        }
        let over = async {
            ended.cancelled().await;
            if !replaced() {
                tokio::time::sleep(DELETED_CRD_DRAIN).await;
            }
        };
        tokio::select! {
            biased;
            line = self.lines.next_chunk() => line.filter(|_| !replaced()),
            () = over => None,
        }
    }
}

fn watch_duration(server: &Server, timeout: Option<i64>) -> Duration {
    Duration::from_secs(match timeout {
        None | Some(0) => server.shared.options.load.watch_seconds(),
        Some(seconds) => u64::try_from(seconds).unwrap_or(0).min(MAX_WATCH_SECONDS),
    })
}

/// Where a watch begins.
enum WatchStart {
    /// With what exists, as changes, and then with what follows. The client hears where the existing objects end.
    Existing(Snapshot, CacheWatcher),
    /// With the changes after a revision.
    Changes(CacheWatcher),
    /// Not at all: what it needs is not there.
    Failed(store::StoreError),
}

async fn find_start(server: &Server, target: &ResourceRequest, options: &ListOptions) -> Result<WatchStart, Status> {
    let prefix = document::storage_key(&target.resource, &target.namespace, "");
    let revision = ListOptions::parse_revision(&options.revision)?;
    let cache = server.shared.registry.cache();
    let at = match revision {
        None => ResourceVersionMatch::Newest,
        Some(0) => ResourceVersionMatch::Any,
        Some(revision) => ResourceVersionMatch::NotBefore(revision),
    };
    let begun = async {
        if options.send_initial_events == Some(true) {
            let snapshot = cache.snapshot(&prefix, at).await?;
            let watcher = cache.watch_prefix(&prefix, snapshot.revision)?;
            return Ok(WatchStart::Existing(snapshot, watcher));
        }
        let after = match revision {
            Some(revision) if revision > 0 => {
                server.shared.registry.crds().reaches(&target.resource, revision)?;
                revision
            }
            _ => cache.snapshot(&prefix, at).await?.revision,
        };
        Ok(WatchStart::Changes(cache.watch_prefix(&prefix, after)?))
    };
    // Whatever is wrong from here on, upstream tells in the stream.
    Ok(begun.await.unwrap_or_else(WatchStart::Failed))
}
