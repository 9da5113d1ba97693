//! Connections that switch protocols: the handshakes of WebSocket and SPDY.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::protocol::{Role, WebSocketConfig},
};

use crate::{
    errors::{CommandError, CommandResult},
    rest::{RestClient, RestRequest},
};

/// A WebSocket connection.
pub type WebSocketConnection = WebSocketStream<TokioIo<Upgraded>>;

/// Larger messages of the server end the connection.
const MAX_MESSAGE: usize = 32 << 20;
/// Longer error answers are cut.
const MAX_ERROR: usize = 64 << 10;

/// A server that does not switch to the protocol, with its answer, or a connection that failed.
pub enum UpgradeFailure {
    /// The server answered something else.
    Refused(CommandError),
    /// There was no answer.
    Broken(CommandError),
}

impl UpgradeFailure {
    fn into_error(self) -> CommandError {
        match self {
            UpgradeFailure::Refused(error) | UpgradeFailure::Broken(error) => error,
        }
    }
}

/// Opens a WebSocket with one of the subprotocols; returns the one that the server chose.
pub async fn open_web_socket(
    client: &RestClient,
    target: &RestRequest,
    protocols: &[&str],
) -> Result<(WebSocketConnection, String), UpgradeFailure> {
    let key: Vec<u8> = (0..16).map(|_| fastrand::u8(..)).collect();
    let mut request = target.clone();
    request.method = Method::GET;
    request.headers = vec![
        ("Connection".into(), "Upgrade".into()),
        ("Upgrade".into(), "websocket".into()),
        ("Sec-WebSocket-Version".into(), "13".into()),
        ("Sec-WebSocket-Key".into(), STANDARD.encode(key)),
        ("Sec-WebSocket-Protocol".into(), protocols.join(",")),
    ];
    let (upgraded, headers) = switch_protocols(client, &request).await?;
    let chosen = header_text(&headers, "sec-websocket-protocol");
    let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
    Ok((WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config)).await, chosen))
}

/// Switches to SPDY/3.1; returns the connection and the protocol that the server chose.
pub async fn open_spdy(
    client: &RestClient,
    target: &RestRequest,
    protocols: &[&str],
) -> Result<(TokioIo<Upgraded>, String), UpgradeFailure> {
    let mut request = target.clone();
    request.method = Method::POST;
    request.headers = vec![("Connection".into(), "Upgrade".into()), ("Upgrade".into(), "SPDY/3.1".into())];
    request.headers.extend(protocols.iter().map(|name| ("X-Stream-Protocol-Version".into(), (*name).into())));
    let (upgraded, headers) = switch_protocols(client, &request).await?;
    Ok((upgraded, header_text(&headers, "x-stream-protocol-version")))
}

fn header_text(headers: &http::HeaderMap, name: &str) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

async fn switch_protocols(
    client: &RestClient,
    request: &RestRequest,
) -> Result<(TokioIo<Upgraded>, http::HeaderMap), UpgradeFailure> {
    let response = client.send_upgrade(request).await.map_err(UpgradeFailure::Broken)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let body = Limited::new(response.into_body(), MAX_ERROR).collect().await.map(|body| body.to_bytes());
        return Err(UpgradeFailure::Refused(refusal(&body.unwrap_or_default())));
    }
    let headers = response.headers().clone();
    let upgraded = hyper::upgrade::on(response).await;
    let upgraded = upgraded.map_err(|error| UpgradeFailure::Broken(CommandError::new(error.to_string())))?;
    Ok((TokioIo::new(upgraded), headers))
}

/// The error of an answer that refuses to switch protocols.
fn refusal(body: &[u8]) -> CommandError {
    let status = serde_json::from_slice::<api::Value>(body).ok();
    let status = status.filter(|status| status.get("kind").and_then(api::Value::as_str) == Some("Status"));
    let message = status.and_then(|status| status.get("message").and_then(api::Value::as_str).map(str::to_owned));
    let message = message.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned());
    CommandError::new(format!("unable to upgrade connection: {message}"))
}

/// Whether WebSocket is tried first; the environment can turn it off.
fn websocket_enabled(variable: &str) -> bool {
    !std::env::var(variable).is_ok_and(|value| value == "false")
}

/// Opens with WebSocket, or with SPDY if the server refuses that.
pub async fn with_fallback<T>(
    variable: &str,
    websocket: impl Future<Output = Result<T, UpgradeFailure>>,
    spdy: impl Future<Output = Result<T, UpgradeFailure>>,
) -> CommandResult<T> {
    if websocket_enabled(variable) {
        match websocket.await {
            Err(UpgradeFailure::Refused(_)) => {}
            outcome => return outcome.map_err(UpgradeFailure::into_error),
        }
    }
    spdy.await.map_err(UpgradeFailure::into_error)
}
