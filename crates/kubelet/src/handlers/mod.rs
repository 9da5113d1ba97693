//! Handlers shared by probes and lifecycle hooks: exec, httpGet, tcpSocket, grpc.
//!
//! An error is either a failure of the container ([`HandlerError::is_failure`]) or one of the node, which says nothing
//! about the container.

mod grpc;
mod http_get;

use std::{io, net::IpAddr, time::Duration};

use k8s_openapi::{
    api::core::v1::{Container, ExecAction, TCPSocketAction},
    apimachinery::pkg::util::intstr::IntOrString,
};
use runtime::cri::CriError;
use tokio::net::TcpStream;

use crate::{backoff::format_go_duration, context::KubeletContext};

/// Maximum number of bytes read of a response or of a command's output.
const MAX_OUTPUT: usize = 10 << 10;

/// A handler failed; shown in events and probe results.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// The command exited with a non-zero code.
    #[error("{output}")]
    Command {
        /// The exit code.
        code: i32,
        /// Output of the command.
        output: String,
    },
    /// The command exceeded its timeout.
    #[error("command timed out: {command:?} timed out after {}", format_go_duration(*.timeout))]
    CommandTimeout {
        /// The command line.
        command: String,
        /// The timeout.
        timeout: Duration,
    },
    /// The container runtime returned an error.
    #[error("{}", .0.message())]
    Runtime(#[from] CriError),
    /// A hook exceeded the grace period.
    #[error("timed out")]
    GracePeriod,
    /// A hook has no action, or one that hooks do not support.
    #[error("invalid handler")]
    InvalidHandler,
    /// The port is not the name of a container port.
    #[error("couldn't find port: {0}")]
    PortName(String),
    /// The port is out of range.
    #[error("invalid port number: {0}")]
    PortNumber(i64),
    /// The TCP connection failed.
    #[error("{0}")]
    Dial(#[from] DialError),
    /// The HTTP request failed.
    #[error("Get {url:?}: {source}")]
    Http {
        /// The requested URL.
        url: String,
        /// The cause.
        source: http_get::HttpGetError,
    },
    /// The response has an error status.
    #[error("HTTP probe failed with statuscode: {0}")]
    Status(u16),
    /// The gRPC health check failed.
    #[error("{0}")]
    Grpc(#[from] grpc::HealthCheckError),
}

impl HandlerError {
    /// Whether the container failed. Other errors are the node's: they say nothing about the container.
    pub fn is_failure(&self) -> bool {
        !matches!(self, Self::Runtime(_) | Self::PortName(_) | Self::PortNumber(_) | Self::InvalidHandler)
    }
}

/// A TCP connection could not be opened, in the words of Go's dialer.
#[derive(Debug, thiserror::Error)]
#[error("dial tcp {host}:{port}: {}", dial_cause(.source))]
pub struct DialError {
    /// The host.
    host: String,
    /// The port.
    port: u16,
    /// The I/O error.
    source: io::Error,
}

/// Formats the cause of a failed dial as Go does.
fn dial_cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => "i/o timeout".into(),
        io::ErrorKind::ConnectionRefused => "connect: connection refused".into(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".into(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".into(),
        _ => error.to_string(),
    }
}

/// The outcome of a handler that did not fail.
#[derive(Debug, PartialEq, Eq)]
pub enum HandlerSuccess {
    /// The container is healthy.
    Healthy,
    /// The container answered with something unexpected, which counts as success.
    Warning(String),
}

/// The target of a handler.
pub struct HandlerTarget<'a> {
    /// The kubelet's shared state.
    pub kubelet: &'a KubeletContext,
    /// The container's spec.
    pub container: &'a Container,
    /// The container's id.
    pub id: &'a str,
    /// The pod's IP.
    pub ip: &'a str,
    /// Timeout of the action.
    pub timeout: Duration,
}

impl HandlerTarget<'_> {
    /// Runs a command in the container.
    pub async fn run_exec(&self, action: &ExecAction) -> Result<(), HandlerError> {
        let command = action.command.clone().unwrap_or_default();
        match self.kubelet.cri.exec_sync(self.id, command.clone(), self.timeout).await {
            Ok(response) if response.exit_code == 0 => Ok(()),
            Ok(response) => {
                let output = [response.stdout, response.stderr].concat();
                let output = String::from_utf8_lossy(&output[..output.len().min(MAX_OUTPUT)]).into_owned();
                Err(HandlerError::Command { code: response.exit_code, output })
            }
            Err(error) if error.is_deadline_exceeded() => {
                Err(HandlerError::CommandTimeout { command: command.join(" "), timeout: self.timeout })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Opens and closes a TCP connection.
    pub async fn check_tcp(&self, action: &TCPSocketAction) -> Result<(), HandlerError> {
        let host = self.host_or_pod_ip(action.host.as_deref());
        let port = self.resolve_port(&action.port)?;
        Ok(dial(host, port, self.timeout).await.map(drop)?)
    }

    /// Returns the host of an action; an empty one is the pod's IP.
    fn host_or_pod_ip<'a>(&'a self, host: Option<&'a str>) -> &'a str {
        host.filter(|host| !host.is_empty()).unwrap_or(self.ip)
    }

    fn resolve_port(&self, port: &IntOrString) -> Result<u16, HandlerError> {
        let number = match port {
            IntOrString::Int(number) => i64::from(*number),
            IntOrString::String(name) => {
                let mut ports = self.container.ports.iter().flatten();
                let named = ports.find(|port| port.name.as_ref() == Some(name)).map(|port| port.container_port.into());
                let number = named.or_else(|| name.parse().ok());
                number.ok_or_else(|| HandlerError::PortName(name.clone()))?
            }
        };
        u16::try_from(number).ok().filter(|port| *port > 0).ok_or(HandlerError::PortNumber(number))
    }
}

/// Opens a TCP connection. It is closed with a reset, so that frequent probes leave no sockets in TIME_WAIT.
async fn dial(host: &str, port: u16, timeout: Duration) -> Result<TcpStream, DialError> {
    let failed = |source| DialError { host: bracket_ipv6(host), port, source };
    let connected = tokio::time::timeout(timeout, TcpStream::connect((host, port))).await;
    let stream = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(failed)?;
    // Best effort, as closing is.
    let _ = stream.set_zero_linger();
    Ok(stream)
}

/// Puts an IPv6 address in brackets.
fn bracket_ipv6(host: &str) -> String {
    if host.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()) { format!("[{host}]") } else { host.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn errors_of_the_node_are_not_failures_of_the_container() {
        let (kubelet, container) = (KubeletContext::unreachable(), Container::default());
        let target = HandlerTarget {
            kubelet: &kubelet,
            container: &container,
            id: "c",
            ip: "127.0.0.1",
            timeout: Duration::from_secs(1),
        };
        let exec = target.run_exec(&ExecAction { command: Some(vec!["true".into()]) }).await.unwrap_err();
        assert!(!exec.is_failure(), "{exec}");
        let tcp = |port| TCPSocketAction { host: None, port };
        let unnamed = target.check_tcp(&tcp(IntOrString::String("web".into()))).await.unwrap_err();
        assert_eq!((unnamed.to_string().as_str(), unnamed.is_failure()), ("couldn't find port: web", false));
        let refused = target.check_tcp(&tcp(IntOrString::Int(1))).await.unwrap_err();
        assert_eq!(refused.to_string(), "dial tcp 127.0.0.1:1: connect: connection refused");
        assert!(refused.is_failure());
    }
}
