//! Unpacking an archive of a container, which is not trusted: nothing is written outside the target.

use std::{
    io::{self, Read},
    path::{Component, Path, PathBuf},
    sync::mpsc::Receiver,
};

use api::json::go_quote;

use crate::{
    errln,
    errors::{CommandError, CommandResult},
    files::{clean_path, os_error},
};

/// The archive as a reader.
struct ChunkReader<'a> {
    chunks: &'a Receiver<Vec<u8>>,
    rest: io::Cursor<Vec<u8>>,
}

impl Read for ChunkReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.rest.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            match self.chunks.recv() {
                Ok(chunk) => self.rest = io::Cursor::new(chunk),
                Err(_) => return Ok(0),
            }
        }
    }
}

/// An archive to unpack.
pub struct TarExtractor {
    /// The prefix of all names.
    pub prefix: String,
    /// The local file or directory.
    pub target: String,
    /// The namespace, for the warning about links.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The path in the pod.
    pub source: String,
}

/// The beginning of the names in an archive of that path.
pub fn archive_prefix(file: &str) -> String {
    let stripped = file.trim_start_matches(['/', '\\']);
    let cleaned = clean_path(Path::new(stripped)).to_string_lossy().into_owned();
    strip_shortcuts(&cleaned)
}

/// Removes leading `../`.
fn strip_shortcuts(path: &str) -> String {
    let mut rest = path;
    while let Some(shorter) = rest.strip_prefix("../") {
        rest = shorter;
    }
    match rest {
        "." | ".." => String::new(),
        rest => rest.strip_prefix('/').unwrap_or(rest).to_owned(),
    }
}

fn is_inside(base: &Path, path: &Path) -> bool {
    let (base, path) = (clean_path(base), clean_path(path));
    if base == Path::new(".") {
        return !path.is_absolute() && !matches!(path.components().next(), Some(Component::ParentDir));
    }
    path.starts_with(base)
}

impl TarExtractor {
    /// Unpacks until the archive ends.
    pub fn extract(self, chunks: &Receiver<Vec<u8>>) -> CommandResult {
        self.unpack(chunks)?;
        // What follows the end of the archive is padding.
        chunks.iter().for_each(drop);
        Ok(())
    }

    fn unpack(&self, chunks: &Receiver<Vec<u8>>) -> CommandResult {
        let mut archive = tar::Archive::new(ChunkReader { chunks, rest: io::Cursor::default() });
        let mut warned = false;
        let broken = |error: io::Error| CommandError::new(error.to_string());
        for entry in archive.entries().map_err(broken)? {
            let mut entry = entry.map_err(broken)?;
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let Some(rest) = name.strip_prefix(&self.prefix) else {
                crate::bail!("tar contents corrupted");
            };
            let rest = rest.replace('\\', "/");
            let path = clean_path(&PathBuf::from(format!("{}/{}", self.target, rest.trim_start_matches('/'))));
            let shown = path.to_string_lossy().into_owned();
            if !is_inside(Path::new(&self.target), &path) {
                errln!("warning: file {} is outside target destination, skipping", go_quote(&shown));
                continue;
            }
            let failed = |operation: &str, path: &Path, error: &io::Error| {
                CommandError::new(format!("{operation} {}: {}", path.display(), os_error(error)))
            };
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                std::fs::create_dir_all(parent).map_err(|error| failed("mkdir", parent, &error))?;
            }
            let kind = entry.header().entry_type();
            if kind.is_dir() {
                std::fs::create_dir_all(&path).map_err(|error| failed("mkdir", &path, &error))?;
            } else if kind.is_symlink() {
                let link = entry.link_name_bytes().map(|link| String::from_utf8_lossy(&link).into_owned());
                self.warn_about_link(&shown, &link.unwrap_or_default(), &mut warned);
            } else {
                let mut file = std::fs::File::create(&path).map_err(|error| failed("open", &path, &error))?;
                io::copy(&mut entry, &mut file).map_err(|error| failed("write", &path, &error))?;
            }
        }
        Ok(())
    }

    fn warn_about_link(&self, path: &str, link: &str, warned: &mut bool) {
        let text = format!("warning: skipping symlink: {} -> {}", go_quote(path), go_quote(link));
        if std::mem::replace(warned, true) {
            errln!("{text}");
            return;
        }
        errln!(
            "{text} (consider using \"kubectl exec -n {} {} -- tar cf - {} | tar xf -\")",
            go_quote(&self.namespace),
            go_quote(&self.pod),
            go_quote(&self.source)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_is_the_path_without_slashes_and_shortcuts() {
        assert_eq!(archive_prefix("/tmp/x"), "tmp/x");
        assert_eq!(archive_prefix("../../x"), "x");
        assert_eq!(archive_prefix("."), "");
    }

    #[test]
    fn files_outside_the_target_are_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("in");
        let mut builder = tar::Builder::new(Vec::new());
        let mut add = |name: &[u8], content: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name);
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            builder.append(&header, content).unwrap();
        };
        add(b"dir/good", b"1");
        add(b"dir/../../bad", b"2");
        let archive = builder.into_inner().unwrap();
        let (sender, chunks) = std::sync::mpsc::sync_channel(64);
        archive.chunks(100).for_each(|chunk| sender.send(chunk.to_vec()).unwrap());
        drop(sender);
        let extractor = TarExtractor {
            prefix: "dir".into(),
            target: target.to_string_lossy().into_owned(),
            namespace: "n".into(),
            pod: "p".into(),
            source: "dir".into(),
        };
        extractor.extract(&chunks).unwrap();
        assert_eq!(std::fs::read(target.join("good")).unwrap(), b"1");
        assert!(!directory.path().join("bad").exists());
    }
}
