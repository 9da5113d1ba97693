//! Rotation of container logs: a log over the size limit is renamed, the runtime opens a new one, older ones are
//! compressed, and only a few are kept.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use jiff::Timestamp;
use runtime::cri::CriClient;

use crate::{blocking::run_blocking, context::KubeletContext, runtime_status::labels};

/// Interval between checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// A log that is due.
#[derive(Debug, PartialEq, Eq)]
struct DueLog {
    path: PathBuf,
    pod_uid: String,
    container: String,
    attempt: String,
}

/// Rotates logs for ever.
pub async fn run_log_rotation(kubelet: Arc<KubeletContext>) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let (logs_dir, most) = (kubelet.pod_logs_dir.clone(), kubelet.settings.container_log_max_size);
        for log in run_blocking(move || find_due_logs(&logs_dir, most)).await {
            let path = log.path.display().to_string();
            if let Err(error) = rotate_log(&kubelet.cri, log, kubelet.settings.container_log_max_files).await {
                tracing::warn!(path, %error, "kubelet: container log not rotated, retrying");
            }
        }
    }
}

/// Returns the logs `<namespace>_<pod>_<uid>/<container>/<attempt>.log` over the limit.
fn find_due_logs(logs_dir: &Path, limit: u64) -> Vec<DueLog> {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let mut due = Vec::new();
    for pod in entries(logs_dir) {
        let pod_name = pod.file_name().to_string_lossy().into_owned();
        let Some((_, uid)) = pod_name.rsplit_once('_') else { continue };
        for container in entries(&pod.path()) {
            for log in entries(&container.path()) {
                let name = log.file_name().to_string_lossy().into_owned();
                let large = log.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > limit);
                let Some(attempt) = name.strip_suffix(".log").filter(|_| large) else { continue };
                due.push(DueLog {
                    path: log.path(),
                    pod_uid: uid.into(),
                    container: container.file_name().to_string_lossy().into_owned(),
                    attempt: attempt.into(),
                });
            }
        }
    }
    due
}

/// Rotates the log of a running container. That of an exited one is left as it is.
async fn rotate_log(cri: &CriClient, log: DueLog, max_files: usize) -> io::Result<()> {
    let selector = HashMap::from([
        (labels::POD_UID.to_string(), log.pod_uid.clone()),
        (labels::CONTAINER.to_string(), log.container.clone()),
    ]);
    let containers = cri.list_containers(selector).await.map_err(io::Error::other)?;
    let attempt = |container: &runtime::cri::types::Container| {
        container.metadata.as_ref().is_some_and(|metadata| metadata.attempt.to_string() == log.attempt)
    };
    let running = runtime::cri::types::ContainerState::ContainerRunning as i32;
    let Some(container) = containers.iter().find(|container| attempt(container) && container.state == running) else {
        return Ok(());
    };
    let rotated = log.path.with_extension(format!("log.{}", Timestamp::now().strftime("%Y%m%d-%H%M%S")));
    tokio::fs::rename(&log.path, &rotated).await?;
    if let Err(error) = cri.reopen_container_log(&container.id).await {
        // The runtime still writes to the renamed file.
        tokio::fs::rename(&rotated, &log.path).await?;
        return Err(io::Error::other(error));
    }
    run_blocking(move || tidy_rotated_logs(&log.path, &rotated, max_files)).await
}

/// Compresses the rotated logs but the latest, and removes the oldest.
fn tidy_rotated_logs(log: &Path, latest: &Path, max_files: usize) -> io::Result<()> {
    let mut rotated = list_rotated_logs(log)?;
    rotated.sort();
    let surplus = rotated.len().saturating_sub(max_files.saturating_sub(1));
    for path in rotated.drain(..surplus) {
        fs::remove_file(path)?;
    }
    for path in rotated.iter().filter(|path| *path != latest && path.extension().is_none_or(|kind| kind != "gz")) {
        compress_log(path)?;
    }
    Ok(())
}

fn list_rotated_logs(log: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(dir), Some(name)) = (log.parent(), log.file_name()) else { return Ok(Vec::new()) };
    let prefix = format!("{}.", name.to_string_lossy());
    let paths = fs::read_dir(dir)?.flatten().map(|entry| entry.path());
    let is_rotated = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
            && path.extension().is_none_or(|kind| kind != "tmp")
    };
    Ok(paths.filter(is_rotated).collect())
}

/// Compresses a log beside itself; a crash leaves either the log or the whole archive.
fn compress_log(path: &Path) -> io::Result<()> {
    let name = path.display();
    let (unfinished, archive) = (PathBuf::from(format!("{name}.tmp")), PathBuf::from(format!("{name}.gz")));
    let mut encoder = GzEncoder::new(fs::File::create(&unfinished)?, Compression::default());
    io::copy(&mut fs::File::open(path)?, &mut encoder)?;
    encoder.finish()?;
    fs::rename(unfinished, archive)?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_logs_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let container = dir.path().join("ns_pod_uid-1/web");
        fs::create_dir_all(&container).unwrap();
        fs::write(container.join("0.log"), "short").unwrap();
        fs::write(container.join("3.log"), vec![b'x'; 100]).unwrap();
        fs::write(container.join("3.log.20260101-000000"), vec![b'x'; 100]).unwrap();
        let due = find_due_logs(dir.path(), 50);
        let expected = DueLog {
            path: container.join("3.log"),
            pod_uid: "uid-1".into(),
            container: "web".into(),
            attempt: "3".into(),
        };
        assert_eq!(due, [expected]);
    }

    #[test]
    fn old_logs_are_compressed_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        for minute in 0..7 {
            fs::write(dir.path().join(format!("0.log.20260101-00000{minute}")), "text").unwrap();
        }
        let latest = dir.path().join("0.log.20260101-000006");
        tidy_rotated_logs(&log, &latest, 5).unwrap();
        let mut names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let archive = |minute: u32| format!("0.log.20260101-00000{minute}.gz");
        assert_eq!(names, [archive(3), archive(4), archive(5), "0.log.20260101-000006".into()]);
    }
}
