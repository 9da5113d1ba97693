//! Watches: changes after a revision as a stream of JSON lines or protobuf frames, thinned by selectors.
//!
//! An object that begins to match is ADDED, one that ceases to match is DELETED. A watch ends at its time-out, when the
//! server stops, or with an ERROR event when the history it needs is gone.

use std::time::Duration;

use api::{Value, convert, protobuf, status::Status, table};
use bytes::{BufMut, Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use http::{HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::json;
use store::{Event, Follow, Notice, Record, Revision};
use tokio::time::Instant;

use crate::{
    Body, BodyError, Server,
    document::{self, Tail},
    encode::{self, Form},
    registry::{self, selection::Selection},
    request::Target,
};

/// The content type of a watch in protobuf.
const STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch";
/// How often a quiet watch tells how far it is.
const BOOKMARK: Duration = Duration::from_secs(60);

/// Answers a watch.
pub async fn answer(server: &Server, target: Target, form: Form) -> Result<Response<Body>, Status> {
    let view = View::of(target, form)?;
    let start = start(server, &view).await?;
    let timeout = match view.target.query.get("timeoutSeconds").map(str::parse::<u64>) {
        Some(Ok(seconds)) if seconds > 0 => seconds.min(86_400),
        _ => server.shared.settings.load.watch_seconds(),
    };
    let ends = Instant::now() + Duration::from_secs(timeout);
    let lines = lines(server.clone(), view, start, ends);
    let body = StreamBody::new(lines.map(|line| Ok::<_, BodyError>(Frame::data(line)))).boxed_unsync();
    let mut response = encode::bytes(200, Bytes::new());
    *response.body_mut() = body;
    if form == Form::Protobuf {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(STREAM));
    }
    Ok(response)
}

/// What a watch shows.
struct View {
    target: Target,
    form: Form,
    selection: Selection,
    prefix: String,
    tail: Tail,
    bookmarks: bool,
}

impl View {
    fn of(target: Target, form: Form) -> Result<Self, Status> {
        let selection = Selection::of(&target)?;
        let prefix = document::key(target.resource, &target.namespace, "");
        let bookmarks = target.query.flag("allowWatchBookmarks");
        let tail = Tail::of(target.resource);
        Ok(Self { target, form, selection, prefix, tail, bookmarks })
    }
}

/// Where a watch begins.
struct Start {
    /// What exists already, when the client wants it as events.
    existing: Vec<Record>,
    /// The changes after `after` follow.
    after: Revision,
    /// The client wants to know where the existing objects end.
    mark_end: bool,
}

async fn start(server: &Server, view: &View) -> Result<Start, Status> {
    let store = server.shared.registry.store();
    let revision = registry::revision(&view.target)?;
    let initial = view.target.query.get("sendInitialEvents").map(|value| value == "true");
    if initial.is_some() && view.target.query.get("resourceVersionMatch") != Some("NotOlderThan") {
        return Err(Status::bad_request(
            "resourceVersionMatch: Forbidden: resourceVersionMatch must be NotOlderThan when sendInitialEvents is set",
        ));
    }
    let wants_existing = initial.unwrap_or(matches!(revision, None | Some(0)));
    if !wants_existing {
        let after = match revision {
            None | Some(0) => store.revision().await.map_err(Status::internal)?,
            Some(revision) => revision,
        };
        return Ok(Start { existing: Vec::new(), after, mark_end: false });
    }
    let range = store::Range { prefix: view.prefix.clone(), ..Default::default() };
    let page = store.list(range).await.map_err(|error| registry::failed(view.target.resource, "", error))?;
    if let Some(requested) = revision.filter(|revision| *revision > page.revision) {
        return Err(Status::future_revision(requested, page.revision));
    }
    Ok(Start { existing: page.records, after: page.revision, mark_end: initial == Some(true) && view.bookmarks })
}

/// The lines of the answer.
fn lines(server: Server, view: View, start: Start, ends: Instant) -> impl Stream<Item = Bytes> + Send {
    let stopping = server.shared.stopping.clone();
    let state = Lines {
        server,
        view,
        existing: start.existing.into_iter(),
        after: start.after,
        mark_end: start.mark_end,
        notices: None,
        done: false,
    };
    let timeout = tokio::time::sleep_until(ends);
    stream::unfold(state, |mut state| async move { state.next().await.map(|line| (line, state)) }).take_until(
        async move {
            tokio::select! {
                () = timeout => {}
                () = stopping.cancelled() => {}
            }
        },
    )
}

struct Lines {
    server: Server,
    view: View,
    existing: std::vec::IntoIter<Record>,
    after: Revision,
    mark_end: bool,
    notices: Option<store::Notices>,
    done: bool,
}

impl Lines {
    async fn next(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        for record in self.existing.by_ref() {
            match self.view.existing(&record) {
                Ok(Some(line)) => return Some(line),
                Ok(None) => {}
                Err(error) => return Some(self.end(&error)),
            }
        }
        if std::mem::take(&mut self.mark_end) {
            return Some(self.view.bookmark(self.after, true));
        }
        if self.notices.is_none() {
            let follow = Follow { prefix: self.view.prefix.clone(), after: self.after, progress: Some(BOOKMARK) };
            match self.server.shared.registry.store().follow(follow).await {
                Ok(notices) => self.notices = Some(notices),
                Err(error) => return Some(self.end(&error)),
            }
        }
        self.change().await
    }

    async fn change(&mut self) -> Option<Bytes> {
        loop {
            let line = match self.notices.as_mut()?.next().await? {
                Ok(Notice::Event(event)) => self.view.event(&event),
                Ok(Notice::Progress(revision)) => Ok(self.view.bookmarks.then(|| self.view.bookmark(revision, false))),
                Err(error) => Err(error),
            };
            match line {
                Ok(Some(line)) => return Some(line),
                Ok(None) => {}
                Err(error) => return Some(self.end(&error)),
            }
        }
    }

    fn end(&mut self, error: &store::Error) -> Bytes {
        self.done = true;
        let status = match error {
            store::Error::Compacted { requested, oldest } => {
                Status::expired(format!("too old resource version: {requested} ({oldest})"))
            }
            store::Error::Future { requested, current } => Status::future_revision(*requested, *current),
            error => Status::internal(error),
        };
        self.view.line("ERROR", &status.to_value())
    }
}

impl View {
    fn existing(&self, record: &Record) -> Result<Option<Bytes>, store::Error> {
        self.render("ADDED", &record.value, record.revision)
    }

    /// One change as the selectors see it.
    fn event(&self, event: &Event) -> Result<Option<Bytes>, store::Error> {
        let previous = event.previous.as_ref();
        if self.selection.is_everything() {
            return match (&event.value, previous) {
                (Some(value), None) => self.render("ADDED", value, event.revision),
                (Some(value), Some(_)) => self.render("MODIFIED", value, event.revision),
                (None, Some(previous)) => self.render("DELETED", &previous.value, event.revision),
                (None, None) => Ok(None),
            };
        }
        let was = match previous {
            Some(previous) => self.selects(&previous.value, previous.revision)?,
            None => false,
        };
        let is = match &event.value {
            Some(value) => self.selects(value, event.revision)?,
            None => false,
        };
        match (was, is, &event.value, previous) {
            (false, true, Some(value), _) => self.render("ADDED", value, event.revision),
            (true, true, Some(value), _) => self.render("MODIFIED", value, event.revision),
            (true, false, Some(value), _) => self.render("DELETED", value, event.revision),
            (true, _, None, Some(previous)) => self.render("DELETED", &previous.value, event.revision),
            _ => Ok(None),
        }
    }

    fn selects(&self, value: &Bytes, revision: Revision) -> Result<bool, store::Error> {
        let object = convert::to(self.target.resource, document::decode(value, revision)?);
        Ok(self.selection.matches(&object))
    }

    fn render(&self, kind: &str, value: &Bytes, revision: Revision) -> Result<Option<Bytes>, store::Error> {
        if self.form == Form::Json && self.selection.is_everything() && self.tail.ends(value) {
            return Ok(Some(line(kind, &document::answer(value, revision))));
        }
        let object = convert::to(self.target.resource, document::decode(value, revision)?);
        if kind == "ADDED" && !self.selection.matches(&object) {
            return Ok(None);
        }
        Ok(Some(self.line(kind, &encode::shaped(&self.target, self.form, object))))
    }

    fn bookmark(&self, revision: Revision, initial_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let resource = self.target.resource;
        let object: Value = json!({"kind": resource.kind, "apiVersion": resource.api_version(), "metadata": metadata});
        let object = match self.form {
            Form::Metadata => table::partial_metadata(&object),
            Form::Json | Form::Protobuf | Form::Table(_) => encode::shaped(&self.target, self.form, object),
        };
        self.line("BOOKMARK", &object)
    }

    fn line(&self, kind: &str, object: &Value) -> Bytes {
        match self.form {
            Form::Protobuf => protobuf::frame(&protobuf::encode_watch_event(kind, object)).into(),
            Form::Json | Form::Table(_) | Form::Metadata => line(kind, object.to_string().as_bytes()),
        }
    }
}

/// `{"type":"ADDED","object":{…}}` and a newline.
fn line(kind: &str, object: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(object.len() + 40);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(kind.as_bytes());
    out.put_slice(b"\",\"object\":");
    out.put_slice(object);
    out.put_slice(b"}\n");
    out.freeze()
}
