//! Completes the audit of a request, with its response or the end of its stream.

use std::{io::Read, sync::Arc};

use api::{Value, protobuf};
use apiserver_core::{
    Body,
    body::{PROTOBUF, full_body},
};
use bytes::Bytes;
use flate2::read::GzDecoder;
use http::{Response, header};
use http_body::Body as _;
use http_body_util::BodyExt;

use super::{AuditContext, Level, Stage};

/// Larger responses are read only at the level RequestResponse.
const SMALL_RESPONSE: u64 = 64 << 10;
/// Limit of a decompressed response.
const MAX_DECOMPRESSED: u64 = 64 << 20;

/// Records the response of a request, and the end of a stream.
pub async fn record_response(context: Arc<AuditContext>, stream: bool, response: Response<Body>) -> Response<Body> {
    let code = response.status().as_u16();
    if stream && code < 400 {
        context.log_response_object(code, None);
        process_stage(&context, Stage::ResponseStarted).await;
        let end = StreamEndGuard(Some(context));
        return response.map(|body| {
            let body = body.map_frame(move |frame| {
                let _held = &end;
                frame
            });
            body.boxed_unsync()
        });
    }
    let (response, object) =
        if needs_response_body(&context, &response) { read_response_object(response).await } else { (response, None) };
    context.log_response_object(code, object);
    process_stage(&context, Stage::ResponseComplete).await;
    response
}

/// Records a request that was rejected before it started.
pub async fn record_rejection(context: &AuditContext, response: Response<Body>) -> Response<Body> {
    let (response, object) = read_response_object(response).await;
    context.log_response_object(response.status().as_u16(), object);
    process_stage(context, Stage::ResponseStarted).await;
    response
}

/// Records a request whose handler panicked.
pub async fn record_panic(context: &AuditContext) {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "InternalError",
        "message": "APIServer panic'd", "code": 500,
    });
    context.log_response_object(500, Some(status));
    process_stage(context, Stage::Panic).await;
}

async fn process_stage(context: &AuditContext, stage: Stage) {
    // Only the stage RequestReceived can fail a request.
    let _ = context.process_stage(stage).await;
}

/// Whether the response body is recorded, or may be a `Status`.
fn needs_response_body(context: &AuditContext, response: &Response<Body>) -> bool {
    // A proxied response may be endless, and is audited by its own server.
    if response.extensions().get::<apiserver_core::ProxiedResponse>().is_some() {
        return false;
    }
    let small = response.body().size_hint().exact().is_some_and(|size| size <= SMALL_RESPONSE);
    context.audit_level() >= Level::RequestResponse || small
}

/// Reads a response and returns it with its decoded object.
async fn read_response_object(response: Response<Body>) -> (Response<Body>, Option<Value>) {
    let (head, body) = response.into_parts();
    let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = text(header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim().to_owned();
    let zipped = text(header::CONTENT_ENCODING) == "gzip";
    let Ok(collected) = body.collect().await else {
        return (Response::from_parts(head, full_body(Bytes::new())), None);
    };
    let bytes = collected.to_bytes();
    let object = decompress_body(&bytes, zipped).and_then(|plain| match kind.as_str() {
        "application/json" => serde_json::from_slice(&plain).ok(),
        PROTOBUF => protobuf::decode_object(&plain).ok(),
        _ => None,
    });
    (Response::from_parts(head, full_body(bytes)), object)
}

fn decompress_body(bytes: &Bytes, zipped: bool) -> Option<Bytes> {
    if !zipped {
        return Some(bytes.clone());
    }
    let mut plain = Vec::new();
    GzDecoder::new(&bytes[..]).take(MAX_DECOMPRESSED).read_to_end(&mut plain).ok()?;
    Some(plain.into())
}

/// Records the stage ResponseComplete when it is dropped, which is the end of the stream.
struct StreamEndGuard(Option<Arc<AuditContext>>);

impl Drop for StreamEndGuard {
    fn drop(&mut self) {
        let Some(context) = self.0.take() else { return };
        // Without a runtime the server has stopped.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { process_stage(&context, Stage::ResponseComplete).await });
        }
    }
}
