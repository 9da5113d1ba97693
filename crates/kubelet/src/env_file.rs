//! Environment files in volumes, for `fileKeyRef`: `NAME='value'` lines, in upstream's strict subset of shell syntax.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use sys::beneath::ContainerRoot;

/// Length from which a file is not read.
const MAX_FILE_LENGTH: u64 = 16 << 20;

/// An environment file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum EnvFileError {
    /// The file could not be opened or read.
    #[error("failed to open environment variable file {path:?}: {source}")]
    Read {
        /// The path in the volume.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A line is malformed.
    #[error("invalid environment variable format at line {line}: {reason}")]
    Syntax {
        /// The line's number, from 1.
        line: usize,
        /// The error in the line.
        reason: &'static str,
    },
}

/// Returns the value of `key` in the file at `path` of a volume; empty if the file lacks it. Blocks.
///
/// The path is resolved inside the volume; a symbolic link does not lead out of it, and only a regular file is read.
pub fn read_env_file(volume: &Path, path: &Path, key: &str) -> Result<String, EnvFileError> {
    let text = read_file(volume, path).map_err(|source| EnvFileError::Read { path: path.into(), source })?;
    find_value(&text, key)
}

fn read_file(volume: &Path, path: &Path) -> io::Result<String> {
    // A named pipe must not block the open.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(ContainerRoot::open(volume)?.open_path(path, flags)?);
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > MAX_FILE_LENGTH {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file of at most 16 MiB"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_LENGTH).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the value of `key`; empty if it is absent. Lines behind it are not checked.
fn find_value(text: &str, key: &str) -> Result<String, EnvFileError> {
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let syntax = |line, reason| EnvFileError::Syntax { line, reason };
    while let Some((number, line)) = lines.next() {
        let line = line.trim_start_matches([' ', '\t']);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').ok_or_else(|| syntax(number, "missing '='"))?;
        let trimmed = name.trim_end_matches([' ', '\t']);
        if trimmed.is_empty() {
            return Err(syntax(number, "empty variable name"));
        }
        if trimmed != name {
            return Err(syntax(number, "whitespace before '=' is not allowed"));
        }
        if value.starts_with([' ', '\t']) {
            // As in a shell, the variable is empty.
            if name == key {
                return Ok(String::new());
            }
            continue;
        }
        let mut rest =
            value.strip_prefix('\'').ok_or_else(|| syntax(number, "value must be enclosed in single quotes"))?;
        let (mut value, mut last) = (String::new(), number);
        let after = loop {
            if let Some((end, after)) = rest.split_once('\'') {
                value.push_str(end);
                break after.trim_start_matches([' ', '\t']);
            }
            value.push_str(rest);
            value.push('\n');
            (last, rest) = lines.next().ok_or_else(|| syntax(number, "unclosed single quote"))?;
        };
        if !after.is_empty() && !after.starts_with('#') {
            return Err(syntax(last, "unexpected content after closing quote"));
        }
        if name == key {
            return Ok(value);
        }
    }
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_and_may_span_lines() {
        let text = "# words\n\n  A='1' # one\nB= 'x'\nC='first\n second'\nD=''\n";
        let value = |key: &str| find_value(text, key).unwrap();
        assert_eq!([value("A"), value("B"), value("C"), value("D"), value("E")], ["1", "", "first\n second", "", ""]);
        for (bad, reason) in [
            ("A", "missing '='"),
            ("A ='1'", "whitespace before"),
            ("='1'", "empty variable name"),
            ("A=1", "single quotes"),
            ("A='1", "unclosed"),
            ("A='1'x", "unexpected content"),
        ] {
            let error = find_value(bad, "Z").unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("line 1"), "{bad}: {error}");
        }
    }

    #[test]
    fn links_out_of_the_volume_and_pipes_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (outside, volume) = (dir.path().join("secret"), dir.path().join("volume"));
        std::fs::create_dir(&volume).unwrap();
        std::fs::write(&outside, "A='1'").unwrap();
        std::fs::write(volume.join("file"), "A='2'").unwrap();
        std::os::unix::fs::symlink(&outside, volume.join("link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            volume.join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let read = |path: &str| read_env_file(&volume, Path::new(path), "A");
        assert_eq!(read("file").unwrap(), "2");
        assert!(read("../volume/file").unwrap_err().to_string().contains("failed to open"));
        assert!(read("link").is_err() && read("pipe").is_err() && read("absent").is_err());
    }
}
