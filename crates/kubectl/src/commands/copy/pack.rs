//! Packing local files: a tar archive in chunks, as `tar -x` in a container reads it.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::Path,
};

use tokio::sync::mpsc::Sender;

/// A file that cannot be packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// A file cannot be read.
    #[error("{0}")]
    Read(String),
    /// The other side takes no more.
    #[error("io: read/write on closed pipe")]
    Closed,
}

impl PackError {
    /// Whether the other side ended first.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, PackError::Closed)
    }
}

/// Sends what is written in chunks.
struct ChunkWriter {
    sender: Sender<Vec<u8>>,
    buffer: Vec<u8>,
}

impl Write for ChunkWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(data);
        if self.buffer.len() >= 32 << 10 {
            self.flush()?;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let chunk = std::mem::take(&mut self.buffer);
        self.sender.blocking_send(chunk).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

/// Packs a file or a directory under a name.
pub fn pack_files(source: &Path, name: &str, sender: Sender<Vec<u8>>) -> Result<(), PackError> {
    let mut builder = tar::Builder::new(ChunkWriter { sender, buffer: Vec::new() });
    let matches = if source.to_string_lossy().contains(['*', '?', '[']) && std::fs::symlink_metadata(source).is_err() {
        crate::resource::match_pattern(&source.to_string_lossy())
    } else {
        vec![source.to_string_lossy().into_owned()]
    };
    for path in matches {
        append_tree(&mut builder, Path::new(&path), name)?;
    }
    let mut writer = builder.into_inner().map_err(|error| classify(&error, source))?;
    writer.flush().map_err(|error| classify(&error, source))
}

fn classify(error: &io::Error, path: &Path) -> PackError {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return PackError::Closed;
    }
    PackError::Read(format!("open {}: {}", path.display(), crate::files::os_error(error)))
}

fn append_tree(builder: &mut tar::Builder<ChunkWriter>, path: &Path, name: &str) -> Result<(), PackError> {
    let wrong = |error: io::Error| classify(&error, path);
    let metadata = std::fs::symlink_metadata(path).map_err(wrong)?;
    let mut header = tar::Header::new_gnu();
    header.set_metadata(&metadata);
    header.set_uid(u64::from(metadata.uid()));
    header.set_gid(u64::from(metadata.gid()));
    if metadata.is_dir() {
        let mut entries = std::fs::read_dir(path).map_err(wrong)?.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        if entries.is_empty() {
            return builder.append_data(&mut header, name, io::empty()).map_err(wrong);
        }
        for entry in entries {
            append_tree(builder, &entry.path(), &format!("{name}/{}", entry.file_name().to_string_lossy()))?;
        }
        return Ok(());
    }
    if metadata.is_symlink() {
        header.set_size(0);
        let target = std::fs::read_link(path).map_err(wrong)?;
        return builder.append_link(&mut header, name, target).map_err(wrong);
    }
    if !metadata.is_file() {
        header.set_size(0);
        return builder.append_data(&mut header, name, io::empty()).map_err(wrong);
    }
    let file = File::open(path).map_err(wrong)?;
    // A file that grows meanwhile is cut at the size in its header.
    let content = io::Read::take(file, metadata.len());
    builder.append_data(&mut header, name, content).map_err(wrong)
}
