//! The server's side of WebSocket handshakes.

use api::status::Status;
use apiserver_core::{Body, body::full_body};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

use crate::upgrade_proxy;

/// Largest client message; upstream's value.
const MAX_MESSAGE: usize = 32 << 20;

/// A WebSocket connection.
pub type WebSocketConnection = WebSocketStream<TokioIo<Upgraded>>;

/// The subprotocols that a client offers, in its order.
pub fn offered_protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Whether a request is a WebSocket handshake with a subprotocol that `wanted` accepts.
pub fn offers_protocol(headers: &HeaderMap, wanted: impl Fn(&str) -> bool) -> bool {
    is_handshake(headers) && offered_protocols(headers).any(wanted)
}

/// Whether a request is a WebSocket handshake.
pub fn is_handshake(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    upgrade.eq_ignore_ascii_case("websocket") && upgrade_proxy::is_upgrade_request(headers)
}

/// Accepts a handshake; returns the response and the future connection.
pub fn accept_handshake(request: &mut Request<Body>, protocol: &str) -> Result<(Response<Body>, OnUpgrade), Status> {
    let get = |name| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let key = get(header::SEC_WEBSOCKET_KEY).to_owned();
    if key.is_empty() || get(header::SEC_WEBSOCKET_VERSION) != "13" {
        return Err(Status::bad_request("websocket: a key and version 13 are required"));
    }
    let value = |text: &str| {
        HeaderValue::from_str(text).map_err(|_| Status::bad_request(format!("websocket: {text:?} is no protocol")))
    };
    let mut response = Response::new(full_body(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, value(&derive_accept_key(key.as_bytes()))?);
    if !protocol.is_empty() {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, value(protocol)?);
    }
    Ok((response, hyper::upgrade::on(request)))
}

/// Starts WebSocket on an upgraded connection.
pub async fn open_web_socket(upgraded: Upgraded) -> WebSocketConnection {
    let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
    WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await
}
