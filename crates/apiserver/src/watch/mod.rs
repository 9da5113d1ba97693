//! Watches: changes after a revision as a stream of JSON lines or protobuf frames, thinned by selectors.
//!
//! An object that begins to match is ADDED, one that ceases to match is DELETED. A watch ends at its time-out, when the
//! server stops, or with an ERROR event when the history it needs is gone.

mod lines;
pub mod socket;
mod view;

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

use self::{lines::Lines, view::View};
use crate::{Server, encode};

/// The content type of a watch in protobuf.
const STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch";
/// Changes are told soon after they were made: what was not told for so long is not there.
const LAST_WORDS: Duration = Duration::from_millis(50);
/// No watch lasts longer.
const LONGEST: u64 = 86_400;

/// Answers a watch.
pub async fn answer(
    server: &Server,
    target: ResourceRequest,
    form: MediaTypeOptions,
) -> Result<Response<Body>, Status> {
    let pieces = pieces(server, target, form).await?;
    let mut response = encode::bytes(200, Bytes::new());
    *response.body_mut() = StreamBody::new(pieces.map(|piece| Ok::<_, BodyError>(Frame::data(piece)))).boxed_unsync();
    if form.encoding == ResponseEncoding::Protobuf {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(STREAM));
    }
    Ok(response)
}

/// What a watch says, piece by piece, until it ends.
async fn pieces(
    server: &Server,
    target: ResourceRequest,
    form: MediaTypeOptions,
) -> Result<BoxStream<'static, Bytes>, Status> {
    let options = ListOptions::from_request(&target)?;
    let start = start(server, &target, &options).await?;
    let ends = Instant::now() + lasts(server, options.timeout);
    let resource = target.resource.clone();
    let ended = server.shared.registry.crds().ended(&resource);
    let view = View::new(target, form, options.selection).converted_by(&server.shared.registry);
    let lines = Lines::new(view, start, options.bookmarks, ends);
    let stopping = server.shared.stopping.clone();
    let until = async move {
        tokio::select! {
            () = tokio::time::sleep_until(ends) => {}
            () = stopping.cancelled() => {}
        }
    };
    let watched = Watched { registry: server.shared.registry.clone(), resource, lines, ended };
    let pieces = stream::unfold(watched, |mut watched| async move { watched.next().await.map(|line| (line, watched)) });
    Ok(pieces.take_until(until).boxed())
}

/// A watch of a resource that may cease to be.
struct Watched {
    registry: Arc<Registry>,
    resource: ResourceRef,
    lines: Lines,
    /// Cancelled when the definition of the resource changes or goes; `None`: it never does.
    ended: Option<CancellationToken>,
}

impl Watched {
    /// The next piece. Who watches a custom resource whose definition changes begins anew; if it goes, the objects that went
    /// before it are told, but nothing of another one that has its name.
    async fn next(&mut self) -> Option<Bytes> {
        let Some(ended) = &self.ended else { return self.lines.next().await };
        let replaced = || ended.is_cancelled() && self.registry.crds().is_replaced(&self.resource);
        if replaced() {
            return None;
        }
        let over = async {
            ended.cancelled().await;
            if !replaced() {
                tokio::time::sleep(LAST_WORDS).await;
            }
        };
        tokio::select! {
            biased;
            line = self.lines.next() => line.filter(|_| !replaced()),
            () = over => None,
        }
    }
}

fn lasts(server: &Server, timeout: Option<i64>) -> Duration {
    Duration::from_secs(match timeout {
        None | Some(0) => server.shared.settings.load.watch_seconds(),
        Some(seconds) => u64::try_from(seconds).unwrap_or(0).min(LONGEST),
    })
}

/// Where a watch begins.
enum Start {
    /// With what exists, as changes, and then with what follows. The client hears where the existing objects end.
    Existing(Snapshot, CacheWatcher),
    /// With the changes after a revision.
    Changes(CacheWatcher),
    /// Not at all: what it needs is not there.
    Never(store::StoreError),
}

async fn start(server: &Server, target: &ResourceRequest, options: &ListOptions) -> Result<Start, Status> {
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
            return Ok(Start::Existing(snapshot, watcher));
        }
        let after = match revision {
            Some(revision) if revision > 0 => {
                server.shared.registry.crds().reaches(&target.resource, revision)?;
                revision
            }
            _ => cache.snapshot(&prefix, at).await?.revision,
        };
        Ok(Start::Changes(cache.watch_prefix(&prefix, after)?))
    };
    // Whatever is wrong from here on, upstream tells in the stream.
    Ok(begun.await.unwrap_or_else(Start::Never))
}
