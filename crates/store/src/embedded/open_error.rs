//! Errors of opening a store; each names the file, the offset and the remedy.

use std::{io, path::PathBuf};

/// A store that cannot be opened; its files are unchanged.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error("{}: there is no store here", .0.display())]
    Missing(PathBuf),
    #[error("{}: there is a store here already; choose another directory, or move it away", .0.display())]
    Exists(PathBuf),
    #[error("{}: another process has the store open; stop that one, or use another directory", .0.display())]
    Locked(PathBuf),
    #[error(
        "{}: the store is in format {found} and this version reads format {}; use the version that wrote it",
        file.display(), super::FORMAT
    )]
    Format { file: PathBuf, found: u32 },
    #[error(
        "{}: the store is damaged at byte {offset} ({what}); nothing was changed. Restore it from a backup with `ferry \
         store restore`, or move the directory away to start with an empty store",
        file.display()
    )]
    Damaged { file: PathBuf, offset: u64, what: &'static str },
    #[error("{}: cannot open the store: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl OpenError {
    pub fn with_path(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
