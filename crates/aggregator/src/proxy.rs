//! Proxies requests to aggregated servers; request and response are streamed.
//!
//! Proxy errors are plain text, as upstream's are, because the client may use any encoding of the aggregated server.

use std::time::Duration;

use apiserver_core::{
    Body, BodyError, ProxiedResponse, User,
    body::{full_body, text_response},
    http_client::HttpClient,
};
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::Incoming;
use streaming::upgrade_proxy;
use tokio_util::sync::CancellationToken;

use super::{Aggregator, ApiService, identity, remote};

/// Timeout of proxied discovery requests.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

impl Aggregator {
    /// Proxies a request as `user`.
    pub async fn proxy_request(
        &self,
        api: &ApiService,
        user: &User,
        watch: bool,
        mut request: Request<Body>,
    ) -> Response<Body> {
        let (client, authority) = match self.resolve_server(api).await {
            Ok(found) => found,
            Err(told) => return told,
        };
        let upgrade = upgrade_proxy::is_upgrade_request(request.headers()).then(|| hyper::upgrade::on(&mut request));
        let discovery = request.uri().path().trim_matches('/').split('/').count() == 3;
        let passed = match proxied_request(&authority, user, upgrade.is_some(), request) {
            Ok(passed) => passed,
            Err(error) => return text_error(StatusCode::BAD_REQUEST, &error.to_string()),
        };
        let answered = client.send_request(passed);
        let answered = match discovery {
            true => tokio::time::timeout(DISCOVERY_TIMEOUT, answered).await,
            false => Ok(answered.await),
        };
        let answer = match answered {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return unreachable_response(&error.to_string()),
            Err(_) => return unreachable_response("context deadline exceeded"),
        };
        match upgrade {
            Some(client) => upgrade_proxy::join_connections(&self.stopping, client, answer)
                .unwrap_or_else(|status| text_error(StatusCode::SERVICE_UNAVAILABLE, &status.message)),
            None => self.finish_response(watch, answer),
        }
    }

    /// The client and address of a server; an error response if it is unavailable.
    async fn resolve_server<'a>(&self, api: &'a ApiService) -> Result<(&'a HttpClient, String), Response<Body>> {
        if !api.condition.is_available() {
            return Err(text_error(StatusCode::SERVICE_UNAVAILABLE, "service unavailable"));
        }
        let remote = api.remote.as_ref().ok_or_else(|| text_error(StatusCode::NOT_FOUND, ""))?;
        let client = remote.client.as_ref();
        let client = client.map_err(|error| text_error(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()))?;
        let authority = remote.resolve_authority(self.storage.service_resolver()).await.map_err(|why| {
            tracing::warn!(api = api.name, %why, "aggregator: APIService has no ready endpoint, responding with 503");
            text_error(StatusCode::SERVICE_UNAVAILABLE, "service unavailable")
        })?;
        Ok((client, authority))
    }

    /// Prepares the response of an aggregated server for the client.
    fn finish_response(&self, watch: bool, answer: Response<Incoming>) -> Response<Body> {
        let leads_away = answer.status().is_redirection() && answer.headers().contains_key(header::LOCATION);
        if leads_away && !self.redirects {
            let mut refused =
                Response::new(full_body("the backend attempted to redirect this request, which is not permitted"));
            *refused.status_mut() = StatusCode::BAD_GATEWAY;
            return refused;
        }
        let mut answer =
            answer.map(|body| if watch { until_stopped(self.stopping.clone(), body) } else { boxed_body(body) });
        upgrade_proxy::strip_hop_by_hop_headers(answer.headers_mut());
        answer.extensions_mut().insert(ProxiedResponse);
        answer
    }
}

/// Builds the request to the aggregated server: no credentials, `X-Remote-*` and `X-Forwarded-*` headers.
fn proxied_request(
    authority: &str,
    user: &User,
    upgrade: bool,
    request: Request<Body>,
) -> Result<Request<Body>, http::Error> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let url = remote::build_url(authority, path)?;
    let client = request.extensions().get().copied();
    let (head, body) = request.into_parts();
    let mut headers = head.headers;
    if upgrade {
        upgrade_proxy::remove_body_headers(&mut headers);
    } else {
        upgrade_proxy::strip_hop_by_hop_headers(&mut headers);
    }
    // Authentication has stripped its credentials; schemes that this server does not read are removed here.
    headers.remove(header::AUTHORIZATION);
    headers.remove(header::HOST);
    identity::set_user_headers(&mut headers, user);
    let forwarded = [(FORWARDED_URI, url.path()), (FORWARDED_HOST, authority), (FORWARDED_PROTO, "https")];
    for (name, value) in forwarded {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    let mut passed = Request::new(if upgrade { full_body("") } else { body });
    (*passed.method_mut(), *passed.uri_mut(), *passed.headers_mut()) = (head.method, url, headers);
    upgrade_proxy::append_forwarded_for(&mut passed, client.as_ref());
    Ok(passed)
}

fn boxed_body(body: Incoming) -> Body {
    body.map_err(BodyError::new).boxed_unsync()
}

/// Ends a proxied watch when this server stops.
fn until_stopped(stopping: CancellationToken, body: Incoming) -> Body {
    let frames = BodyStream::new(body.map_err(BodyError::new)).take_until(stopping.cancelled_owned());
    BodyExt::boxed_unsync(StreamBody::new(frames))
}

fn unreachable_response(why: &str) -> Response<Body> {
    text_error(StatusCode::SERVICE_UNAVAILABLE, &format!("error trying to reach service: {why}"))
}

/// A plain text error response.
fn text_error(code: StatusCode, text: &str) -> Response<Body> {
    let mut response = text_response(Bytes::from(format!("{text}\n")));
    *response.status_mut() = code;
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
