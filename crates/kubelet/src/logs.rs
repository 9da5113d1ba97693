//! Container logs, from the files that the runtime writes: `kubectl logs`, with all its options.
//!
//! A followed log is read when the file changes, and ends when the container has.

use std::{io::SeekFrom, path::Path, sync::Arc};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use k8s_openapi::{
    api::core::v1::Pod,
    jiff::{SignedDuration, Timestamp},
};
use runtime::file_watch::FileWatch;
use tokio::{
    fs::File,
    io::{AsyncBufReadExt, AsyncReadExt, AsyncSeekExt, BufReader},
    sync::mpsc,
};

use crate::{
    agent::{self, Agent},
    cri_log,
    server::{Body, Query, text},
    truth::{Seen, Truth},
};

/// A line longer than this is cut; runtimes cut theirs at 16 KiB.
const MAX_LINE: u64 = 1 << 20;
const BLOCK: u64 = 64 << 10;

/// What of a log is wanted.
#[derive(Clone, Debug, Default, PartialEq)]
struct Options {
    follow: bool,
    previous: bool,
    timestamps: bool,
    tail: Option<u64>,
    limit: Option<u64>,
    since: Option<Timestamp>,
}

impl Options {
    fn parse(query: &Query, now: Timestamp) -> Result<Self, String> {
        let mut since = match query.number("sinceSeconds")? {
            Some(seconds) => now.checked_sub(SignedDuration::from_secs(seconds.min(1 << 40) as i64)).ok(),
            None => None,
        };
        if let Some(time) = query.get("sinceTime").filter(|time| !time.is_empty()) {
            since = Some(time.parse().map_err(|error| format!("sinceTime: {error}"))?);
        }
        Ok(Self {
            follow: query.is_set("follow"),
            previous: query.is_set("previous"),
            timestamps: query.is_set("timestamps"),
            tail: query.number("tailLines")?,
            limit: query.number("limitBytes")?,
            since,
        })
    }
}

/// Answers a request for the log of a container: namespace, pod, container.
pub async fn serve(agent: &Arc<Agent>, of: [&str; 3], query: &Query) -> Response<Body> {
    let options = match Options::parse(query, Timestamp::now()) {
        Ok(options) => options,
        Err(message) => return text(StatusCode::BAD_REQUEST, &message),
    };
    let seen = match find(agent, of, options.previous).await {
        Ok(seen) => seen,
        Err((status, message)) => return text(status, &message),
    };
    let file = match File::open(&seen.status.log_path).await {
        Ok(file) => file,
        Err(error) => {
            let message = format!("failed to try resolving symlinks in path {:?}: {error}", seen.status.log_path);
            return text(StatusCode::INTERNAL_SERVER_ERROR, &message);
        }
    };
    let (sender, receiver) = mpsc::channel(16);
    let reader = Reader { agent: agent.clone(), seen, options, sender };
    tokio::spawn(async move {
        if let Err(error) = reader.run(file).await {
            tracing::debug!(%error, "a log cannot be read on");
        }
    });
    let stream = futures::stream::unfold(receiver, |mut receiver: mpsc::Receiver<Bytes>| async move {
        receiver.recv().await.map(|bytes| (Ok(Frame::data(bytes)), receiver))
    });
    let mut response = text(StatusCode::OK, "");
    *response.body_mut() = BodyExt::boxed(StreamBody::new(SyncStream(Box::pin(stream))));
    response
}

/// A body must be `Sync`; this one is only ever polled from one place.
struct SyncStream<S>(S);

impl<S: futures::Stream + Unpin> futures::Stream for SyncStream<S> {
    type Item = S::Item;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::pin::Pin::new(&mut self.0).poll_next(context)
    }
}

/// The container whose log is wanted.
async fn find(agent: &Agent, of: [&str; 3], previous: bool) -> Result<Seen, (StatusCode, String)> {
    let [namespace, name, container] = of;
    let pod = agent.pods.get(namespace, name);
    let pod = pod.ok_or_else(|| (StatusCode::NOT_FOUND, format!("pod {name:?} not found")))?;
    let spec = pod.spec.clone().unwrap_or_default();
    let mut containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    if !containers.any(|known| known.name == container) {
        let message = format!("container {container} is not valid for pod {name}");
        return Err((StatusCode::BAD_REQUEST, message));
    }
    let truth = Truth::read(&agent.cri, agent::uid(&pod)).await;
    let truth = truth.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.message()))?;
    let found = if previous { truth.previous(container) } else { truth.latest(container) };
    let found = found.filter(|seen| !seen.status.log_path.is_empty());
    found.cloned().ok_or_else(|| {
        let message = match previous {
            true => format!("previous terminated container {container:?} in pod {name:?} not found"),
            false => format!("container {container:?} in pod {name:?} is waiting to start: {}", why(&pod, container)),
        };
        (StatusCode::BAD_REQUEST, message)
    })
}

/// Why a container has no log yet, in upstream's words.
fn why(pod: &Pod, container: &str) -> String {
    let status = pod.status.as_ref();
    let init = status.iter().flat_map(|status| status.init_container_statuses.iter().flatten());
    let mut all = init.chain(status.iter().flat_map(|status| status.container_statuses.iter().flatten()));
    let state = all.find(|status| status.name == container).and_then(|status| status.state.clone());
    match state.and_then(|state| state.waiting?.reason).as_deref() {
        Some("ErrImagePull") => "image can't be pulled".into(),
        Some("ImagePullBackOff") => "trying and failing to pull image".into(),
        Some(reason) => reason.into(),
        None => "ContainerCreating".into(),
    }
}

