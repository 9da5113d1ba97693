//! The transport protocols of services and policies.

use serde::Serialize;

/// A transport protocol of services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) enum ServiceProtocol {
    Tcp,
    Udp,
    Sctp,
}

impl ServiceProtocol {
    /// Parses the API's name; absent means TCP.
    pub fn parse(name: Option<&str>) -> Option<Self> {
        match name {
            None | Some("TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some("SCTP") => Some(Self::Sctp),
            Some(_) => None,
        }
    }

    /// The number in IP headers.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }
}
