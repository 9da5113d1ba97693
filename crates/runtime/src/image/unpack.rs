//! Unpacks a layer into a directory that an overlay can use.
//!
//! No entry leaves the directory: parents are opened in it by the kernel, names are single components, and links are made,
//! never followed at their end. Whiteouts become devices, opaque directories get overlay's attribute.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags},
    io::Errno,
};
use sys::beneath::{ContainerRoot, PathKind, descriptor_path};
use tar::{Archive, EntryType, Header};

use super::ImageError;

/// The largest header of a long name or of extended attributes.
const LARGEST_EXTENSION: u64 = 1 << 20;
/// Most entries of a layer.
const MOST_ENTRIES: u64 = 5_000_000;
/// Most bytes of a layer.
const LARGEST_LAYER: u64 = 512 << 30;
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// Unpacks `archive` into `target`; `lower` are the layers below, the top one first. Returns the bytes of its files.
pub fn unpack_layer(archive: impl Read, target: &Path, lower: &[PathBuf]) -> Result<u64, ImageError> {
    let root = ContainerRoot::open(target).map_err(|error| failed(target, error))?;
    let lower = lower.iter().filter_map(|layer| ContainerRoot::open(layer).ok()).collect();
    let mut unpacker = LayerUnpacker { root, lower, size: 0, directories: Vec::new() };
    let mut archive = Archive::new(archive);
    let mut extensions = Extensions::default();
    let mut count = 0;
    let entries = archive.entries().map_err(|error| failed(target, error))?.raw(true);
    for entry in entries {
        let mut entry = entry.map_err(|error| failed(Path::new("layer"), error))?;
        count += 1;
        if count > MOST_ENTRIES {
            return Err(ImageError::Invalid(format!("the layer has more than {MOST_ENTRIES} entries")));
        }
        if extensions.take(&mut entry)? {
            continue;
        }
        let current = std::mem::take(&mut extensions);
        let path = current.path.clone().unwrap_or_else(|| raw_path(&entry.path_bytes()));
        unpacker.unpack(&mut entry, &path, &current).map_err(|error| failed(&path, error))?;
        if unpacker.size > LARGEST_LAYER {
            return Err(ImageError::Invalid("the layer is too large".into()));
        }
    }
    unpacker.set_directory_times();
    Ok(unpacker.size)
}

fn failed(path: &Path, source: io::Error) -> ImageError {
    ImageError::Io { operation: format!("unpack {}", path.display()), source }
}

fn raw_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// The extended headers of an entry.
#[derive(Default)]
struct Extensions {
    path: Option<PathBuf>,
    link: Option<PathBuf>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    modified: Option<(i64, u32)>,
    attributes: Vec<(OsString, Vec<u8>)>,
}

impl Extensions {
    /// Takes an entry that describes the next one; false if it is a file of its own.
    fn take(&mut self, entry: &mut tar::Entry<'_, impl Read>) -> Result<bool, ImageError> {
        let kind = entry.header().entry_type();
        let is_extension = kind.is_gnu_longname() || kind.is_gnu_longlink() || kind.is_pax_local_extensions();
        if kind.is_pax_global_extensions() {
            return Ok(true);
        }
        if !is_extension {
            return Ok(false);
        }
        let mut content = Vec::new();
        let read = entry.take(LARGEST_EXTENSION + 1).read_to_end(&mut content);
        read.map_err(|error| failed(Path::new("header"), error))?;
        if content.len() as u64 > LARGEST_EXTENSION {
            return Err(ImageError::Invalid("a header of the layer is too large".into()));
        }
        let text = content.split(|byte| *byte == 0).next().unwrap_or_default();
        if kind.is_gnu_longname() {
            self.path = Some(raw_path(text));
        } else if kind.is_gnu_longlink() {
            self.link = Some(raw_path(text));
        } else {
            self.read_records(&content);
        }
        Ok(true)
    }

    fn read_records(&mut self, content: &[u8]) {
        for record in tar::PaxExtensions::new(content).flatten() {
            let (Ok(key), value) = (record.key(), record.value_bytes()) else { continue };
            let number = || std::str::from_utf8(value).ok()?.parse::<u64>().ok();
            match key {
                "path" => self.path = Some(raw_path(value)),
                "linkpath" => self.link = Some(raw_path(value)),
                "size" => self.size = number(),
                "uid" => self.uid = number(),
                "gid" => self.gid = number(),
                "mtime" => self.modified = std::str::from_utf8(value).ok().and_then(parse_time),
                _ => {
                    if let Some(name) = key.strip_prefix("SCHILY.xattr.") {
                        self.attributes.push((name.into(), value.to_vec()));
                    }
                }
            }
        }
    }
}

