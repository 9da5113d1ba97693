//! File operations below a directory that is under another user's control.
//!
//! Guarantee: no operation leaves the root directory, whatever symbolic links are in it or appear during the operation.
//! Paths are resolved by the kernel (`openat2` with `RESOLVE_BENEATH`), never by string.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Uid},
    io::Errno,
};

/// A directory that bounds all operations.
pub struct BoundedRoot {
    root: OwnedFd,
}

/// Whether a path names a directory or something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// A directory.
    Directory,
    /// A file, socket or device.
    Other,
}

impl BoundedRoot {
    /// Opens `root`. It may be a file, which then bounds only itself.
    pub fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Ok(Self { root: rustix::fs::openat(CWD, root, flags, Mode::empty())? })
    }

    /// Opens a path below the root without access to its content. Symbolic links are followed as long as they stay below.
    pub fn open_path(&self, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        Ok(rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve)?)
    }

    /// Creates the missing directories of `path` with `mode`, whatever the umask is, and opens the last one.
    pub fn create_dirs(&self, path: &Path, mode: u32) -> io::Result<OwnedFd> {
        let mut prefix = PathBuf::new();
        for component in path.components() {
            let Component::Normal(name) = component else {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path leaves its directory"));
            };
            let parent = self.open_path(&prefix)?;
            prefix.push(name);
            match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode)) {
                Ok(()) => {
                    let created = self.open_path(&prefix)?;
                    rustix::fs::chmod(descriptor_path(&created), Mode::from_raw_mode(mode))?;
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.open_path(path)
    }
}

/// Most symbolic links that one resolution follows, as the kernel has it.
const MOST_LINKS: usize = 40;

/// A directory that is the root of a container: absolute links start there, and `..` of it is itself.
pub struct ContainerRoot {
    root: OwnedFd,
}

impl ContainerRoot {
    /// Opens `root`.
    pub fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY;
        Ok(Self { root: rustix::fs::openat(CWD, root, flags, Mode::empty())? })
    }

    /// The root at an open directory.
    pub fn from_descriptor(root: OwnedFd) -> Self {
        Self { root }
    }

    /// The root itself.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.root
    }

    /// Opens a path with these flags; links are followed in the root.
    pub fn open_path(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(rustix::fs::openat2(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)?)
    }

    /// Opens a path without access to its content; makes what is missing: directories, and at its end a directory or an
    /// empty file. A link that leads nowhere is followed in the root.
    pub fn create_path(&self, path: &Path, kind: PathKind) -> io::Result<OwnedFd> {
        match self.open_path(path, OFlags::PATH) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        let mut stack: Vec<OwnedFd> = Vec::new();
        let mut rest = reversed_parts(path);
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if name == ".." {
                stack.pop();
                continue;
            }
            let parent = stack.last().unwrap_or(&self.root);
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let child = match rustix::fs::openat(parent, &name, flags, Mode::empty()) {
                Ok(child) => child,
                Err(Errno::NOENT) => {
                    create_entry(parent, &name, if rest.is_empty() { kind } else { PathKind::Directory })?;
                    rustix::fs::openat(parent, &name, flags, Mode::empty())?
                }
                Err(errno) => return Err(errno.into()),
            };
            if FileType::from_raw_mode(rustix::fs::fstat(&child)?.st_mode) == FileType::Symlink {
                links += 1;
                if links > MOST_LINKS {
                    return Err(Errno::LOOP.into());
                }
                let target = rustix::fs::readlinkat(&child, "", Vec::new())?;
                let target = PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(
                    target.into_bytes(),
                ));
                if target.is_absolute() {
                    stack.clear();
                }
                rest.extend(reversed_parts(&target));
            } else {
                stack.push(child);
            }
        }
        match stack.pop() {
            Some(last) => Ok(last),
            None => Ok(self.root.try_clone()?),
        }
    }
}

fn create_entry(parent: &OwnedFd, name: &std::ffi::OsStr, kind: PathKind) -> io::Result<()> {
    let created = match kind {
        PathKind::Directory => rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)),
        PathKind::Other => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o644)).map(drop)
        }
    };
    match created {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The parts of a path, the last one first; `..` stays.
fn reversed_parts(path: &Path) -> Vec<std::ffi::OsString> {
    let parts = path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    parts.collect()
}

/// Returns a path by which the kernel finds an open file, also one that was renamed.
pub fn descriptor_path(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Returns what an open file is.
pub fn path_kind(file: &OwnedFd) -> io::Result<PathKind> {
    let stat = rustix::fs::fstat(file)?;
    let directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    Ok(if directory { PathKind::Directory } else { PathKind::Other })
}

/// Returns the permission bits of an open file.
pub fn permission_bits(file: &OwnedFd) -> io::Result<u32> {
    Ok(rustix::fs::fstat(file)?.st_mode & 0o7777)
}

/// Gives a tree to a group: files become group-readable and -writable, directories group-executable with the setgid
/// bit. Symbolic links are not followed and other file systems not entered.
pub fn set_tree_group(path: &Path, group: u32, read_only: bool) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let root = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let device = rustix::fs::fstat(&root)?.st_dev;
    set_dir_group(&root, device, group, read_only)
}

fn set_dir_group(dir: &OwnedFd, device: u64, group: u32, read_only: bool) -> io::Result<()> {
    let own = rustix::fs::fstat(dir)?;
    rustix::fs::fchown(dir, None, Some(Gid::from_raw(group)))?;
    let bits = if read_only { 0o2550 } else { 0o2770 };
    rustix::fs::fchmod(dir, Mode::from_raw_mode((own.st_mode & 0o7777) | bits))?;
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(errno.into()),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if stat.st_dev == device => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::DIRECTORY;
                let child = rustix::fs::openat(dir, name, flags, Mode::empty())?;
                set_dir_group(&child, device, group, read_only)?;
            }
            FileType::Directory => {}
            kind => {
                rustix::fs::chownat(dir, name, None::<Uid>, Some(Gid::from_raw(group)), AtFlags::SYMLINK_NOFOLLOW)?;
                if kind == FileType::RegularFile {
                    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
                    let bits = if read_only { 0o440 } else { 0o660 };
                    let mode = Mode::from_raw_mode((stat.st_mode & 0o7777) | bits);
                    rustix::fs::chmod(descriptor_path(&file), mode)?;
                }
            }
        }
    }
    Ok(())
}

