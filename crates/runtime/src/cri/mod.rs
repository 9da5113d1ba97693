//! A client for the Container Runtime Interface, version 1, over a unix socket.
//!
//! The connection is made at the first call and again whenever the runtime was restarted. Every call has a deadline, and
//! every error says which call failed and keeps the runtime's status.

use std::{future::Future, time::Duration};

use tonic::transport::{Channel, Endpoint};

mod changes;
mod containers;
mod events;
mod images;
mod sandboxes;
mod stats;
pub mod types;

pub use changes::Change;

/// The deadline of calls that do no long work.
const CALL: Duration = Duration::from_secs(120);
/// Lists of a node full of containers are larger than tonic's default of 4 MiB.
const MAX_MESSAGE: usize = 16 << 20;

/// A handle to one container runtime. Cheap to clone.
#[derive(Clone)]
pub struct Cri {
    endpoint: String,
    channel: Channel,
}

/// Why a call to the runtime failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The endpoint is not a unix socket's URL.
    #[error("{endpoint:?} is not a CRI endpoint of the form unix:///path")]
    Endpoint {
        /// What was given.
        endpoint: String,
    },
    /// The runtime answered with an error, or could not be reached.
    #[error("{method}: rpc error: code = {:?} desc = {}", .status.code(), .status.message())]
    Call {
        /// The CRI method.
        method: &'static str,
        /// The gRPC status, as it came.
        status: Box<tonic::Status>,
    },
    /// The runtime did not answer in time.
    #[error("{method}: no answer within {after:?}")]
    Deadline {
        /// The CRI method.
        method: &'static str,
        /// The deadline.
        after: Duration,
    },
    /// The answer lacks a field that must be there.
    #[error("{method}: the answer has no {field}")]
    Incomplete {
        /// The CRI method.
        method: &'static str,
        /// The missing field.
        field: &'static str,
    },
}

impl Error {
    /// The gRPC code, if the runtime gave one.
    pub fn code(&self) -> Option<tonic::Code> {
        match self {
            Error::Call { status, .. } => Some(status.code()),
            _ => None,
        }
    }

    /// Whether the runtime does not know the object.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(tonic::Code::NotFound)
    }

    /// The runtime's own words, with the code as users know it from `kubectl describe`.
    pub fn message(&self) -> String {
        match self {
            Error::Call { status, .. } => {
                format!("rpc error: code = {:?} desc = {}", status.code(), status.message())
            }
            other => other.to_string(),
        }
    }
}

/// The conditions that a runtime reports about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// `None` when the runtime is ready, or why it is not.
    pub runtime: Option<String>,
    /// `None` when the pod network is ready, or why it is not.
    pub network: Option<String>,
}

impl Cri {
    /// A client for the runtime at `endpoint` (`unix:///…`); fails if it does not answer `Version`.
    pub async fn connect(endpoint: &str) -> Result<Self, Error> {
        let cri = Self::lazy(endpoint)?;
        cri.version().await?;
        Ok(cri)
    }

    /// A client that connects at its first call.
    pub fn lazy(endpoint: &str) -> Result<Self, Error> {
        let wrong = || Error::Endpoint { endpoint: endpoint.into() };
        if !endpoint.starts_with("unix:///") {
            return Err(wrong());
        }
        let channel = Endpoint::from_shared(endpoint.to_string()).map_err(|_| wrong())?.connect_lazy();
        Ok(Self { endpoint: endpoint.into(), channel })
    }

    /// The endpoint that this client was made for.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The runtime's name and version.
    pub async fn version(&self) -> Result<types::VersionResponse, Error> {
        let request = types::VersionRequest { version: "v1".into() };
        within("Version", CALL, async move { self.runtime().version(request).await }).await
    }

    /// Whether the runtime and its network are ready.
    pub async fn readiness(&self) -> Result<Readiness, Error> {
        let request = types::StatusRequest { verbose: false };
        let answer = within("Status", CALL, async move { self.runtime().status(request).await }).await?;
        let conditions = answer.status.map(|status| status.conditions).unwrap_or_default();
        let state = |name: &str| match conditions.iter().find(|condition| condition.r#type == name) {
            Some(condition) if condition.status => None,
            Some(condition) => Some(format!(
                "{name}=false reason:{} message:{}",
                condition.reason,
                condition.message.replace('\n', " ")
            )),
            None => Some(format!("{name} was not reported by the runtime")),
        };
        Ok(Readiness { runtime: state("RuntimeReady"), network: state("NetworkReady") })
    }

    fn runtime(&self) -> types::RuntimeServiceClient {
        types::RuntimeServiceClient::new(self.channel.clone(), MAX_MESSAGE)
    }

    fn images(&self) -> types::ImageServiceClient {
        types::ImageServiceClient::new(self.channel.clone(), MAX_MESSAGE)
    }
}

/// Runs one call with a deadline and names it in the error.
async fn within<T>(
    method: &'static str,
    after: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, Error> {
    match tokio::time::timeout(after, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(Error::Call { method, status: Box::new(status) }),
        Err(_) => Err(Error::Deadline { method, after }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn endpoints_are_unix_sockets() {
        assert!(matches!(Cri::lazy("tcp://127.0.0.1:1"), Err(Error::Endpoint { .. })));
        let error = Cri::connect("unix:///nonexistent/cri.sock").await.err().unwrap();
        assert!(matches!(error, Error::Call { method: "Version", .. }), "{error}");
    }
}
