//! File paths and file errors as Go writes them.

use std::{
    io,
    path::{Component, Path, PathBuf},
};

/// The text of an operating system error in Go's words.
pub fn os_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "is a directory".to_owned(),
        io::ErrorKind::NotADirectory => "not a directory".to_owned(),
        io::ErrorKind::AlreadyExists => "file exists".to_owned(),
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        _ => {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or(&text).to_owned();
            let mut characters = text.chars();
            match (characters.next(), error.raw_os_error()) {
                (Some(first), Some(_)) => first.to_lowercase().chain(characters).collect(),
                _ => text,
            }
        }
    }
}

/// Removes `.` and `..` without looking at the file system.
pub fn clean_path(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                let can_pop = matches!(out.components().next_back(), Some(Component::Normal(_)));
                if can_pop {
                    out.pop();
                } else if !matches!(out.components().next_back(), Some(Component::RootDir)) {
                    out.push("..");
                }
            }
            other => out.push(other.as_os_str()),
        }
    }
    if out.as_os_str().is_empty() { PathBuf::from(".") } else { out }
}

/// A name for a temporary file or directory: the prefix with a random number, as Go makes them.
pub fn temporary_name(prefix: &str) -> String {
    format!("{prefix}{}", fastrand::u32(..))
}

/// Reads a file; the error is `open PATH: CAUSE`.
pub fn read_file(path: &str) -> Result<Vec<u8>, crate::errors::CommandError> {
    let wrong = |operation: &str, error: &io::Error| {
        crate::errors::CommandError::new(format!("{operation} {path}: {}", os_error(error)))
    };
    match std::fs::read(path) {
        Ok(bytes) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => Err(wrong("read", &error)),
        Err(error) => Err(wrong("open", &error)),
    }
}
