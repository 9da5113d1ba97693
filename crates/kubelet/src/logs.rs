//! Serves container logs from the runtime's log files with the options of `kubectl logs`.
//!
//! A followed log is read when its file changes and ends with the container.

use std::{io::SeekFrom, os::unix::fs::MetadataExt, path::Path, sync::Arc, time::Duration};

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
use transport::query::Query;

use crate::{
    context::{self, KubeletContext},
    cri_log,
    http_handler::{InvalidParameter, ResponseBody, number_parameter, text_response},
    pod_spec,
    runtime_status::{ContainerRecord, PodRuntimeStatus},
};

/// Maximum line length; runtimes split lines at 16 KiB.
const MAX_LINE_LENGTH: u64 = 1 << 20;
const TAIL_BLOCK_SIZE: u64 = 64 << 10;
/// Waits for the new file of a rotated log.
const REOPEN_ATTEMPTS: usize = 20;
const REOPEN_DELAY: Duration = Duration::from_millis(100);

/// Options of a log request.
#[derive(Clone, Debug, Default, PartialEq)]
struct LogOptions {
    follow: bool,
    previous: bool,
    timestamps: bool,
    tail: Option<u64>,
    limit: Option<u64>,
    since: Option<Timestamp>,
}

impl LogOptions {
    fn parse(query: &Query, now: Timestamp) -> Result<Self, InvalidParameter> {
        let mut since = match number_parameter(query, "sinceSeconds")? {
            Some(seconds) => now.checked_sub(SignedDuration::from_secs(seconds.min(1 << 40) as i64)).ok(),
            None => None,
        };
        if let Some(time) = query.get("sinceTime") {
            since = Some(time.parse().map_err(|error| InvalidParameter(format!("sinceTime: {error}")))?);
        }
        Ok(Self {
            follow: query.is_set("follow"),
            previous: query.is_set("previous"),
            timestamps: query.is_set("timestamps"),
            tail: number_parameter(query, "tailLines")?,
            limit: number_parameter(query, "limitBytes")?,
            since,
        })
    }
}

/// Serves the log of a container given as namespace, pod and container name.
pub async fn serve_container_logs(
    kubelet: &Arc<KubeletContext>,
    of: [&str; 3],
    query: &Query,
) -> Response<ResponseBody> {
    let options = match LogOptions::parse(query, Timestamp::now()) {
        Ok(options) => options,
        Err(error) => return text_response(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let record = match find_container(kubelet, of, options.previous).await {
        Ok(record) => record,
        Err((status, message)) => return text_response(status, &message),
    };
    let file = match File::open(&record.status.log_path).await {
        Ok(file) => file,
        Err(error) => {
            let message = format!("failed to try resolving symlinks in path {:?}: {error}", record.status.log_path);
            return text_response(StatusCode::INTERNAL_SERVER_ERROR, &message);
        }
    };
    let (sender, receiver) = mpsc::channel(16);
    let reader = LogReader { kubelet: kubelet.clone(), record, options, sender };
    tokio::spawn(async move {
        if let Err(error) = reader.run(file).await {
            tracing::debug!(%error, "kubelet: log stream failed");
        }
    });
    let stream = futures::stream::unfold(receiver, |mut receiver: mpsc::Receiver<Bytes>| async move {
        receiver.recv().await.map(|bytes| (Ok(Frame::data(bytes)), receiver))
    });
    let mut response = text_response(StatusCode::OK, "");
    *response.body_mut() = BodyExt::boxed(StreamBody::new(SyncStream(Box::pin(stream))));
    response
}

/// Makes a stream `Sync`, as a response body requires; only one task polls it.
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

/// Finds the container whose log is requested.
async fn find_container(
    kubelet: &KubeletContext,
    of: [&str; 3],
    previous: bool,
) -> Result<ContainerRecord, (StatusCode, String)> {
    let [namespace, name, container] = of;
    let pod = kubelet.pods.get(namespace, name);
    let pod = pod.ok_or_else(|| (StatusCode::NOT_FOUND, format!("pod {name:?} not found")))?;
    if pod_spec::find_container(&pod, container).is_none() {
        let message = format!("container {container} is not valid for pod {name}");
        return Err((StatusCode::BAD_REQUEST, message));
    }
    let runtime_status = PodRuntimeStatus::fetch(&kubelet.cri, context::pod_uid(&pod)).await;
    let runtime_status = runtime_status.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.message()))?;
    let found = if previous {
        runtime_status.previous_container(container)
    } else {
        runtime_status.latest_container(container)
    };
    let found = found.filter(|record| !record.status.log_path.is_empty());
    found.cloned().ok_or_else(|| {
        let message = match previous {
            true => format!("previous terminated container {container:?} in pod {name:?} not found"),
            false => format!(
                "container {container:?} in pod {name:?} is waiting to start: {}",
                waiting_reason(&pod, container)
            ),
        };
        (StatusCode::BAD_REQUEST, message)
    })
}

