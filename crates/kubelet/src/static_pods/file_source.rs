//! Static pods from a directory of manifests, or from one file.
//!
//! A change is read at once; a reading at an interval finds what a watch cannot see. A file that is not a pod is logged
//! and keeps no other file from being read.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use runtime::file_watch::FileWatch;
use tokio::sync::mpsc;

use super::{
    SourceReading,
    manifest::{ManifestError, ManifestOrigin, decode_manifest},
};
use crate::{blocking::run_blocking, settings::StaticPodSettings};

/// Name of the source, in the annotation of its pods.
pub const SOURCE: &str = "file";
/// Size of the largest manifest.
const MAX_MANIFEST_SIZE: u64 = 10 << 20;
/// Time to let a writer finish.
const SETTLE_TIME: Duration = Duration::from_millis(50);

/// A manifest could not be read.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

/// Reads the manifests now, after changes and at an interval.
pub async fn follow_files(settings: &StaticPodSettings, node_name: &str, readings: mpsc::Sender<SourceReading>) {
    let Some(path) = settings.path.clone() else { return };
    loop {
        let watch = FileWatch::for_directory(&path).ok();
        let (read, node) = (path.clone(), node_name.to_string());
        match run_blocking(move || read_manifests(&read, &node)).await {
            Ok(pods) => {
                if readings.send(SourceReading { source: SOURCE, pods }).await.is_err() {
                    return;
                }
            }
            Err(error) => tracing::warn!(path = %path.display(), %error, "kubelet: static pods not read, retrying"),
        }
        let change = async {
            match &watch {
                Some(watch) if watch.wait_for_change().await.is_ok() => tokio::time::sleep(SETTLE_TIME).await,
                _ => std::future::pending().await,
            }
        };
        // An elapsed interval is the other reason to read again.
        let _ = tokio::time::timeout(settings.file_check_interval, change).await;
    }
}

/// Returns the pods of all manifests; a path that does not exist has none.
fn read_manifests(path: &Path, node_name: &str) -> io::Result<Vec<Arc<Pod>>> {
    let files = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
        Ok(metadata) if metadata.is_dir() => list_manifests(path)?,
        Ok(_) => vec![path.to_path_buf()],
    };
    let mut pods = Vec::new();
    for file in files {
        match read_manifest(&file, node_name) {
            Ok(found) => pods.extend(found.into_iter().map(Arc::new)),
            Err(error) => tracing::error!(file = %file.display(), %error, "kubelet: static pod not run"),
        }
    }
    Ok(pods)
}

/// Lists the files of a directory, without hidden ones, in order.
fn list_manifests(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(path)?
        .flatten()
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .map(|entry| entry.path())
        .filter(|path| fs::metadata(path).is_ok_and(|metadata| metadata.is_file()))
        .collect();
    files.sort();
    Ok(files)
}

fn read_manifest(file: &Path, node_name: &str) -> Result<Vec<Pod>, FileError> {
    let length = fs::metadata(file)?.len();
    if length > MAX_MANIFEST_SIZE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the manifest is larger than 10 MiB").into());
    }
    let location = file.display().to_string();
    let origin = ManifestOrigin { source: SOURCE, location: &location, node_name, seen: jiff::Timestamp::now() };
    Ok(decode_manifest(&fs::read(file)?, origin)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_and_hidden_files_do_not_hide_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let pod = |name: &str| {
            format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: c, image: i}}]}}}}"
            )
        };
        for (name, text) in
            [("b.yaml", pod("b")), (".hidden", pod("h")), ("a.yaml", "x: [".into()), ("c.json", pod("c"))]
        {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let names: Vec<_> =
            read_manifests(dir.path(), "n").unwrap().iter().map(|pod| pod.metadata.name.clone().unwrap()).collect();
        assert_eq!(names, ["b-n", "c-n"]);
        assert!(read_manifests(Path::new("/nonexistent"), "n").unwrap().is_empty());
    }
}
