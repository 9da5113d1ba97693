//! The log of a container in CRI's format: time, stream, `F` or `P` for a whole or partial line, content.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Longer lines are written in parts, as containerd does.
const LONGEST_LINE: usize = 16 << 10;

/// A log.
pub struct LogFile {
    path: PathBuf,
    file: Option<File>,
}

/// A line that has no end yet.
pub struct LineBuffer {
    stream: &'static str,
    line: Vec<u8>,
}

impl LogFile {
    /// Opens a log; it is appended to.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: Some(open_append(path)?) })
    }

    /// Opens the log again at its path.
    pub fn reopen(&mut self) -> io::Result<()> {
        self.file = Some(open_append(&self.path)?);
        Ok(())
    }

    /// Appends lines. A full disk loses them: the container must not wait.
    fn append(&mut self, lines: &[u8]) {
        if let Some(file) = &mut self.file {
            let _ = file.write_all(lines);
        }
    }
}

fn open_append(path: &Path) -> io::Result<File> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}

impl LineBuffer {
    /// A buffer of `stdout` or `stderr`.
    pub fn new(stream: &'static str) -> Self {
        Self { stream, line: Vec::new() }
    }

    /// Writes the lines of an output to the log; keeps what has no end yet.
    pub fn write(&mut self, output: &[u8], log: &mut LogFile) {
        let mut lines = Vec::with_capacity(output.len() + 128);
        let mut rest = output;
        let time = timestamp();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            self.flush_parts(&time, &mut lines, true);
        }
        self.line.extend_from_slice(rest);
        if self.line.len() > LONGEST_LINE {
            self.flush_parts(&time, &mut lines, false);
        }
        if !lines.is_empty() {
            log.append(&lines);
        }
    }

    /// Writes what is left as a partial line.
    pub fn finish(&mut self, log: &mut LogFile) {
        if !self.line.is_empty() {
            let mut lines = Vec::new();
            write_line(&mut lines, &timestamp(), self.stream, 'P', &std::mem::take(&mut self.line));
            log.append(&lines);
        }
    }

    /// Writes full parts of the line; with `ends`, all of it.
    fn flush_parts(&mut self, time: &str, lines: &mut Vec<u8>, ends: bool) {
        let mut rest = self.line.as_slice();
        while rest.len() > LONGEST_LINE {
            let (part, after) = rest.split_at(LONGEST_LINE);
            write_line(lines, time, self.stream, 'P', part);
            rest = after;
        }
        if ends {
            write_line(lines, time, self.stream, 'F', rest);
            self.line.clear();
        } else {
            self.line = rest.to_vec();
        }
    }
}

fn write_line(lines: &mut Vec<u8>, time: &str, stream: &str, tag: char, content: &[u8]) {
    // Writing to memory cannot fail.
    let _ = write!(lines, "{time} {stream} {tag} ");
    lines.extend_from_slice(content);
    lines.push(b'\n');
}

fn timestamp() -> String {
    format!("{:.9}", jiff::Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pieces: &[&[u8]], expected: &[(&str, usize)]) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c/0.log");
        let mut log = LogFile::open(&path).unwrap();
        let mut buffer = LineBuffer::new("stdout");
        pieces.iter().for_each(|piece| buffer.write(piece, &mut log));
        buffer.finish(&mut log);
        let text = std::fs::read_to_string(&path).unwrap();
        let found: Vec<(String, usize)> = text
            .lines()
            .map(|line| {
                let mut fields = line.splitn(4, ' ');
                assert!(fields.next().unwrap().ends_with('Z'));
                assert_eq!(fields.next(), Some("stdout"));
                (fields.next().unwrap().to_owned(), fields.next().unwrap().len())
            })
            .collect();
        let expected: Vec<(String, usize)> = expected.iter().map(|(tag, len)| ((*tag).to_owned(), *len)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn lines_are_whole_or_partial() {
        check(&[b"one\ntw", b"o\n\nend"], &[("F", 3), ("F", 3), ("F", 0), ("P", 3)]);
        let long = vec![b'x'; LONGEST_LINE + 5];
        check(&[&long, b"\n"], &[("P", LONGEST_LINE), ("F", 5)]);
        check(&[&long[..LONGEST_LINE], b"\n"], &[("F", LONGEST_LINE)]);
    }

    #[test]
    fn renamed_log_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let mut log = LogFile::open(&path).unwrap();
        let mut buffer = LineBuffer::new("stderr");
        buffer.write(b"old\n", &mut log);
        std::fs::rename(&path, dir.path().join("0.log.1")).unwrap();
        log.reopen().unwrap();
        buffer.write(b"new\n", &mut log);
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("stderr F new\n"));
    }
}