/// Removes a tree without entering other file systems: a directory on another one is an error, and nothing of it is
/// touched. A missing path is not an error.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no directory to remove"));
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let parent = match rustix::fs::openat(CWD, parent, flags, Mode::empty()) {
        Ok(parent) => parent,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    let device = rustix::fs::fstat(&parent)?.st_dev;
    remove_entry(&parent, name, device)
}

fn remove_entry<N: rustix::path::Arg + Copy>(dir: &OwnedFd, name: N, device: u64) -> io::Result<()> {
    let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?);
    }
    if stat.st_dev != device {
        return Err(io::Error::new(io::ErrorKind::CrossesDevices, "a file system is still mounted below"));
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let child = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    for entry in Dir::read_from(&child)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            remove_entry(&child, entry.file_name(), device)?;
        }
    }
    Ok(rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    };

    use super::*;

    #[test]
    fn links_are_followed_only_below_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("a")).unwrap();
        fs::write(root.join("a/file"), "x").unwrap();
        symlink("a/file", root.join("inside")).unwrap();
        symlink("../secret", root.join("outside")).unwrap();
        symlink("/etc", root.join("absolute")).unwrap();
        fs::create_dir(dir.path().join("secret")).unwrap();
        let bounded = BoundedRoot::open(&root).unwrap();
        let kind = |path: &str| bounded.open_path(Path::new(path)).and_then(|file| path_kind(&file));
        assert_eq!(kind("inside").unwrap(), PathKind::Other);
        assert_eq!(kind("a").unwrap(), PathKind::Directory);
        assert_eq!(kind("").unwrap(), PathKind::Directory);
        for escape in ["outside", "absolute", "..", "a/../../secret", "/etc"] {
            assert!(kind(escape).is_err(), "{escape}");
        }
        for escape in ["outside/new", "absolute/new", "../new"] {
            assert!(bounded.create_dirs(Path::new(escape), 0o750).is_err(), "{escape}");
        }
        assert!(!dir.path().join("secret/new").exists());
        bounded.create_dirs(Path::new("a/b/c"), 0o757).unwrap();
        assert_eq!(fs::metadata(root.join("a/b/c")).unwrap().permissions().mode() & 0o777, 0o757);
    }

    #[test]
    fn links_of_a_container_stay_in_its_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("etc")).unwrap();
        symlink("/run/resolv.conf", root.join("etc/resolv.conf")).unwrap();
        symlink("../../../../../../escape", root.join("etc/up")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let container = ContainerRoot::open(&root).unwrap();
        container.create_path(Path::new("/etc/resolv.conf"), PathKind::Other).unwrap();
        assert!(root.join("run/resolv.conf").is_file());
        container.create_path(Path::new("/etc/up/dir"), PathKind::Directory).unwrap();
        assert!(root.join("escape/dir").is_dir() && !dir.path().join("escape").exists());
        container.create_path(Path::new("../../x/../y"), PathKind::Directory).unwrap();
        assert!(root.join("y").is_dir());
        assert!(container.create_path(Path::new("/loop/x"), PathKind::Directory).is_err());
        let opened = container.open_path(Path::new("/proc/self/root"), OFlags::PATH);
        assert!(opened.is_err());
    }

    #[test]
    fn tree_is_given_to_a_group_without_following_links() {
        let dir = tempfile::tempdir().unwrap();
        let (root, target) = (dir.path().join("root"), dir.path().join("target"));
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(root.join("sub/file"), "x").unwrap();
        fs::write(&target, "x").unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&target, root.join("link")).unwrap();
        let group = fs::metadata(&root).unwrap().gid();
        set_tree_group(&root, group, false).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&root.join("sub")) & 0o2070, 0o2070);
        assert_eq!(mode(&root.join("sub/file")) & 0o060, 0o060);
        assert_eq!(mode(&target) & 0o777, 0o600);
    }

    #[test]
    fn removed_tree_leaves_the_targets_of_its_links() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir(dir.path().join("kept")).unwrap();
        symlink(dir.path().join("kept"), tree.join("a/link")).unwrap();
        remove_tree(&tree).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists() && dir.path().join("kept").exists());
    }
}
