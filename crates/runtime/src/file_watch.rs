//! Watches a log file for writes and rotation with inotify.

use std::{io, mem::MaybeUninit, os::fd::OwnedFd, path::Path};

use rustix::fs::inotify;
use tokio::io::unix::AsyncFd;

/// A watch on one file, ended by dropping it.
pub struct FileWatch(AsyncFd<OwnedFd>);

impl FileWatch {
    /// Watches the file at `path`, which must exist.
    pub fn new(path: &Path) -> io::Result<Self> {
        Self::with_flags(path, inotify::WatchFlags::MODIFY | inotify::WatchFlags::MOVE_SELF)
    }

    /// Watches the entries of the directory at `path`: files that are written, created, renamed and removed.
    pub fn for_directory(path: &Path) -> io::Result<Self> {
        use inotify::WatchFlags as On;
        Self::with_flags(path, On::CLOSE_WRITE | On::CREATE | On::DELETE | On::MOVE | On::MOVE_SELF | On::DELETE_SELF)
    }

    #[allow(unsafe_code)]
    fn with_flags(path: &Path, flags: inotify::WatchFlags) -> io::Result<Self> {
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
        inotify::add_watch(&watch, path, flags)?;
        // SAFETY: the descriptor is owned by the value that is registered, so it is open until that is dropped.
        let registered = unsafe { AsyncFd::register(watch) };
        Ok(Self(registered.map_err(io::Error::from)?))
    }

    /// Waits until the file was written or renamed since the last call or since the watch began.
    pub async fn wait_for_change(&self) -> io::Result<()> {
        let mut ready = self.0.readable().await?;
        let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
        // Drains the queue; the event contents are irrelevant.
        while rustix::io::read(&self.0, &mut buffer).is_ok() {}
        ready.clear_ready();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[tokio::test]
    async fn writes_are_observed() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let watch = FileWatch::new(file.path()).unwrap();
        for _ in 0..2 {
            file.write_all(b"x").unwrap();
            watch.wait_for_change().await.unwrap();
        }
        assert!(FileWatch::new(Path::new("/nonexistent")).is_err());
    }
}
