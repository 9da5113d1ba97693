//! Network namespaces: opening one and running code in it.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd},
    path::Path,
    thread,
};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// An open network namespace; it exists as long as this is open.
#[derive(Debug)]
pub struct NetworkNamespace {
    file: File,
}

impl NetworkNamespace {
    /// Opens the namespace that a path names, for example `/run/netns/x` or `/proc/1/ns/net`.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self { file: File::open(path)? })
    }

    /// Opens the namespace of the calling thread.
    pub fn current() -> io::Result<Self> {
        Self::open("/proc/thread-self/ns/net")
    }

    /// Creates a namespace without a name.
    #[allow(unsafe_code)]
    pub fn new() -> io::Result<Self> {
        let create = || {
            // SAFETY: only the network namespace of this new thread changes; no memory or descriptor is unshared.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            Self::current()
        };
        thread::scope(|scope| join(scope.spawn(create)))
    }

    /// Runs `work` on a thread of its own in this namespace and returns its result.
    ///
    /// # Errors
    /// The namespace cannot be entered; `work` did not run then.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let enter = || {
            move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        };
        thread::scope(|scope| join(scope.spawn(enter)))
    }

    /// Whether both are the same namespace.
    pub fn is_same(&self, other: &Self) -> io::Result<bool> {
        let identity = |file: &File| rustix::fs::fstat(file).map(|stat| (stat.st_dev, stat.st_ino));
        Ok(identity(&self.file)? == identity(&other.file)?)
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn join<T>(handle: thread::ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_namespace_has_only_loopback() {
        let Ok(namespace) = NetworkNamespace::new() else {
            eprintln!("skipped: a network namespace needs root");
            return;
        };
        let links = namespace.run(crate::net::list_links).unwrap().unwrap();
        assert_eq!(links.iter().map(|link| link.name.as_str()).collect::<Vec<_>>(), ["lo"]);
        assert!(!namespace.is_same(&NetworkNamespace::current().unwrap()).unwrap());
    }
}
