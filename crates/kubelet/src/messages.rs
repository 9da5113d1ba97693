//! What a container left to say when it ended: its termination log, or the end of its output.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::Path,
};

use k8s_openapi::api::core::v1::Pod;

use crate::{
    agent::{self, Agent},
    containers::termination_log,
    cri_log,
    truth::Seen,
    volumes::PodDir,
};

const MAX_MESSAGE: u64 = 4096;
const MAX_LOG: u64 = 2048;
const MAX_LOG_LINES: usize = 80;

/// The message of a container that has ended; empty if there is none.
pub fn read(agent: &Agent, pod: &Pod, seen: &Seen) -> String {
    let dir = PodDir::new(&agent.root_dir, agent::uid(pod));
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(termination_log(&dir, seen.name(), seen.attempt())) {
        // Half a message is better than none.
        let _ = file.take(MAX_MESSAGE).read_to_end(&mut bytes);
    }
    let policy = seen.status.annotations.get("io.kubernetes.container.terminationMessagePolicy");
    let from_logs = policy.is_some_and(|policy| policy == "FallbackToLogsOnError") && seen.status.exit_code != 0;
    if bytes.is_empty() && from_logs {
        return tail(Path::new(&seen.status.log_path));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The last lines of a log.
fn tail(path: &Path) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        let length = file.metadata()?.len();
        // Each line has a head of about 40 bytes.
        file.seek(SeekFrom::Start(length.saturating_sub(MAX_LOG * 4)))?;
        file.take(MAX_LOG * 4).read_to_end(&mut bytes)
    });
    if read.is_err() {
        return String::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().filter_map(cri_log::parse).map(|line| line.text.to_string()).collect();
    let mut result = lines[lines.len().saturating_sub(MAX_LOG_LINES)..].join("\n");
    if !lines.is_empty() {
        result.push('\n');
    }
    let mut start = result.len().saturating_sub(MAX_LOG as usize);
    while !result.is_char_boundary(start) {
        start += 1;
    }
    result.split_off(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_becomes_the_message() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let lines: String = (0..100).map(|n| format!("2026-01-01T00:00:00.0Z stderr F line {n}\n")).collect();
        std::fs::write(&path, lines).unwrap();
        let message = tail(&path);
        assert!(message.starts_with("line 20\n") && message.ends_with("line 99\n"), "{message}");
        assert_eq!(tail(&dir.path().join("absent")), "");
    }
}
