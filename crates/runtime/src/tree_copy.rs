//! Copies of directory trees with owners, modes, times, links and extended attributes.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags},
    io::Errno,
};
use sys::beneath::descriptor_path;

/// Copies the content of a directory to an existing one, and its owner and mode.
pub fn copy_tree(source: &OwnedFd, target: &OwnedFd) -> io::Result<()> {
    for entry in Dir::read_from(source)? {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            copy_entry(source, target, name)?;
        }
    }
    let stat = rustix::fs::fstat(source)?;
    rustix::fs::fchown(target, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    rustix::fs::fchmod(target, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    copy_attributes(source, target)
}

fn copy_entry(source: &OwnedFd, target: &OwnedFd, name: &CStr) -> io::Result<()> {
    let stat = rustix::fs::statat(source, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
    let kind = FileType::from_raw_mode(stat.st_mode);
    match kind {
        FileType::Directory => {
            rustix::fs::mkdirat(target, name, Mode::from_raw_mode(0o700))?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let from = rustix::fs::openat(source, name, flags, Mode::empty())?;
            let to = rustix::fs::openat(target, name, flags, Mode::empty())?;
            copy_tree(&from, &to)?;
        }
        FileType::RegularFile => {
            let from =
                rustix::fs::openat(source, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let to = rustix::fs::openat(target, name, flags, Mode::from_raw_mode(0o600))?;
            io::copy(&mut std::fs::File::from(from.try_clone()?), &mut std::fs::File::from(to.try_clone()?))?;
            rustix::fs::fchown(&to, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
            rustix::fs::fchmod(&to, mode)?;
            copy_attributes(&from, &to)?;
        }
        FileType::Symlink => {
            let link = rustix::fs::readlinkat(source, name, Vec::new())?;
            rustix::fs::symlinkat(&*link, target, name)?;
        }
        _ => rustix::fs::mknodat(target, name, kind, mode, stat.st_rdev)?,
    }
    let (uid, gid) = (Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)));
    if !matches!(kind, FileType::Directory | FileType::RegularFile) {
        rustix::fs::chownat(target, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    let times = Timestamps {
        last_access: Timespec { tv_sec: stat.st_atime as _, tv_nsec: stat.st_atime_nsec as _ },
        last_modification: Timespec { tv_sec: stat.st_mtime as _, tv_nsec: stat.st_mtime_nsec as _ },
    };
    Ok(rustix::fs::utimensat(target, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Copies extended attributes; a file system without them is not an error.
fn copy_attributes(source: impl AsFd, target: impl AsFd) -> io::Result<()> {
    let source = source.as_fd().try_clone_to_owned()?;
    let target = target.as_fd().try_clone_to_owned()?;
    let (from, to) = (descriptor_path(&source), descriptor_path(&target));
    let mut names = vec![0u8; 64 << 10];
    let length = match rustix::fs::listxattr(&from, &mut names) {
        Ok(length) => length,
        Err(Errno::NOTSUP) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0u8; 64 << 10];
        let Ok(length) = rustix::fs::getxattr(&from, name, &mut value) else { continue };
        match rustix::fs::setxattr(&to, name, &value[..length], XattrFlags::empty()) {
            Ok(()) | Err(Errno::NOTSUP) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
