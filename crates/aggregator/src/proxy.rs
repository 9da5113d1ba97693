//! Passes a request on to an aggregated server and its answer back, both as streams.
//!
//! What goes wrong on the way is told in plain text, as upstream does: the client may speak any encoding of the other server.

use std::time::Duration;

use apiserver_core::{
    Body, BodyError, ProxiedResponse, User,
    body::{full_body, text_response},
};
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::Incoming;
use streaming::join;
use tokio_util::sync::CancellationToken;

use super::{Aggregator, Api, identity, remote::{self, HttpClient}};

/// How long a server may take to say what it serves.
const DISCOVERY: Duration = Duration::from_secs(5);
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

impl Aggregator {
    /// Passes a request on, on behalf of a user.
    pub async fn proxy_request(
        &self,
        api: &Api,
        user: &User,
        watch: bool,
        mut request: Request<Body>,
    ) -> Response<Body> {
        let (client, authority) = match self.reach(api).await {
            Ok(found) => found,
            Err(told) => return told,
        };
        let upgrade = join::is_upgrade(request.headers()).then(|| hyper::upgrade::on(&mut request));
        let discovery = request.uri().path().trim_matches('/').split('/').count() == 3;
        let passed = match passed(&authority, user, upgrade.is_some(), request) {
            Ok(passed) => passed,
            Err(why) => return told(StatusCode::BAD_REQUEST, &why),
        };
        let answered = client.request(passed);
        let answered = match discovery {
            true => tokio::time::timeout(DISCOVERY, answered).await,
            false => Ok(answered.await),
        };
        let answer = match answered {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return unreachable(&why(&error)),
            Err(_) => return unreachable("context deadline exceeded"),
        };
        match upgrade {
            Some(client) => join::joined(&self.stopping, client, answer)
                .unwrap_or_else(|status| told(StatusCode::SERVICE_UNAVAILABLE, &status.message)),
            None => self.returned(watch, answer),
        }
    }

    /// How to speak to a server, and an address of it; an answer, if there is none.
    async fn reach<'a>(&self, api: &'a Api) -> Result<(&'a HttpClient, String), Response<Body>> {
        if !api.condition.is_available() {
            return Err(told(StatusCode::SERVICE_UNAVAILABLE, "service unavailable"));
        }
        let remote = api.remote.as_ref().ok_or_else(|| told(StatusCode::NOT_FOUND, ""))?;
        let client = remote.client.as_ref().map_err(|why| told(StatusCode::INTERNAL_SERVER_ERROR, why))?;
        let authority = remote.resolve(self.storage.service_resolver()).await.map_err(|why| {
            tracing::warn!(api = api.name, why, "the service of an API leads nowhere");
            told(StatusCode::SERVICE_UNAVAILABLE, "service unavailable")
        })?;
        Ok((client, authority))
    }

    /// The answer as the client gets it.
    fn returned(&self, watch: bool, answer: Response<Incoming>) -> Response<Body> {
        let leads_away = answer.status().is_redirection() && answer.headers().contains_key(header::LOCATION);
        if leads_away && !self.redirects {
            let mut refused =
                Response::new(full_body("the backend attempted to redirect this request, which is not permitted"));
            *refused.status_mut() = StatusCode::BAD_GATEWAY;
            return refused;
        }
        let mut answer =
            answer.map(|body| if watch { until_stopped(self.stopping.clone(), body) } else { boxed(body) });
        join::strip(answer.headers_mut());
        answer.extensions_mut().insert(ProxiedResponse);
        answer
    }
}

/// The request as the other server gets it.
fn passed(authority: &str, user: &User, upgrade: bool, request: Request<Body>) -> Result<Request<Body>, String> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let url = remote::url(authority, path)?;
    let client = request.extensions().get().copied();
    let (head, body) = request.into_parts();
    let mut headers = head.headers;
    if upgrade {
        join::without_body(&mut headers);
    } else {
        join::strip(&mut headers);
    }
    // Nothing that shows who somebody is came this far, but for what this server itself does not read.
    headers.remove(header::AUTHORIZATION);
    headers.remove(header::HOST);
    identity::tell(&mut headers, user);
    let forwarded = [(FORWARDED_URI, url.path()), (FORWARDED_HOST, authority), (FORWARDED_PROTO, "https")];
    for (name, value) in forwarded {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    let mut passed = Request::new(if upgrade { full_body("") } else { body });
    (*passed.method_mut(), *passed.uri_mut(), *passed.headers_mut()) = (head.method, url, headers);
    join::append_client(&mut passed, client.as_ref());
    Ok(passed)
}

fn boxed(body: Incoming) -> Body {
    body.map_err(BodyError::new).boxed_unsync()
}

/// A watch has no end of its own: it ends with this server.
fn until_stopped(stopping: CancellationToken, body: Incoming) -> Body {
    let frames = BodyStream::new(body.map_err(BodyError::new)).take_until(stopping.cancelled_owned());
    BodyExt::boxed_unsync(StreamBody::new(frames))
}

/// Why a request did not arrive, by the innermost reason.
pub fn why(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

fn unreachable(why: &str) -> Response<Body> {
    told(StatusCode::SERVICE_UNAVAILABLE, &format!("error trying to reach service: {why}"))
}

/// An answer of plain text.
fn told(code: StatusCode, text: &str) -> Response<Body> {
    let mut response = text_response(Bytes::from(format!("{text}\n")));
    *response.status_mut() = code;
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
