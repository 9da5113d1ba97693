//! The log backend: one JSON object per line, with rotation by size. Rotated files are named by time, and limited by
//! number and age.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use api::Value;
use apiserver_core::clock;
use flate2::{Compression, write::GzEncoder};

use super::{
    backend_config::{BackendMode, BatchConfig},
    truncate::TruncateConfig,
};

/// The configuration of the audit log.
#[derive(Clone, Debug)]
pub struct LogBackendConfig {
    /// The file; `-` is standard output.
    pub path: PathBuf,
    /// When events are written.
    pub mode: BackendMode,
    /// Batching.
    pub batch: BatchConfig,
    /// Truncation of large events.
    pub truncation: TruncateConfig,
    /// Size in bytes at which the file is rotated; 0 disables rotation.
    pub max_size: u64,
    /// Number of rotated files; 0 keeps all.
    pub max_backups: usize,
    /// Maximum age of rotated files; zero keeps them.
    pub max_age: Duration,
    /// Whether rotated files are compressed.
    pub compress: bool,
}

/// An open audit log.
pub struct AuditLog {
    settings: LogBackendConfig,
    file: Option<(File, u64)>,
}

impl AuditLog {
    /// Opens the file with the first event.
    pub fn new(settings: LogBackendConfig) -> Self {
        Self { settings, file: None }
    }

    /// Appends events.
    pub fn append_events<'a>(&mut self, events: impl IntoIterator<Item = &'a Value>) -> io::Result<()> {
        let lines: String = events.into_iter().map(|event| format!("{event}\n")).collect();
        if self.settings.path == Path::new("-") {
            return io::stdout().lock().write_all(lines.as_bytes());
        }
        let more = lines.len() as u64;
        if self
            .file
            .as_ref()
            .is_some_and(|(_, size)| self.settings.max_size > 0 && size + more > self.settings.max_size)
        {
            self.rotate_file()?;
        }
        let (file, size) = match &mut self.file {
            Some(open) => open,
            None => self.file.insert(open_log_file(&self.settings.path)?),
        };
        file.write_all(lines.as_bytes())?;
        *size += more;
        Ok(())
    }

    fn rotate_file(&mut self) -> io::Result<()> {
        self.file = None;
        let path = &self.settings.path;
        let closed = clock::now().strftime("%Y-%m-%dT%H-%M-%S%.3f").to_string();
        let backup = sibling_path(path, &format!("-{closed}"));
        fs::rename(path, &backup)?;
        if self.settings.compress {
            compress_file(&backup)?;
        }
        self.remove_old_backups()
    }

    /// Removes rotated files beyond the limits.
    fn remove_old_backups(&self) -> io::Result<()> {
        let mut backups = backup_files(&self.settings.path)?;
        // The names contain times: newest first.
        backups.sort_unstable_by(|a, b| b.cmp(a));
        let LogBackendConfig { max_backups, max_age, .. } = self.settings;
        for (at, backup) in backups.iter().enumerate() {
            let age = || SystemTime::now().duration_since(fs::metadata(backup).ok()?.modified().ok()?).ok();
            let old = !max_age.is_zero() && age().is_some_and(|age| age > max_age);
            if old || max_backups > 0 && at >= max_backups {
                fs::remove_file(backup)?;
            }
        }
        Ok(())
    }
}

fn open_log_file(path: &Path) -> io::Result<(File, u64)> {
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)?;
    }
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

/// Returns a sibling path with `more` before the extension.
fn sibling_path(path: &Path, more: &str) -> PathBuf {
    let text = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, extension) = (text(path.file_stem()), text(path.extension()));
    let dot = if extension.is_empty() { "" } else { "." };
    path.with_file_name(format!("{stem}{more}{dot}{extension}"))
}

fn backup_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let prefix = format!("{}-", path.file_stem().unwrap_or_default().to_string_lossy());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let file = entry?.path();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let time = name.strip_prefix(&prefix).and_then(|rest| rest.chars().next());
        if time.is_some_and(|first| first.is_ascii_digit()) {
            found.push(file);
        }
    }
    Ok(found)
}

fn compress_file(path: &Path) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    let mut encoder = GzEncoder::new(File::create(&name)?, Compression::default());
    io::copy(&mut File::open(path)?, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::{BackendMode, BatchConfig, TruncateConfig};

    #[test]
    fn log_is_rotated_and_old_files_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let settings = LogBackendConfig {
            path: path.clone(),
            mode: BackendMode::Blocking,
            batch: BatchConfig { buffer: 100, size: 2, wait: Duration::from_secs(3600), throttle: None },
            truncation: TruncateConfig::default(),
            max_size: 100,
            max_backups: 2,
            max_age: Duration::ZERO,
            compress: true,
        };
        let mut log = AuditLog::new(settings);
        for n in 0..20 {
            log.append_events([&json!({"n": n, "x": "y".repeat(60)})]).unwrap();
            // File names have millisecond resolution.
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut names: Vec<String> =
            fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(fs::read_to_string(&path).unwrap().starts_with("{\"n\":19"));
        assert!(names[0].starts_with("audit-20") && names[0].ends_with(".log.gz"), "{names:?}");
        let mut text = String::new();
        let file = fs::File::open(dir.path().join(&names[1])).unwrap();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(file), &mut text).unwrap();
        assert!(text.starts_with("{\"n\":18"), "{text}");
    }
}
