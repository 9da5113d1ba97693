//! File operations of the embedded engine: every change of a file or directory passes through a [`StorageMedium`].
//!
//! [`DiskMedium`] is the real one. Tests bring one that fails, tears writes, or ends the process between two steps.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

/// The points between two steps that change files, at which tests inject crashes.
pub const CRASH_POINTS: [&str; 19] = [
    "commit.encoded",
    "commit.written",
    "commit.synced",
    "commit.published",
    "segment.filled",
    "segment.headed",
    "segment.renamed",
    "segment.listed",
    "segment.sealed",
    "compact.chosen",
    "compact.committed",
    "checkpoint.created",
    "checkpoint.written",
    "checkpoint.synced",
    "checkpoint.renamed",
    "checkpoint.listed",
    "checkpoint.replaced",
    "checkpoint.freed",
    "close.marked",
];

/// The operations that change files. Each is done on the real disk unless it is overridden.
pub trait StorageMedium: Send + Sync + 'static {
    /// Makes a new file for its owner only.
    fn create(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
    }

    /// Writes all bytes at an offset.
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    /// Makes what was written durable.
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    /// Gives a file another name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    /// Called at each of [`CRASH_POINTS`].
    fn reached_point(&self, _point: &'static str) {}
}

/// The real disk.
#[derive(Debug)]
pub struct DiskMedium;

impl StorageMedium for DiskMedium {}