/// Reads one log for one client.
struct Reader {
    agent: Arc<Agent>,
    seen: Seen,
    options: Options,
    sender: mpsc::Sender<Bytes>,
}

impl Reader {
    async fn run(self, mut file: File) -> std::io::Result<()> {
        let mut changes = self.agent.changes.subscribe();
        let watch = self.options.follow.then(|| FileWatch::new(Path::new(&self.seen.status.log_path))).transpose()?;
        if let Some(lines) = self.options.tail {
            let start = tail_start(&mut file, lines).await?;
            file.seek(SeekFrom::Start(start)).await?;
        }
        let mut file = BufReader::new(file);
        let mut output = Output::new(&self.options);
        let mut line = String::new();
        let mut ended = !self.options.follow;
        loop {
            while read_line(&mut file, &mut line).await? {
                let bytes = output.format(&line);
                line.clear();
                if !bytes.is_empty() && self.sender.send(bytes).await.is_err() || output.full() {
                    return Ok(());
                }
            }
            let Some(watch) = watch.as_ref().filter(|_| !ended) else { return Ok(()) };
            // What was written before the container ended is read in one more turn.
            ended = !self.is_running().await;
            if ended {
                continue;
            }
            tokio::select! {
                result = watch.changed() => result?,
                // Lagging behind is a change too.
                _ = changes.recv() => {}
                () = self.sender.closed() => return Ok(()),
            }
        }
    }

    async fn is_running(&self) -> bool {
        let status = self.agent.cri.container_status(&self.seen.status.id).await;
        status.is_ok_and(|status| Seen { sandbox: String::new(), status }.running())
    }
}

/// Appends to `line` up to its newline; false if there is no whole line yet.
async fn read_line(file: &mut BufReader<File>, line: &mut String) -> std::io::Result<bool> {
    let mut bytes = Vec::new();
    let room = MAX_LINE.saturating_sub(line.len() as u64).max(1);
    let count = (&mut *file).take(room).read_until(b'\n', &mut bytes).await?;
    line.push_str(&String::from_utf8_lossy(&bytes));
    Ok(count > 0 && (line.ends_with('\n') || line.len() as u64 >= MAX_LINE))
}

/// Where the last `lines` lines begin.
async fn tail_start(file: &mut File, lines: u64) -> std::io::Result<u64> {
    let length = file.metadata().await?.len();
    if lines == 0 {
        return Ok(length);
    }
    let mut found = 0;
    let mut end = length;
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        let mut block = vec![0; (end - start) as usize];
        file.seek(SeekFrom::Start(start)).await?;
        file.read_exact(&mut block).await?;
        for (index, _) in block.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let at = start + index as u64;
            // The newline at the very end closes the last line and begins none.
            if at + 1 < length {
                found += 1;
                if found == lines {
                    return Ok(at + 1);
                }
            }
        }
        end = start;
    }
    Ok(0)
}

/// Turns lines of the file into what the client gets.
struct Output<'a> {
    options: &'a Options,
    left: Option<u64>,
    /// The last piece did not end its line.
    open: bool,
}

impl<'a> Output<'a> {
    fn new(options: &'a Options) -> Self {
        Self { options, left: options.limit, open: false }
    }

    fn full(&self) -> bool {
        self.left == Some(0)
    }

    fn format(&mut self, line: &str) -> Bytes {
        let Some(line) = cri_log::parse(line.trim_end_matches('\n')) else { return Bytes::new() };
        let too_old = |since: Timestamp| line.time.parse::<Timestamp>().is_ok_and(|time| time < since);
        if self.options.since.is_some_and(too_old) {
            return Bytes::new();
        }
        let mut text = String::with_capacity(line.text.len() + 40);
        if self.options.timestamps && !self.open {
            text.push_str(line.time);
            text.push(' ');
        }
        text.push_str(line.text);
        self.open = line.partial;
        if !line.partial {
            text.push('\n');
        }
        let mut bytes = Bytes::from(text);
        if let Some(left) = &mut self.left {
            bytes.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= bytes.len() as u64;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_tail_begins_at_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let lines: String = (0..5000).map(|n| format!("line number {n}\n")).collect();
        std::fs::write(&path, &lines).unwrap();
        let mut file = File::open(&path).await.unwrap();
        for (count, expected) in [(0, 0), (1, 1), (3, 3), (4999, 4999), (9999, 5000)] {
            let start = tail_start(&mut file, count).await.unwrap();
            let rest = &lines[start as usize..];
            assert_eq!(rest.lines().count(), expected);
            assert!(rest.is_empty() || rest.starts_with("line number"));
        }
    }

    #[test]
    fn options_shape_the_output() {
        let check = |query: &str, expected: &str| {
            let options = Options::parse(&Query::parse(Some(query)), Timestamp::from_second(100).unwrap()).unwrap();
            let mut output = Output::new(&options);
            let lines = [
                "1970-01-01T00:00:50Z stdout F old\n",
                "1970-01-01T00:01:35Z stdout P ha\n",
                "1970-01-01T00:01:35Z stdout F lf\n",
                "junk\n",
            ];
            let text: Vec<u8> = lines.iter().flat_map(|line| output.format(line)).collect();
            assert_eq!(String::from_utf8(text).unwrap(), expected, "{query}");
        };
        check("", "old\nhalf\n");
        check("sinceSeconds=10", "half\n");
        check("sinceTime=1970-01-01T00:01:00Z&timestamps=true", "1970-01-01T00:01:35Z half\n");
        check("limitBytes=6", "old\nha");
        assert!(Options::parse(&Query::parse(Some("sinceTime=x")), Timestamp::UNIX_EPOCH).is_err());
    }
}