/// Returns why a container has no log yet, in upstream's words.
fn waiting_reason(pod: &Pod, container: &str) -> String {
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

/// Streams one log to one client.
struct LogReader {
    kubelet: Arc<KubeletContext>,
    record: ContainerRecord,
    options: LogOptions,
    sender: mpsc::Sender<Bytes>,
}

impl LogReader {
    async fn run(self, mut file: File) -> std::io::Result<()> {
        let mut changes = self.kubelet.changes.subscribe();
        let mut watch =
            self.options.follow.then(|| FileWatch::new(Path::new(&self.record.status.log_path))).transpose()?;
        if let Some(lines) = self.options.tail {
            let start = tail_start(&mut file, lines).await?;
            file.seek(SeekFrom::Start(start)).await?;
        }
        let mut file = BufReader::new(file);
        let mut output = LogFormatter::new(&self.options);
        let mut line = Vec::new();
        let mut ended = !self.options.follow;
        loop {
            while read_line(&mut file, &mut line).await? {
                let bytes = output.format_line(&line);
                line.clear();
                if !bytes.is_empty() && self.sender.send(bytes).await.is_err() || output.is_exhausted() {
                    return Ok(());
                }
            }
            if self.options.follow
                && let Some((new_file, new_watch)) = self.open_rotated(file.get_ref()).await?
            {
                (file, watch) = (BufReader::new(new_file), Some(new_watch));
                continue;
            }
            let Some(watch) = watch.as_ref().filter(|_| !ended) else { return Ok(()) };
            // One more pass reads what was written before the container exited.
            ended = !self.check_running().await;
            if ended {
                continue;
            }
            tokio::select! {
                result = watch.wait_for_change() => result?,
                // A lagged receiver counts as a change.
                _ = changes.recv() => {}
                () = self.sender.closed() => return Ok(()),
            }
        }
    }

    /// Opens the log that replaced the one being read.
    async fn open_rotated(&self, current: &File) -> std::io::Result<Option<(File, FileWatch)>> {
        let path = Path::new(&self.record.status.log_path);
        let mut latest = tokio::fs::metadata(path).await;
        for _ in 0..REOPEN_ATTEMPTS {
            if latest.is_ok() {
                break;
            }
            // Between its renaming and the runtime's new file there is none.
            tokio::time::sleep(REOPEN_DELAY).await;
            latest = tokio::fs::metadata(path).await;
        }
        let Ok(latest) = latest else { return Ok(None) };
        if latest.ino() == current.metadata().await?.ino() {
            return Ok(None);
        }
        let watch = FileWatch::new(path)?;
        Ok(Some((File::open(path).await?, watch)))
    }

    async fn check_running(&self) -> bool {
        let status = self.kubelet.cri.container_status(&self.record.status.id).await;
        status.is_ok_and(|status| ContainerRecord { sandbox: String::new(), status }.is_running())
    }
}

/// Appends to `line` up to its newline; returns whether the line is complete.
async fn read_line(file: &mut BufReader<File>, line: &mut Vec<u8>) -> std::io::Result<bool> {
    let room = MAX_LINE_LENGTH.saturating_sub(line.len() as u64).max(1);
    let count = (&mut *file).take(room).read_until(b'\n', line).await?;
    Ok(count > 0 && (line.ends_with(b"\n") || line.len() as u64 >= MAX_LINE_LENGTH))
}

/// Returns the offset of the last `lines` lines.
async fn tail_start(file: &mut File, lines: u64) -> std::io::Result<u64> {
    let length = file.metadata().await?.len();
    if lines == 0 {
        return Ok(length);
    }
    let mut found = 0;
    let mut end = length;
    while end > 0 {
        let start = end.saturating_sub(TAIL_BLOCK_SIZE);
        let mut block = vec![0; (end - start) as usize];
        file.seek(SeekFrom::Start(start)).await?;
        file.read_exact(&mut block).await?;
        for (index, _) in block.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let at = start + index as u64;
            // The final newline terminates the last line and starts none.
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

/// Formats log lines for the client.
struct LogFormatter<'a> {
    options: &'a LogOptions,
    left: Option<u64>,
    /// Whether the last entry was partial.
    open: bool,
}

impl<'a> LogFormatter<'a> {
    fn new(options: &'a LogOptions) -> Self {
        Self { options, left: options.limit, open: false }
    }

    fn is_exhausted(&self) -> bool {
        self.left == Some(0)
    }

    fn format_line(&mut self, line: &[u8]) -> Bytes {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let Some(line) = cri_log::parse_log_line(line) else { return Bytes::new() };
        let too_old = |since: Timestamp| line.time.parse::<Timestamp>().is_ok_and(|time| time < since);
        if self.options.since.is_some_and(too_old) {
            return Bytes::new();
        }
        let mut text = Vec::with_capacity(line.text.len() + 40);
        if self.options.timestamps && !self.open {
            text.extend_from_slice(line.time.as_bytes());
            text.push(b' ');
        }
        text.extend_from_slice(line.text);
        self.open = line.partial;
        if !line.partial {
            text.push(b'\n');
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
    async fn tail_starts_at_a_line() {
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
    fn options_filter_and_format_lines() {
        let check = |query: &str, expected: &str| {
            let options = LogOptions::parse(&Query::parse(query), Timestamp::from_second(100).unwrap()).unwrap();
            let mut output = LogFormatter::new(&options);
            let lines = [
                "1970-01-01T00:00:50Z stdout F old\n",
                "1970-01-01T00:01:35Z stdout P ha\n",
                "1970-01-01T00:01:35Z stdout F lf\n",
                "junk\n",
            ];
            let text: Vec<u8> = lines.iter().flat_map(|line| output.format_line(line.as_bytes())).collect();
            assert_eq!(String::from_utf8(text).unwrap(), expected, "{query}");
        };
        check("", "old\nhalf\n");
        check("sinceSeconds=10", "half\n");
        check("sinceTime=1970-01-01T00:01:00Z&timestamps=true", "1970-01-01T00:01:35Z half\n");
        check("limitBytes=6", "old\nha");
        assert!(LogOptions::parse(&Query::parse("sinceTime=x"), Timestamp::UNIX_EPOCH).is_err());
    }
}
