//! The grpc handler: `grpc.health.v1.Health/Check` over plain text, with upstream's messages.

use std::time::Duration;

use http::uri::PathAndQuery;
use k8s_openapi::api::core::v1::GRPCAction;
use tonic::{Code, client::Grpc, transport::Endpoint};

use super::{HandlerError, HandlerTarget, bracket_ipv6};
use crate::backoff::format_go_duration;

/// `ServingStatus.SERVING`.
const SERVING: i32 = 1;

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// A health check failed.
#[derive(Debug, thiserror::Error)]
pub enum HealthCheckError {
    /// The connection was not made in time.
    #[error("timeout: failed to connect service {address:?} within {}: context deadline exceeded", format_go_duration(*.timeout))]
    ConnectTimeout {
        /// Host and port.
        address: String,
        /// The timeout.
        timeout: Duration,
    },
    /// The connection was refused or broken.
    #[error("error: failed to connect service at {address:?}: {message}")]
    Connect {
        /// Host and port.
        address: String,
        /// The cause.
        message: String,
    },
    /// The server lacks the health service.
    #[error("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {0}")]
    Unimplemented(String),
    /// The call took too long.
    #[error("timeout: health rpc did not complete within {}", format_go_duration(*.0))]
    CallTimeout(Duration),
    /// The call failed.
    #[error("error: health rpc probe failed: rpc error: code = {:?} desc = {}", .0.code(), .0.message())]
    Call(Box<tonic::Status>),
    /// The service is not serving.
    #[error("service unhealthy (responded with {0:?})")]
    Unhealthy(&'static str),
}

impl HandlerTarget<'_> {
    /// Asks the container's health service.
    pub async fn check_grpc(&self, action: &GRPCAction) -> Result<(), HandlerError> {
        let port = u16::try_from(action.port).map_err(|_| HandlerError::PortNumber(action.port.into()))?;
        let address = format!("{}:{port}", bracket_ipv6(self.ip));
        let service = action.service.clone().unwrap_or_default();
        Ok(check_health(address, service, self.timeout).await?)
    }
}

async fn check_health(address: String, service: String, timeout: Duration) -> Result<(), HealthCheckError> {
    let deadline = tokio::time::Instant::now() + timeout;
    let broken = |address: &str, error: tonic::transport::Error| {
        let message = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        HealthCheckError::Connect { address: address.into(), message }
    };
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| broken(&address, error))?;
    let endpoint = endpoint.user_agent("kube-probe/1.36").map_err(|error| broken(&address, error))?;
    let channel = match tokio::time::timeout_at(deadline, endpoint.connect()).await {
        Ok(Ok(channel)) => channel,
        Ok(Err(error)) => return Err(broken(&address, error)),
        Err(_) => return Err(HealthCheckError::ConnectTimeout { address, timeout }),
    };
    let call = call_check(Grpc::new(channel), HealthCheckRequest { service });
    let response = match tokio::time::timeout_at(deadline, call).await {
        Ok(Ok(response)) => response,
        Ok(Err(status)) => return Err(call_error(status, timeout)),
        Err(_) => return Err(HealthCheckError::CallTimeout(timeout)),
    };
    match response.status {
        SERVING => Ok(()),
        2 => Err(HealthCheckError::Unhealthy("NOT_SERVING")),
        3 => Err(HealthCheckError::Unhealthy("SERVICE_UNKNOWN")),
        _ => Err(HealthCheckError::Unhealthy("UNKNOWN")),
    }
}

async fn call_check(
    mut client: Grpc<tonic::transport::Channel>,
    request: HealthCheckRequest,
) -> Result<HealthCheckResponse, tonic::Status> {
    client.ready().await.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let codec = tonic_prost::ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    Ok(client.unary(tonic::Request::new(request), path, codec).await?.into_inner())
}

fn call_error(status: tonic::Status, timeout: Duration) -> HealthCheckError {
    match status.code() {
        Code::Unimplemented => HealthCheckError::Unimplemented(status.message().into()),
        Code::DeadlineExceeded => HealthCheckError::CallTimeout(timeout),
        _ => HealthCheckError::Call(Box::new(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn refused_and_silent_servers_fail() {
        let refused = check_health("127.0.0.1:1".into(), String::new(), Duration::from_secs(5)).await.unwrap_err();
        assert!(refused.to_string().starts_with("error: failed to connect service at \"127.0.0.1:1\": "), "{refused}");
        // Accepts connections and never answers.
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let error = check_health(address, String::new(), Duration::from_millis(200)).await.unwrap_err();
        assert!(error.to_string().starts_with("timeout: "), "{error}");
    }
}
