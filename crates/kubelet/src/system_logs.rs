//! `/logs`: files and directories of the system's log directory. No symbolic link leads out of it.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use component_server::body_of;
use http::{Response, StatusCode, header};
use rustix::fs::OFlags;
use sys::beneath::{BoundedRoot, PathKind, descriptor_path, path_kind};
use transport::query::decode_percent;

use crate::{
    blocking::run_blocking,
    http_handler::{ResponseBody, text_response},
};

/// The system's log directory.
const LOG_DIR: &str = "/var/log";
/// Bytes of a file that are served, the last ones of a longer file.
const MAX_LENGTH: u64 = 64 << 20;

/// Content of a path.
#[derive(Debug, PartialEq, Eq)]
enum LogContent {
    File(Vec<u8>),
    Directory(Vec<String>),
}

/// Serves the path below the log directory.
pub async fn serve_system_logs(path: &str) -> Response<ResponseBody> {
    let relative = PathBuf::from(decode_percent(path).trim_matches('/'));
    match run_blocking(move || read_log(Path::new(LOG_DIR), &relative)).await {
        Ok(LogContent::File(bytes)) => {
            let mut response = Response::new(body_of(bytes));
            let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, plain);
            response
        }
        Ok(LogContent::Directory(names)) => {
            let line = |name: &String| format!("<a href=\"{}\">{}</a>\n", escape(name), escape(name));
            let text: String = names.iter().map(line).collect();
            let mut response = text_response(StatusCode::OK, &format!("<!doctype html>\n<pre>\n{text}</pre>\n"));
            let html = header::HeaderValue::from_static("text/html; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, html);
            response
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            text_response(StatusCode::NOT_FOUND, "404 page not found\n")
        }
        Err(_) => text_response(StatusCode::FORBIDDEN, "403 Forbidden\n"),
    }
}

fn escape(text: &str) -> String {
    let character = |c: char| match c {
        '&' => "&amp;".to_string(),
        '<' => "&lt;".to_string(),
        '>' => "&gt;".to_string(),
        '"' => "&#34;".to_string(),
        c => c.to_string(),
    };
    text.chars().map(character).collect()
}

fn read_log(root: &Path, path: &Path) -> io::Result<LogContent> {
    let opened = BoundedRoot::open(root)?.open_path(path)?;
    let at = descriptor_path(&opened);
    if path_kind(&opened)? == PathKind::Directory {
        let mut names: Vec<String> = std::fs::read_dir(at)?
            .flatten()
            .map(|entry| {
                let slash = if entry.file_type().is_ok_and(|kind| kind.is_dir()) { "/" } else { "" };
                format!("{}{slash}", entry.file_name().to_string_lossy())
            })
            .collect();
        names.sort();
        return Ok(LogContent::Directory(names));
    }
    // Opened again through its descriptor, which cannot lead elsewhere; a pipe must not block.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let mut file = File::from(rustix::fs::open(&at, flags, rustix::fs::Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    io::Seek::seek(&mut file, io::SeekFrom::Start(metadata.len().saturating_sub(MAX_LENGTH)))?;
    let mut bytes = Vec::new();
    file.take(MAX_LENGTH).read_to_end(&mut bytes)?;
    Ok(LogContent::File(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_below_the_directory_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let (root, secret) = (dir.path().join("log"), dir.path().join("secret"));
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(root.join("sys"), "text").unwrap();
        std::fs::write(&secret, "hidden").unwrap();
        std::os::unix::fs::symlink(&secret, root.join("link")).unwrap();
        assert_eq!(read_log(&root, Path::new("sys")).unwrap(), LogContent::File(b"text".to_vec()));
        let names = ["link", "sub/", "sys"].map(String::from).to_vec();
        assert_eq!(read_log(&root, Path::new("")).unwrap(), LogContent::Directory(names));
        assert!(read_log(&root, Path::new("../secret")).is_err() && read_log(&root, Path::new("link")).is_err());
        assert_eq!(escape("<a&\">"), "&lt;a&amp;&#34;&gt;");
    }
}
