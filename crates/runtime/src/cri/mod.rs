//! A CRI v1 client over a unix socket.
//!
//! It connects at the first call and reconnects after a restart of the runtime. Every call has a deadline; every error
//! names the call and keeps the gRPC status.

use std::{future::Future, time::Duration};

use tonic::transport::{Channel, Endpoint};

mod containerd_events;
mod containers;
mod images;
mod pleg;
mod runtime_event;
mod sandboxes;
mod stats;
pub mod types;

pub use runtime_event::RuntimeEvent;

/// Default deadline of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum message size; lists on a full node exceed tonic's default of 4 MiB.
const MAX_MESSAGE_SIZE: usize = 16 << 20;

/// A client of one container runtime. Cheap to clone.
#[derive(Clone)]
pub struct CriClient {
    endpoint: String,
    channel: Channel,
}

/// A CRI call failed.
#[derive(Debug, thiserror::Error)]
pub enum CriError {
    /// The endpoint is not a unix socket's URL.
    #[error("{endpoint:?} is not a CRI endpoint of the form unix:///path")]
    Endpoint {
        /// The given endpoint.
        endpoint: String,
    },
    /// The runtime returned an error or is unreachable.
    #[error("{method}: rpc error: code = {:?} desc = {}", .status.code(), .status.message())]
    Call {
        /// The CRI method.
        method: &'static str,
        /// The gRPC status.
        status: Box<tonic::Status>,
    },
    /// The call exceeded its deadline.
    #[error("{method}: no answer within {after:?}")]
    Deadline {
        /// The CRI method.
        method: &'static str,
        /// The deadline.
        after: Duration,
    },
    /// The response lacks a required field.
    #[error("{method}: the answer has no {field}")]
    Incomplete {
        /// The CRI method.
        method: &'static str,
        /// The missing field.
        field: &'static str,
    },
}

impl CriError {
    /// Returns the gRPC code, if any.
    pub fn code(&self) -> Option<tonic::Code> {
        match self {
            CriError::Call { status, .. } => Some(status.code()),
            _ => None,
        }
    }

    /// Whether the code is `NotFound`.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(tonic::Code::NotFound)
    }

    /// Whether the runtime or the client gave up waiting.
    pub fn is_deadline_exceeded(&self) -> bool {
        matches!(self, CriError::Deadline { .. }) || self.code() == Some(tonic::Code::DeadlineExceeded)
    }

    /// Formats the gRPC error as shown by `kubectl describe`.
    pub fn message(&self) -> String {
        match self {
            CriError::Call { status, .. } => {
                format!("rpc error: code = {:?} desc = {}", status.code(), status.message())
            }
            other => other.to_string(),
        }
    }
}

/// Readiness conditions of a runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeReadiness {
    /// Reason why the runtime is not ready; `None` if it is.
    pub runtime: Option<String>,
    /// Reason why the pod network is not ready; `None` if it is.
    pub network: Option<String>,
    /// The runtime's handlers with their features.
    pub handlers: Vec<types::RuntimeHandler>,
    /// Features of the runtime as a whole.
    pub features: Option<types::RuntimeFeatures>,
}

impl CriClient {
    /// Connects to `endpoint` (`unix:///…`) and checks `Version`.
    pub async fn connect(endpoint: &str) -> Result<Self, CriError> {
        let cri = Self::connect_lazily(endpoint)?;
        cri.fetch_version().await?;
        Ok(cri)
    }

    /// Returns a client that connects at its first call.
    pub fn connect_lazily(endpoint: &str) -> Result<Self, CriError> {
        let wrong = || CriError::Endpoint { endpoint: endpoint.into() };
        if !endpoint.starts_with("unix:///") {
            return Err(wrong());
        }
        let channel = Endpoint::from_shared(endpoint.to_string()).map_err(|_| wrong())?.connect_lazy();
        Ok(Self { endpoint: endpoint.into(), channel })
    }

    /// Returns the endpoint.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Returns the runtime's name and version.
    pub async fn fetch_version(&self) -> Result<types::VersionResponse, CriError> {
        let request = types::VersionRequest { version: "v1".into() };
        call_with_deadline("Version", CALL_TIMEOUT, async move { self.runtime_service().version(request).await }).await
    }

    /// Returns the readiness of the runtime and its network.
    pub async fn fetch_readiness(&self) -> Result<RuntimeReadiness, CriError> {
        let request = types::StatusRequest { verbose: false };
        let response =
            call_with_deadline("Status", CALL_TIMEOUT, async move { self.runtime_service().status(request).await })
                .await?;
        let conditions = response.status.map(|status| status.conditions).unwrap_or_default();
        let state = |name: &str| match conditions.iter().find(|condition| condition.r#type == name) {
            Some(condition) if condition.status => None,
            Some(condition) => Some(format!(
                "{name}=false reason:{} message:{}",
                condition.reason,
                condition.message.replace('\n', " ")
            )),
            None => Some(format!("{name} was not reported by the runtime")),
        };
        Ok(RuntimeReadiness {
            runtime: state("RuntimeReady"),
            network: state("NetworkReady"),
            handlers: response.runtime_handlers,
            features: response.features,
        })
    }

    fn runtime_service(&self) -> types::RuntimeServiceClient {
        types::RuntimeServiceClient::new(self.channel.clone(), MAX_MESSAGE_SIZE)
    }

    fn image_service(&self) -> types::ImageServiceClient {
        types::ImageServiceClient::new(self.channel.clone(), MAX_MESSAGE_SIZE)
    }
}

/// Runs a call with a deadline and names it in errors.
async fn call_with_deadline<T>(
    method: &'static str,
    after: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, CriError> {
    match tokio::time::timeout(after, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(CriError::Call { method, status: Box::new(status) }),
        Err(_) => Err(CriError::Deadline { method, after }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn endpoint_must_be_a_unix_socket() {
        assert!(matches!(CriClient::connect_lazily("tcp://127.0.0.1:1"), Err(CriError::Endpoint { .. })));
        let error = CriClient::connect("unix:///nonexistent/cri.sock").await.err().unwrap();
        assert!(matches!(error, CriError::Call { method: "Version", .. }), "{error}");
    }
}
