//! Files that are always whole: written beside the target and renamed over it, never half-written after a crash.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, fchown},
    path::{Path, PathBuf},
};

/// Mode and owner of a file.
#[derive(Clone, Copy, Debug)]
pub struct FileAccess {
    /// The permission bits.
    pub mode: u32,
    /// The user and group that it is given to; `None`: the process's own.
    pub owner: Option<(u32, u32)>,
}

/// For secrets.
pub const PRIVATE: FileAccess = FileAccess { mode: 0o600, owner: None };
/// For everything else.
pub const PUBLIC: FileAccess = FileAccess { mode: 0o644, owner: None };

/// Replaces `path` with a file of these bytes.
pub fn write_file(path: &Path, bytes: &[u8], access: FileAccess) -> io::Result<()> {
    let temporary = temporary_path(path);
    let written = write_new(&temporary, bytes, access).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The first error is returned; a left-over temporary file is harmless.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_new(path: &Path, bytes: &[u8], access: FileAccess) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(access.mode).open(path)?;
    if let Some((user, group)) = access.owner {
        fchown(&file, Some(user), Some(group))?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}

fn temporary_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}", std::process::id()))
}

/// The file's text; `None` if there is no such file.
pub fn read_file(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
