//! Streaming protocols: SPDY, WebSocket, the translation between them, tunnels, and upgraded connections that are copied
//! byte for byte. The API server uses them for exec, attach, port-forward, logs and proxies.
//!
//! Invariant: no knowledge of pods, nodes or the registry; a stream has a backend, a client and a stop signal.

pub mod message_stream;
mod remote_command;
mod spdy;
pub mod stream_translator;
pub mod stream_tunnel;
pub mod upgrade_proxy;
pub mod websocket;

use api::status::Status;
pub use remote_command::RemoteCommandOptions;

/// 500 without a reason, as upstream reports a backend that cannot be reached.
pub fn backend_error(message: impl Into<String>) -> Status {
    Status::new(500, "", message.into())
}
