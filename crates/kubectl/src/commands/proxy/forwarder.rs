//! Requests to the API server with the user's credentials, bodies and upgraded connections passed through.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited, combinators::BoxBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use super::request_filter::RequestFilter;
use crate::rest::{RestClient, RestRequest, log_line};

/// The body of an answer.
pub type AnswerBody = BoxBody<Bytes, hyper::Error>;

/// Larger request bodies are refused; the API server takes no larger ones either.
const MAX_REQUEST: usize = 64 << 20;

/// Headers that concern one connection only.
const HOP_HEADERS: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Passes requests on to the API server.
pub struct ApiForwarder {
    /// The client.
    pub client: RestClient,
    /// Which requests pass; all if there is none.
    pub filter: Option<RequestFilter>,
    /// The prefix under which the API is served, with a slash at its end.
    pub prefix: String,
    /// The path of the server's URL that is put before every path; mostly empty.
    pub server_path: String,
}

/// A complete answer.
pub fn answer_with(status: StatusCode, kind: &str, body: impl Into<Bytes>) -> Response<AnswerBody> {
    let body = Full::new(body.into()).map_err(|never| match never {}).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    if let Ok(kind) = kind.parse() {
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    response
}

/// An error as plain text.
pub fn plain(status: StatusCode, text: &str) -> Response<AnswerBody> {
    let mut response = answer_with(status, "text/plain; charset=utf-8", format!("{text}\n"));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, http::HeaderValue::from_static("nosniff"));
    response
}

/// An answer that sends the client elsewhere; `with_body` adds a link.
pub fn redirect(path: &str, with_body: bool) -> Response<AnswerBody> {
    let escaped = path.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;");
    let link = format!("<a href=\"{}\">Temporary Redirect</a>.\n\n", escaped.replace('\'', "&#39;"));
    let body = if with_body { link } else { String::new() };
    let mut response = answer_with(StatusCode::TEMPORARY_REDIRECT, "text/html; charset=utf-8", body);
    if let Ok(place) = path.parse() {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

impl ApiForwarder {
    /// Sends a request to the API server.
    pub async fn answer(&self, request: Request<Incoming>) -> Response<AnswerBody> {
        let path = self.api_path(request.uri().path());
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if let Some(filter) = &self.filter
            && !filter.accepts(request.method().as_str(), &path, host)
        {
            return plain(StatusCode::FORBIDDEN, "Forbidden");
        }
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        let target = format!("{}{path}{query}", self.server_path);
        if request.headers().contains_key(header::UPGRADE) {
            return self.upgrade(request, target).await;
        }
        let (parts, body) = request.into_parts();
        let body = match Limited::new(body, MAX_REQUEST).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return plain(StatusCode::BAD_REQUEST, &error.to_string()),
        };
        let mut forwarded = RestRequest::new(parts.method, target);
        forwarded.headers = passed_headers(&parts.headers, &HOP_HEADERS);
        forwarded.body = (!body.is_empty()).then_some(body);
        match self.client.forward(&forwarded).await {
            Ok(response) => {
                let (mut parts, body) = response.into_parts();
                remove_headers(&mut parts.headers, &HOP_HEADERS);
                parts.version = http::Version::HTTP_11;
                Response::from_parts(parts, body.boxed())
            }
            Err(error) => {
                log_line('E', "proxy_server.go:147", &format!("Error while proxying request: {error}"));
                plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string())
            }
        }
    }

    /// The path at the API server; the prefix stays if it begins with `/api`.
    fn api_path(&self, path: &str) -> String {
        if self.prefix.starts_with("/api") {
            return path.to_owned();
        }
        let rest = path.strip_prefix(self.prefix.as_str()).unwrap_or(path);
        if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") }
    }

    async fn upgrade(&self, mut request: Request<Incoming>, target: String) -> Response<AnswerBody> {
        let mut forwarded = RestRequest::new(request.method().clone(), target);
        forwarded.headers = passed_headers(request.headers(), &HOP_HEADERS[1..7]);
        let client_side = hyper::upgrade::on(&mut request);
        let mut response = match self.client.send_upgrade(&forwarded).await {
            Ok(response) => response,
            Err(error) => return plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        };
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let (parts, body) = response.into_parts();
            return Response::from_parts(parts, body.boxed());
        }
        let server_side = hyper::upgrade::on(&mut response);
        tokio::task::spawn_local(async move {
            if let (Ok(client), Ok(server)) = tokio::join!(client_side, server_side) {
                let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
                // Either side ends the stream; there is nothing to report.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            }
        });
        let (parts, _) = response.into_parts();
        Response::from_parts(parts, Full::new(Bytes::new()).map_err(|never| match never {}).boxed())
    }
}

fn passed_headers(headers: &HeaderMap, without: &[&str]) -> Vec<(String, String)> {
    let named = connection_headers(headers);
    let is_passed = |name: &HeaderName| {
        name != header::HOST
            && name != header::CONTENT_LENGTH
            && !without.contains(&name.as_str())
            && (name == header::UPGRADE || !named.iter().any(|other| other == name.as_str()))
    };
    let pair = |(name, value): (&HeaderName, &http::HeaderValue)| {
        value.to_str().ok().map(|value| (name.as_str().to_owned(), value.to_owned()))
    };
    headers.iter().filter(|(name, _)| is_passed(name)).filter_map(pair).collect()
}

/// Headers that `Connection` names.
fn connection_headers(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|name| name.trim().to_lowercase()).collect()
}

fn remove_headers(headers: &mut HeaderMap, names: &[&str]) {
    names.iter().for_each(|name| {
        headers.remove(*name);
    });
}
