//! `kubectl proxy`: serves the API on a local port or socket with the credentials of the kubeconfig.

mod file_server;
mod forwarder;
mod request_filter;

use std::{os::unix::fs::FileTypeExt, rc::Rc};

use file_server::FileServer;
use forwarder::ApiForwarder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use request_filter::RequestFilter;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
};

use crate::{
    errors::{CommandError, CommandResult},
    files::os_error,
    outln,
    rest::{RestClient, block_on, log_line},
    session::Session,
};

/// Serves until the process is ended.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let mut settings = session.settings()?;
    let server_path = server_path(&settings.host);
    if let Some(origin) = settings.host.strip_suffix(server_path.as_str()) {
        settings.host = origin.to_owned();
    }
    let client = RestClient::new(settings, "", session.log_level())?;
    let append = flags.bool("append-server-path");
    if !append && !["", "/"].contains(&server_path.as_str()) {
        log_line(
            'W',
            "proxy.go:171",
            &format!(
                "Your kube context contains a server path {server_path}, use --append-server-path to automatically append the path to each request"
            ),
        );
    }
    let socket = flags.string("unix-socket");
    let filter = if flags.bool("disable-filter") {
        if socket.is_empty() {
            let text = "Request filter disabled, your proxy is vulnerable to XSRF attacks, please be cautious";
            log_line('W', "proxy.go:176", text);
        }
        None
    } else {
        Some(RequestFilter::from_flags(flags)?)
    };
    if flags.int("port") != 8001 && !socket.is_empty() {
        crate::bail!("cannot set --unix-socket and --port at the same time");
    }
    let with_slash = |mut text: String| {
        if !text.ends_with('/') {
            text.push('/');
        }
        text
    };
    let api = ApiForwarder {
        client,
        filter,
        prefix: with_slash(flags.string("api-prefix")),
        server_path: if append { server_path } else { String::new() },
    };
    let files = match flags.string("www") {
        directory if directory.is_empty() => None,
        directory if let Err(error) = std::fs::metadata(&directory) => {
            let text =
                format!("Failed to stat static file directory {directory}: stat {directory}: {}", os_error(&error));
            log_line('W', "proxy.go:167", &text);
            Some(FileServer::new(&directory, with_slash(flags.string("www-prefix"))))
        }
        directory => Some(FileServer::new(&directory, with_slash(flags.string("www-prefix")))),
    };
    let server = Rc::new(ProxyServer { api, files });
    block_on(tokio::task::LocalSet::new().run_until(async {
        if socket.is_empty() {
            serve_tcp(&server, &flags.string("address"), flags.int("port")).await
        } else {
            serve_unix(&server, &socket).await
        }
    }))
}

/// The path of the server's URL.
fn server_path(host: &str) -> String {
    host.parse::<http::Uri>().map(|uri| uri.path().trim_end_matches('/').to_owned()).unwrap_or_default()
}

/// The kind of path that is served.
struct ProxyServer {
    api: ApiForwarder,
    files: Option<FileServer>,
}

async fn serve_tcp(server: &Rc<ProxyServer>, address: &str, port: i64) -> CommandResult {
    if !(0..=65535).contains(&port) {
        crate::bail!("listen tcp: address {port}: invalid port");
    }
    let place = if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") };
    let failed = |error: std::io::Error| CommandError::new(format!("listen tcp {place}: bind: {}", os_error(&error)));
    let listener = TcpListener::bind(&place).await.map_err(failed)?;
    outln!("Starting to serve on {}", listener.local_addr().map_err(failed)?);
    loop {
        // A connection that ended before it was accepted is no reason to stop.
        if let Ok((stream, _)) = listener.accept().await {
            serve_connection(server, stream);
        }
    }
}

async fn serve_unix(server: &Rc<ProxyServer>, path: &str) -> CommandResult {
    if std::fs::metadata(path).is_ok_and(|data| data.file_type().is_socket()) {
        // What cannot be removed fails to bind below.
        let _ = std::fs::remove_file(path);
    }
    let failed = |error: std::io::Error| CommandError::new(format!("listen unix {path}: bind: {}", os_error(&error)));
    // Only the user may connect.
    let previous = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let bound = UnixListener::bind(path);
    rustix::process::umask(previous);
    let listener = bound.map_err(failed)?;
    outln!("Starting to serve on {path}");
    loop {
        // As above.
        if let Ok((stream, _)) = listener.accept().await {
            serve_connection(server, stream);
        }
    }
}

fn serve_connection(server: &Rc<ProxyServer>, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let server = Rc::clone(server);
    tokio::task::spawn_local(async move {
        let service = service_fn(|request| {
            let server = Rc::clone(&server);
            async move { Ok::<_, std::convert::Infallible>(server.answer(request).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        // The client went away; there is nobody to tell.
        let _ = connection.with_upgrades().await;
    });
}

impl ProxyServer {
    async fn answer(&self, request: http::Request<hyper::body::Incoming>) -> http::Response<forwarder::AnswerBody> {
        let path = clean_path(request.uri().path());
        let redirect = |path: &str| {
            let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
            forwarder::redirect(&format!("{path}{query}"), request.method() == http::Method::GET)
        };
        let prefixes = [Some(self.api.prefix.as_str()), self.files.as_ref().map(|files| files.prefix.as_str())];
        // The longest prefix wins.
        let matching =
            prefixes.iter().flatten().filter(|prefix| path.starts_with(**prefix)).max_by_key(|prefix| prefix.len());
        match (matching, &self.files) {
            (None, _) if prefixes.iter().flatten().any(|prefix| prefix.strip_suffix('/') == Some(&path)) => {
                redirect(&format!("{path}/"))
            }
            _ if path != request.uri().path() => redirect(&path),
            (Some(prefix), Some(files)) if *prefix == files.prefix => files.answer(&path),
            (Some(_), _) => self.api.answer(request).await,
            (None, _) => forwarder::plain(http::StatusCode::NOT_FOUND, "404 page not found"),
        }
    }
}

/// The path without `.`, `..` and repeated slashes, as Go's request multiplexer has it.
fn clean_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            other => parts.push(other),
        }
    }
    let end = if path.ends_with('/') && !parts.is_empty() { "/" } else { "" };
    format!("/{}{end}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_paths_have_no_empty_parts() {
        let paths = ["", "/", "//custom/healthz", "/a/./b/../c/", "/../x//", "/a%2F/b"];
        assert_eq!(paths.map(clean_path), ["/", "/", "/custom/healthz", "/a/c/", "/x/", "/a%2F/b"]);
    }
}
