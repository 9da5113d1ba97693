//! `pods/<name>/log`: container logs from the kubelet.

use api::{meta, status::Status};
use apiserver_core::{Body, BodyError, backend, body::full_body, request::ResourceRequest};
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::json;
use streaming::{backend_error, message_stream, websocket};

use super::{options::LogOptions, pod};
use crate::Server;

/// Maximum size of a kubelet's error text.
const MAX_REFUSAL: usize = 50_000;

/// Handles a log request, over WebSocket if requested.
pub async fn handle_log(
    server: &Server,
    target: &ResourceRequest,
    request: Request<Body>,
) -> Result<Response<Body>, Status> {
    let log = fetch_log(server, target).await?;
    let over_socket = log.status().is_success() && websocket::is_handshake(request.headers());
    if over_socket && log.status() != http::StatusCode::NO_CONTENT {
        return message_stream::stream_response(request, log);
    }
    Ok(log)
}

async fn fetch_log(server: &Server, target: &ResourceRequest) -> Result<Response<Body>, Status> {
    let options = LogOptions::from_query(&target.query, &target.name)?;
    let pod = pod::read_pod(server, target).await?;
    let container = pod::find_container(target, &pod)?;
    if meta::string_at(&pod, &["spec", "nodeName"]).is_empty() {
        return Ok(empty_log());
    }
    let mut kubelet = pod::pod_kubelet(server, target, &pod).await?;
    if options.insecure {
        kubelet.tls = kubelet.tls.as_deref().map(backend::without_verification);
    }
    let mut path = format!("/containerLogs/{}/{}/{container}", target.namespace, target.name);
    if !options.query.is_empty() {
        path = format!("{path}?{}", options.query);
    }
    let request = Request::get(&path).header(header::HOST, kubelet.host_and_port()).body(full_body(""));
    let request = request.map_err(|error| Status::bad_request(format!("the log cannot be asked for: {error}")))?;
    let response = kubelet.send_request(request).await;
    let response = response
        .map_err(|error| backend_error(format!("Get \"https://{}{path}\": {error}", kubelet.host_and_port())))?;
    if !response.status().is_success() {
        return Err(kubelet_error(target, response).await);
    }
    let mut log = Response::new(response.into_body().map_err(BodyError::new).boxed_unsync());
    log.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    log.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    Ok(log)
}

/// The empty log of an unscheduled pod.
fn empty_log() -> Response<Body> {
    let mut response = Response::new(full_body(""));
    *response.status_mut() = http::StatusCode::NO_CONTENT;
    response
}

/// Converts a kubelet's plain text error into a `Status`.
async fn kubelet_error(target: &ResourceRequest, response: Response<Incoming>) -> Status {
    let code = response.status().as_u16();
    let text = match Limited::new(response.into_body(), MAX_REFUSAL).collect().await {
        Ok(body) => String::from_utf8_lossy(&body.to_bytes()).trim_end().to_owned(),
        Err(error) => format!("the kubelet refused and its answer broke off: {error}"),
    };
    match code {
        400 => Status::bad_request(text),
        404 => {
            let message = format!("the server could not find the requested resource ( pods/log {})", target.name);
            Status::new(code, "NotFound", message).with_details(json!({"name": target.name, "kind": "pods/log"}))
        }
        500 => Status::internal_error(text),
        _ => Status::from_code(code, text),
    }
}