fn parse_time(text: &str) -> Option<(i64, u32)> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let nanoseconds = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    Some((seconds.parse().ok()?, nanoseconds))
}

struct LayerUnpacker {
    root: ContainerRoot,
    lower: Vec<ContainerRoot>,
    size: u64,
    /// Directories get their times last, because entries in them change them.
    directories: Vec<(PathBuf, Timestamps)>,
}

impl LayerUnpacker {
    fn unpack(&mut self, entry: &mut tar::Entry<'_, impl Read>, path: &Path, more: &Extensions) -> io::Result<()> {
        let path = clean_path(path)?;
        let (Some(parent_path), Some(name)) = (path.parent(), path.file_name()) else {
            return self.set_root(entry.header(), more);
        };
        let parent = self.open_parent(parent_path)?;
        if name.as_bytes() == OPAQUE {
            return set_attribute(&parent, OsStr::new("trusted.overlay.opaque"), b"y");
        }
        if let Some(hidden) = name.as_bytes().strip_prefix(WHITEOUT) {
            if hidden.is_empty() || hidden.contains(&b'/') || matches!(hidden, b"." | b"..") {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "an invalid whiteout"));
            }
            let hidden = OsStr::from_bytes(hidden);
            remove_existing(&parent, hidden, false)?;
            return Ok(rustix::fs::mknodat(&parent, hidden, FileType::CharacterDevice, Mode::empty(), 0)?);
        }
        self.unpack_entry(entry, &parent, &path, name, more)
    }

    fn unpack_entry(
        &mut self,
        entry: &mut tar::Entry<'_, impl Read>,
        parent: &OwnedFd,
        path: &Path,
        name: &OsStr,
        more: &Extensions,
    ) -> io::Result<()> {
        let header = entry.header().clone();
        let kind = header.entry_type();
        remove_existing(parent, name, kind.is_dir())?;
        let mode = Mode::from_raw_mode(header.mode().unwrap_or(0o644) & 0o7777);
        let link = || more.link.clone().or_else(|| entry_link(&header));
        match kind {
            EntryType::Directory => match rustix::fs::mkdirat(parent, name, mode) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            },
            EntryType::Symlink => {
                let target = link().ok_or(io::ErrorKind::InvalidData)?;
                rustix::fs::symlinkat(&target, parent, name)?;
            }
            EntryType::Link => return self.hard_link(parent, name, &link().ok_or(io::ErrorKind::InvalidData)?),
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                let device =
                    rustix::fs::makedev(header.device_major()?.unwrap_or(0), header.device_minor()?.unwrap_or(0));
                let kind = match kind {
                    EntryType::Char => FileType::CharacterDevice,
                    EntryType::Block => FileType::BlockDevice,
                    _ => FileType::Fifo,
                };
                rustix::fs::mknodat(parent, name, kind, mode, device)?;
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mut file = File::from(rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600))?);
                if kind == EntryType::GNUSparse {
                    return Err(io::Error::new(io::ErrorKind::Unsupported, "sparse files are not supported"));
                }
                self.size += io::copy(entry, &mut file)?;
            }
            other => {
                let message = format!("an entry of the unknown type {:?}", char::from(other.as_byte()));
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
        }
        self.set_metadata(parent, path, name, &header, more)
    }

    fn set_metadata(
        &mut self,
        parent: &OwnedFd,
        path: &Path,
        name: &OsStr,
        header: &Header,
        more: &Extensions,
    ) -> io::Result<()> {
        let kind = header.entry_type();
        let uid = Uid::from_raw(more.uid.or(header.uid().ok()).unwrap_or(0) as u32);
        let gid = Gid::from_raw(more.gid.or(header.gid().ok()).unwrap_or(0) as u32);
        rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        if kind != EntryType::Symlink {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(parent, name, flags, Mode::empty())?;
            // After the owner, whose change takes set-user-ID bits away.
            let mode = Mode::from_raw_mode(header.mode().unwrap_or(0o644) & 0o7777);
            rustix::fs::chmod(descriptor_path(&file), mode)?;
            for (key, value) in &more.attributes {
                // Those of overlay itself would change what the kernel shows.
                if !key.as_bytes().starts_with(b"trusted.overlay.") {
                    set_attribute(&file, key, value)?;
                }
            }
        }
        let (seconds, nanoseconds) = more.modified.unwrap_or((header.mtime().unwrap_or(0) as i64, 0));
        let time = Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds) };
        let times = Timestamps { last_access: time, last_modification: time };
        if kind.is_dir() {
            self.directories.push((path.to_owned(), times));
            return Ok(());
        }
        Ok(rustix::fs::utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Sets what the archive says of the root directory.
    fn set_root(&mut self, header: &Header, more: &Extensions) -> io::Result<()> {
        if !header.entry_type().is_dir() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the root is not a directory"));
        }
        let path = descriptor_path(self.root.descriptor());
        rustix::fs::chmod(&path, Mode::from_raw_mode(header.mode().unwrap_or(0o755) & 0o7777))?;
        let uid = Uid::from_raw(more.uid.or(header.uid().ok()).unwrap_or(0) as u32);
        let gid = Gid::from_raw(more.gid.or(header.gid().ok()).unwrap_or(0) as u32);
        Ok(rustix::fs::chown(&path, Some(uid), Some(gid))?)
    }

    /// Makes a hard link to a file of this layer, or a copy of one of the layers below.
    fn hard_link(&mut self, parent: &OwnedFd, name: &OsStr, target: &Path) -> io::Result<()> {
        let target = clean_path(target)?;
        let (Some(directory), Some(file)) = (target.parent(), target.file_name()) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if let Ok(directory) = self.root.open_path(&rooted(directory), OFlags::PATH | OFlags::DIRECTORY) {
            match rustix::fs::linkat(&directory, file, parent, name, AtFlags::empty()) {
                Err(Errno::NOENT) => {}
                linked => return Ok(linked?),
            }
        }
        for layer in &self.lower {
            let Ok(source) = layer.open_path(&rooted(&target), OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK)
            else {
                continue;
            };
            let stat = rustix::fs::fstat(&source)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                break;
            }
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut copy = File::from(rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600))?);
            self.size += io::copy(&mut File::from(source), &mut copy)?;
            rustix::fs::fchown(&copy, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
            return Ok(rustix::fs::fchmod(&copy, Mode::from_raw_mode(stat.st_mode & 0o7777))?);
        }
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("the target {} of a hard link is missing", target.display()),
        ))
    }

    /// Opens the directory of an entry. One that this layer lacks looks as in the layers below.
    fn open_parent(&mut self, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        if let Ok(found) = self.root.open_path(&rooted(path), flags) {
            return Ok(found);
        }
        let mut prefix = PathBuf::new();
        for part in path.components() {
            prefix.push(part);
            if self.root.open_path(&rooted(&prefix), OFlags::PATH).is_ok() {
                continue;
            }
            let below = self.lower.iter().find_map(|layer| layer.open_path(&rooted(&prefix), flags).ok());
            self.root.create_path(&rooted(&prefix), PathKind::Directory)?;
            let (Some(below), Ok(made)) = (below, self.root.open_path(&rooted(&prefix), flags)) else { continue };
            let stat = rustix::fs::fstat(&below)?;
            rustix::fs::fchown(&made, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
            rustix::fs::fchmod(&made, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
        }
        self.root.open_path(&rooted(path), flags)
    }

    fn set_directory_times(&self) {
        for (path, times) in self.directories.iter().rev() {
            if let Ok(directory) = self.root.open_path(&rooted(path), OFlags::RDONLY | OFlags::DIRECTORY) {
                // A directory without its time is still right.
                let _ = rustix::fs::futimens(&directory, times);
            }
        }
    }
}

fn entry_link(header: &Header) -> Option<PathBuf> {
    header.link_name_bytes().map(|bytes| raw_path(&bytes))
}

/// The path as the kernel resolves it in a root.
fn rooted(path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_owned() }
}

/// The path without root and `.`; one with `..` is refused.
fn clean_path(path: &Path) -> io::Result<PathBuf> {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the path leaves the layer"));
            }
            _ => {}
        }
    }
    Ok(clean)
}

/// Makes room for an entry; a directory stays for a directory.
fn remove_existing(parent: &OwnedFd, name: &OsStr, is_directory: bool) -> io::Result<()> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => match is_directory {
            true => Ok(()),
            false => sys::beneath::remove_tree(&descriptor_path(parent).join(name)),
        },
        Ok(_) => Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?),
    }
}

fn set_attribute(file: &OwnedFd, name: &OsStr, value: &[u8]) -> io::Result<()> {
    match rustix::fs::setxattr(descriptor_path(file), name, value, XattrFlags::empty()) {
        // A file system without them.
        Ok(()) | Err(Errno::NOTSUP) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
