//! Termination messages: the termination log, or the end of the container's log.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::Path,
};

use k8s_openapi::api::core::v1::Pod;

use crate::{
    blocking::run_blocking,
    containers::termination_log,
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
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().filter_map(cri_log::parse_log_line).map(|line| line.text.to_string()).collect();
    let mut result = lines[lines.len().saturating_sub(MAX_LOG_LINES)..].join("\n");
    if !lines.is_empty() {
        result.push('\n');
    }
    let mut start = result.len().saturating_sub(MAX_LOG_LENGTH as usize);
    while !result.is_char_boundary(start) {
        start += 1;
    }
    result.split_off(start)
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
}
