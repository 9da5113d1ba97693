//! Requests that a kubelet answers, passed on to the kubelet of the pod's node: logs, exec and attach.
//!
//! An upgrade (exec, attach) is passed on byte for byte in both directions once the kubelet has agreed to it.

use std::sync::Arc;

use api::{
    Value, meta,
    schema::{Resource, schema},
    status::Status,
};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{Body, BodyError, Server, pipeline::full, request::Target};

/// The longest refusal of a kubelet that is passed on.
const MAX_REFUSAL: usize = 4096;

/// Whether a subresource is a kubelet's to answer.
pub fn answers(subresource: &str) -> bool {
    matches!(subresource, "log" | "exec" | "attach")
}

/// Answers `pods/<name>/log`, `exec` and `attach`.
pub async fn answer(server: &Server, target: &Target, request: Request<Body>) -> Result<Response<Body>, Status> {
    let (pod, _) = server.shared.registry.read_object(target.resource, &target.namespace, &target.name).await?;
    let container = container(target, &pod)?;
    let node = meta::text(&pod, &["spec", "nodeName"]);
    if node.is_empty() {
        return Err(Status::bad_request(format!("pod {} does not have a host assigned", target.name)));
    }
    let (host, port) = kubelet(server, node).await?;
    let path = match target.subresource.as_str() {
        "log" => format!("/containerLogs/{}/{}/{container}", target.namespace, target.name),
        stream => format!("/{stream}/{}/{}/{container}", target.namespace, target.name),
    };
    let uri = match target.query.raw() {
        "" => path,
        query => format!("{path}?{query}"),
    };
    let connection = connect(server.shared.kubelet_tls.clone(), &host, port).await?;
    pass(connection, request, &uri).await
}

/// The container that the request names, or the only one.
fn container(target: &Target, pod: &Value) -> Result<String, Status> {
    let names: Vec<&str> = ["containers", "initContainers", "ephemeralContainers"]
        .iter()
        .flat_map(|list| meta::list(pod, &["spec", list]))
        .map(|container| meta::text(container, &["name"]))
        .collect();
    let pod = &target.name;
    match target.query.get("container") {
        Some(name) if names.contains(&name) => Ok(name.to_owned()),
        Some(name) => Err(Status::bad_request(format!("container {name} is not valid for pod {pod}"))),
        None => match names.as_slice() {
            [only] => Ok((*only).to_owned()),
            many => Err(Status::bad_request(format!(
                "a container name must be specified for pod {pod}, choose one of: [{}]",
                many.join(" ")
            ))),
        },
    }
}

async fn kubelet(server: &Server, node: &str) -> Result<(String, u16), Status> {
    let nodes: &Resource =
        schema().resource("", "v1", "nodes").ok_or_else(|| Status::internal("the schema lacks nodes"))?;
    let (node, _) = server.shared.registry.read_object(nodes, "", node).await?;
    let addresses = meta::list(&node, &["status", "addresses"]);
    let of = |kind: &str| addresses.iter().find(|address| address["type"] == kind).map(|a| meta::text(a, &["address"]));
    let port = meta::number(&node, &["status", "daemonEndpoints", "kubeletEndpoint", "Port"]);
    match (of("InternalIP").or(of("Hostname")), u16::try_from(port)) {
        (Some(host), Ok(port)) if port > 0 => Ok((host.to_owned(), port)),
        _ => Err(Status::unavailable(format!("node {} has not told where its kubelet listens", meta::name(&node)))),
    }
}

type Sender = hyper::client::conn::http1::SendRequest<Body>;

async fn connect(tls: Arc<rustls::ClientConfig>, host: &str, port: u16) -> Result<Sender, Status> {
    let away = |error: &dyn std::fmt::Display| {
        Status::unavailable(format!("the kubelet at {host}:{port} does not answer: {error}"))
    };
    let stream = TcpStream::connect((host, port)).await.map_err(|error| away(&error))?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| away(&error))?;
    let stream = TlsConnector::from(tls).connect(name, stream).await.map_err(|error| away(&error))?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(|error| away(&error))?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "connection to a kubelet ended");
        }
    });
    Ok(sender)
}

/// Sends the request on and brings the answer back, joining both connections when they are upgraded.
async fn pass(mut kubelet: Sender, mut request: Request<Body>, uri: &str) -> Result<Response<Body>, Status> {
    let client = hyper::upgrade::on(&mut request);
    let mut passed = Request::builder().method(Method::GET).uri(uri).header(header::HOST, "kubelet");
    if request.headers().contains_key(header::UPGRADE) {
        for (name, value) in request.headers().iter().filter(|(name, _)| is_handshake(name)) {
            passed = passed.header(name, value);
        }
    }
    let passed = passed
        .body(full(""))
        .map_err(|error| Status::bad_request(format!("the request cannot be passed on: {error}")))?;
    let mut answer =
        kubelet.send_request(passed).await.map_err(|error| Status::unavailable(format!("the kubelet: {error}")))?;
    if answer.status().is_client_error() || answer.status().is_server_error() {
        return Err(refused(answer).await);
    }
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(answer.map(|body| body.map_err(BodyError::new).boxed_unsync()));
    }
    let kubelet = hyper::upgrade::on(&mut answer);
    tokio::spawn(async move {
        match tokio::try_join!(client, kubelet) {
            Ok((client, kubelet)) => {
                let (mut client, mut kubelet) = (TokioIo::new(client), TokioIo::new(kubelet));
                // Either side may just go away: that ends the stream, and is no fault.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut kubelet).await;
            }
            Err(error) => tracing::debug!(%error, "an upgrade failed"),
        }
    });
    Ok(answer.map(|_| full("")))
}

/// A kubelet says in plain text what is wrong; clients expect a `Status`.
async fn refused(answer: Response<hyper::body::Incoming>) -> Status {
    let code = answer.status().as_u16();
    let text = match Limited::new(answer.into_body(), MAX_REFUSAL).collect().await {
        Ok(body) => String::from_utf8_lossy(&body.to_bytes()).trim().to_owned(),
        Err(error) => format!("the kubelet refused and its answer broke off: {error}"),
    };
    Status::of_code(code, text)
}

fn is_handshake(name: &http::HeaderName) -> bool {
    *name == header::CONNECTION || *name == header::UPGRADE || name.as_str().starts_with("sec-websocket-")
}
