//! One malformed request: everything about it follows from a seed and its number.

use std::fmt;

use crate::{
    frames, http1,
    request::{self, Ask},
};

/// The bytes to send.
pub enum Case {
    /// A request that HTTP can carry, whatever is wrong with it, on a shared HTTP/2 connection.
    Request(Ask),
    /// Text on an HTTP/1.1 connection of its own.
    Text(Vec<u8>),
    /// Frames on an HTTP/2 connection of its own.
    Frames(Vec<u8>),
    /// Bytes instead of a TLS handshake.
    Bytes(Vec<u8>),
}

impl Case {
    /// The case of a number.
    pub fn of(seed: u64, index: u64) -> Self {
        let random = &mut fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index);
        match random.u8(..20) {
            0..13 => Self::Request(request::ask(random)),
            13 => Self::Text(http1::text(&request::ask(random))),
            14..17 => Self::Text(http1::malformed(random)),
            17..19 => Self::Frames(frames::malformed(random)),
            _ => Self::Bytes(bytes(random)),
        }
    }

    /// Whether upstream answers it with a 500 too: an item at a revision that is no number, an applied object that is not of
    /// its type, a binding of nothing.
    pub fn may_fail(&self) -> bool {
        let bytes = match self {
            Case::Request(ask) => &http1::text(ask),
            Case::Text(bytes) | Case::Frames(bytes) | Case::Bytes(bytes) => bytes,
        };
        let text = String::from_utf8_lossy(bytes);
        let asks = |what: &str| text.contains(what);
        (asks("GET /api/v1/namespaces/default/configmaps/m?") && asks("resourceVersion="))
            || (asks("PATCH ") && asks("application/apply-patch+yaml"))
            || asks("POST /api/v1/namespaces/default/bindings")
    }

    /// The family of the case.
    pub fn family(&self) -> &'static str {
        match self {
            Case::Request(_) => "request",
            Case::Text(_) => "text",
            Case::Frames(_) => "frames",
            Case::Bytes(_) => "bytes",
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Case::Request(ask) => ask.fmt(f),
            Case::Text(bytes) | Case::Frames(bytes) | Case::Bytes(bytes) => {
                write!(f, "{} {} bytes: {}", self.family(), bytes.len(), bytes[..bytes.len().min(300)].escape_ascii())
            }
        }
    }
}

/// Something else than TLS, or its beginning.
fn bytes(random: &mut fastrand::Rng) -> Vec<u8> {
    let noise: Vec<u8> = (0..random.usize(..2000)).map(|_| random.u8(..)).collect();
    match random.u8(..6) {
        0 => Vec::new(),
        1 => b"GET /api HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        2 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        // The head of a handshake record of a length that never comes, or comes as noise.
        3 => [&[22, 3, 1, random.u8(..), random.u8(..)], &*noise].concat(),
        4 => [&[random.u8(20..25), 3, 3, 0, 2], &*noise].concat(),
        _ => noise,
    }
}
