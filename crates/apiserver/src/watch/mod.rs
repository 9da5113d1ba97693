//! Watch requests: a stream of JSON lines or protobuf frames with the selected changes after a revision.
//!
//! An object that starts to match the selectors is ADDED, one that stops matching is DELETED. A watch ends at its
//! timeout, when the server stops, or with an ERROR event if its revision is compacted.

mod event_encoder;
mod event_stream;
pub mod websocket;

use std::{sync::Arc, time::Duration};

use api::{schema::ResourceRef, status::Status};
use apiserver_core::{
    Body, BodyError, document,
    negotiation::{MediaTypeOptions, ResponseEncoding},
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

use self::{event_encoder::EventEncoder, event_stream::EventStream};
use crate::{Server, encode};

/// The content type of a watch in protobuf.
const PROTOBUF_STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch";
/// Time in which a watch drains events after its CRD is deleted.
const DELETED_CRD_DRAIN: Duration = Duration::from_millis(50);
/// Maximum timeout of a watch.
const MAX_WATCH_SECONDS: u64 = 86_400;

/// Handles a watch request.
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

/// Opens the stream of chunks of a watch.
async fn open_stream(
    server: &Server,
    target: ResourceRequest,
    form: MediaTypeOptions,
) -> Result<BoxStream<'static, Bytes>, Status> {
    let options = ListOptions::from_request(&target)?;
    let start = find_start(server, &target, &options).await?;
    let ends = Instant::now() + watch_duration(server, options.timeout);
    let resource = target.resource.clone();
    let ended = server.shared.registry.crds().change_token(&resource);
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
    let pieces =
        stream::unfold(watched, |mut watched| async move { watched.next_chunk().await.map(|line| (line, watched)) });
    Ok(pieces.take_until(until).boxed())
}

/// A watch that ends when the CRD of its resource changes.
struct WatchedResource {
    registry: Arc<Registry>,
    resource: ResourceRef,
    lines: EventStream,
    /// Cancelled when the CRD changes or is deleted; `None` for built-in resources.
    ended: Option<CancellationToken>,
}

impl WatchedResource {
    /// The next chunk. A changed CRD ends the watch; a deleted one ends it after the deletions of its objects, without
    /// events of a recreated CRD.
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
        None | Some(0) => server.shared.options.load.random_watch_seconds(),
        Some(seconds) => u64::try_from(seconds).unwrap_or(0).min(MAX_WATCH_SECONDS),
    })
}

/// The start of a watch.
enum WatchStart {
    /// The existing objects as ADDED events, a bookmark, then changes.
    Existing(Snapshot, CacheWatcher),
    /// The changes after a revision.
    Changes(CacheWatcher),
    /// An ERROR event.
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
                server.shared.registry.crds().check_revision(&target.resource, revision)?;
                revision
            }
            _ => cache.snapshot(&prefix, at).await?.revision,
        };
        Ok(WatchStart::Changes(cache.watch_prefix(&prefix, after)?))
    };
    // Upstream reports errors from here on as events.
    Ok(begun.await.unwrap_or_else(WatchStart::Failed))
}
