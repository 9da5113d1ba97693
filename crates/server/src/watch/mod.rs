//! Watches: changes after a revision as a stream of JSON lines or protobuf frames, thinned by selectors.
//!
//! An object that begins to match is ADDED, one that ceases to match is DELETED. A watch ends at its time-out, when the
//! server stops, or with an ERROR event when the history it needs is gone.

mod lines;
pub mod socket;
mod view;

use std::time::Duration;

use api::status::Status;
use bytes::Bytes;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use http::{HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use store::{At, Snapshot, Watcher};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{lines::Lines, view::View};
use crate::{
    Body, BodyError, Server, document, encode,
    form::{Encoding, Form},
    registry::ListOptions,
    request::Target,
};

/// The content type of a watch in protobuf.
const STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch";
/// No watch lasts longer.
const LONGEST: u64 = 86_400;

/// Answers a watch.
pub async fn answer(server: &Server, target: Target, form: Form) -> Result<Response<Body>, Status> {
    let pieces = pieces(server, target, form).await?;
    let mut response = encode::bytes(200, Bytes::new());
    *response.body_mut() = StreamBody::new(pieces.map(|piece| Ok::<_, BodyError>(Frame::data(piece)))).boxed_unsync();
    if form.encoding == Encoding::Protobuf {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(STREAM));
    }
    Ok(response)
}

/// What a watch says, piece by piece, until it ends.
async fn pieces(server: &Server, target: Target, form: Form) -> Result<BoxStream<'static, Bytes>, Status> {
    let options = ListOptions::of(&target)?;
    let start = start(server, &target, &options).await?;
    let ends = Instant::now() + lasts(server, options.timeout);
    let ended = server.shared.registry.custom().ended(&target.resource);
    let view = View::new(target, form, options.selection).converted_by(&server.shared.registry);
    let lines = Lines::new(view, start, options.bookmarks, ends);
    let stopping = server.shared.stopping.clone();
    let until = async move {
        tokio::select! {
            () = tokio::time::sleep_until(ends) => {}
            () = stopping.cancelled() => {}
            // Who watches a custom resource whose definition changes begins anew.
            () = over(ended) => {}
        }
    };
    let pieces = stream::unfold(lines, |mut lines| async move { lines.next().await.map(|line| (line, lines)) });
    Ok(pieces.take_until(until).boxed())
}

/// Cancelled, or never.
async fn over(ended: Option<CancellationToken>) {
    match ended {
        Some(ended) => ended.cancelled().await,
        None => std::future::pending().await,
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
    Existing(Snapshot, Watcher),
    /// With the changes after a revision.
    Changes(Watcher),
    /// Not at all: what it needs is not there.
    Never(store::Error),
}

async fn start(server: &Server, target: &Target, options: &ListOptions) -> Result<Start, Status> {
    let prefix = document::key(&target.resource, &target.namespace, "");
    let revision = ListOptions::parsed_revision(&options.revision)?;
    let cache = server.shared.registry.cache();
    let at = match revision {
        None => At::Newest,
        Some(0) => At::Any,
        Some(revision) => At::NotBefore(revision),
    };
    let begun = async {
        if options.initial == Some(true) {
            let snapshot = cache.snapshot(&prefix, at).await?;
            let watcher = cache.watch(&prefix, snapshot.revision)?;
            return Ok(Start::Existing(snapshot, watcher));
        }
        let after = match revision {
            Some(revision) if revision > 0 => revision,
            _ => cache.snapshot(&prefix, at).await?.revision,
        };
        Ok(Start::Changes(cache.watch(&prefix, after)?))
    };
    // Whatever is wrong from here on, upstream tells in the stream.
    Ok(begun.await.unwrap_or_else(Start::Never))
}
