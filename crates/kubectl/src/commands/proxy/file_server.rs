//! Static files beside the API.

use std::path::{Path, PathBuf};

use http::{Response, StatusCode};
use percent_encoding::percent_decode_str;

use super::forwarder::{AnswerBody, answer_with, plain, redirect};

/// Serves the files of a directory.
pub struct FileServer {
    directory: PathBuf,
    /// The prefix of the paths, with a slash at its end.
    pub prefix: String,
}

impl FileServer {
    /// A server of the directory's files.
    pub fn new(directory: &str, prefix: String) -> Self {
        FileServer { directory: PathBuf::from(directory), prefix }
    }

    /// The answer to a request of a path, which has the prefix.
    pub fn answer(&self, path: &str) -> Response<AnswerBody> {
        let decoded = percent_decode_str(path.strip_prefix(self.prefix.as_str()).unwrap_or_default());
        let Ok(decoded) = decoded.decode_utf8() else { return not_found() };
        if decoded.split('/').any(|part| part == "..") || decoded.contains('\0') {
            return plain(StatusCode::BAD_REQUEST, "invalid URL path");
        }
        let file = self.directory.join(decoded.trim_start_matches('/'));
        let Ok(data) = std::fs::metadata(&file) else { return not_found() };
        if data.is_dir() && !path.ends_with('/') {
            return redirect(&format!("{path}/"), false);
        }
        if !data.is_dir() {
            return self.answer_file(&file);
        }
        let index = file.join("index.html");
        if index.is_file() { self.answer_file(&index) } else { list_directory(&file) }
    }

    fn answer_file(&self, file: &Path) -> Response<AnswerBody> {
        match std::fs::read(file) {
            Ok(content) => answer_with(StatusCode::OK, content_type(file, &content), content),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                plain(StatusCode::FORBIDDEN, "403 Forbidden")
            }
            Err(_) => not_found(),
        }
    }
}

fn not_found() -> Response<AnswerBody> {
    plain(StatusCode::NOT_FOUND, "404 page not found")
}

fn content_type(file: &Path, content: &[u8]) -> &'static str {
    match file.extension().and_then(|extension| extension.to_str()).unwrap_or_default() {
        "css" => "text/css; charset=utf-8",
        "html" | "htm" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "gif" => "image/gif",
        "jpg" | "jpeg" => "image/jpeg",
        "png" => "image/png",
        "svg" => "image/svg+xml",
        "wasm" => "application/wasm",
        "xml" => "text/xml; charset=utf-8",
        _ if std::str::from_utf8(content).is_ok() => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

fn list_directory(directory: &Path) -> Response<AnswerBody> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return plain(StatusCode::INTERNAL_SERVER_ERROR, "Error reading directory");
    };
    let name = |entry: std::fs::DirEntry| {
        let slash = if entry.path().is_dir() { "/" } else { "" };
        format!("{}{slash}", entry.file_name().to_string_lossy())
    };
    let mut names: Vec<String> = entries.flatten().map(name).collect();
    names.sort();
    let escape = |text: &str| {
        text.replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('"', "&#34;")
            .replace('\'', "&#39;")
    };
    let line = |name: &String| {
        let link = percent_encoding::utf8_percent_encode(name, percent_encoding::CONTROLS).to_string();
        format!("<a href=\"{}\">{}</a>\n", escape(&link), escape(name))
    };
    let lines: String = names.iter().map(line).collect();
    let page =
        format!("<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n{lines}</pre>\n");
    answer_with(StatusCode::OK, "text/html; charset=utf-8", page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_outside_the_directory_are_not_served() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a b.txt"), "x").unwrap();
        let server = FileServer::new(&directory.path().to_string_lossy(), "/static/".into());
        assert_eq!(server.answer("/static/a%20b.txt").status(), StatusCode::OK);
        assert_eq!(server.answer("/static/").status(), StatusCode::OK);
        assert_eq!(server.answer("/static/none").status(), StatusCode::NOT_FOUND);
        assert_eq!(server.answer("/static/%2e%2e/etc/passwd").status(), StatusCode::BAD_REQUEST);
    }
}
