//! Termination messages: the termination log, or the end of the container's log.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::{
    blocking::run_blocking,
    context::{self, KubeletContext},
    cri_log,
    runtime_status::ContainerRecord,
    volumes::PodDir,
};

const MAX_MESSAGE_LENGTH: u64 = 4096;
const MAX_LOG_LENGTH: u64 = 2048;
const MAX_LOG_LINES: usize = 80;

/// Returns the message of an exited container; empty if there is none.
pub async fn read_termination_message(kubelet: &KubeletContext, pod: &Pod, record: &ContainerRecord) -> String {
    let dir = PodDir::new(&kubelet.root_dir, context::pod_uid(pod));
    let record = record.clone();
    run_blocking(move || read_from_files(&dir, &record)).await
}

fn read_from_files(dir: &PodDir, record: &ContainerRecord) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(termination_log(dir, record.name(), record.attempt())) {
        // A partial message is better than none.
        let _ = file.take(MAX_MESSAGE_LENGTH).read_to_end(&mut bytes);
    }
    let policy = record.status.annotations.get("io.kubernetes.container.terminationMessagePolicy");
    let from_logs = policy.is_some_and(|policy| policy == "FallbackToLogsOnError") && record.status.exit_code != 0;
    if bytes.is_empty() && from_logs {
        return read_log_tail(Path::new(&record.status.log_path));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the path of the termination log in the container.
pub fn termination_path(container: &Container) -> &str {
    let path = container.termination_message_path.as_deref().filter(|path| !path.is_empty());
    path.unwrap_or("/dev/termination-log")
}

/// Returns the host path of a container's termination log.
pub fn termination_log(dir: &PodDir, container: &str, attempt: u32) -> PathBuf {
    dir.path().join("containers").join(container).join(attempt.to_string())
}

/// Returns the attempt after the newest of which `log_dir` has a log `<attempt>.log` or a rotated one.
pub async fn next_attempt(log_dir: PathBuf) -> u32 {
    run_blocking(move || {
        let names = fs::read_dir(log_dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let attempt = |name: &str| {
            let (attempt, rest) = name.split_once(".log")?;
            attempt.parse::<u32>().ok().filter(|_| rest.is_empty() || rest.starts_with('.'))
        };
        let attempts = names.filter_map(|name| attempt(name.to_str()?));
        attempts.max().map_or(0, |attempt| attempt.saturating_add(1))
    })
    .await
}

/// Creates the termination log, writable by every user.
pub async fn create_termination_log(path: PathBuf) -> io::Result<()> {
    run_blocking(move || {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::File::create(&path)?;
        // The container may run as any user.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))
    })
    .await
}

/// Returns the last lines of a log.
fn read_log_tail(path: &Path) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        let length = file.metadata()?.len();
        // Each line has a prefix of about 40 bytes.
        file.seek(SeekFrom::Start(length.saturating_sub(MAX_LOG_LENGTH * 4)))?;
        file.take(MAX_LOG_LENGTH * 4).read_to_end(&mut bytes)
    });
    if read.is_err() {
        return String::new();
    }
    let result = join_log_lines(&bytes);
    let result = last_lines(&result, MAX_LOG_LINES);
    let mut result = String::from_utf8_lossy(result).into_owned();
    let mut start = result.len().saturating_sub(MAX_LOG_LENGTH as usize);
    while !result.is_char_boundary(start) {
        start += 1;
    }
    result.split_off(start)
}

/// Joins log entries to the text that the container wrote: a partial entry continues in the next one.
fn join_log_lines(log: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for line in log.split(|byte| *byte == b'\n').filter_map(cri_log::parse_log_line) {
        text.extend_from_slice(line.text);
        if !line.partial {
            text.push(b'\n');
        }
    }
    text
}

/// Returns the last `count` lines of a text.
fn last_lines(text: &[u8], count: usize) -> &[u8] {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let starts = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    let start = { starts }.nth(count.saturating_sub(1)).unwrap_or(0);
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_tail_becomes_the_message() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let lines: String = (0..100).map(|n| format!("2026-01-01T00:00:00.0Z stderr F line {n}\n")).collect();
        std::fs::write(&path, lines).unwrap();
        let message = read_log_tail(&path);
        assert!(message.starts_with("line 20\n") && message.ends_with("line 99\n"), "{message}");
        assert_eq!(read_log_tail(&dir.path().join("absent")), "");
    }

    #[test]
    fn partial_entries_are_joined() {
        let log = b"2026-01-01T00:00:00Z stderr P a\n2026-01-01T00:00:00Z stderr P b\n2026-01-01T00:00:00Z stderr F c\n2026-01-01T00:00:00Z stdout P end";
        assert_eq!(join_log_lines(log), b"abc\nend");
        assert_eq!(last_lines(b"a\nb\nc\n", 2), b"b\nc\n");
        assert_eq!(last_lines(b"a\nb", 9), b"a\nb");
    }
}
