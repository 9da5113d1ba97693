//! SPDY/3.1 as Kubernetes' streaming protocols use it: frames, and the client's side of a connection with many streams.

mod connection;
pub mod frame;

pub use connection::{SpdyConnection, SpdyStream, SpdyStreamWriter};
