//! Requests that somebody else answers: kubelets (logs, exec, attach, port-forward) and whatever runs in pods and on nodes
//! (proxy).
//!
//! The pipeline calls [`answer`] once a request is allowed. Streams are passed on byte for byte; only clients that speak a
//! newer protocol than kubelets do (WebSocket with a close signal, tunnels) are translated to SPDY.

mod command;
mod log;
mod options;
mod pod;
mod port_forward;
mod proxy;

use api::status::Status;
use apiserver_core::{Body, Caller, attributes::RequestAttributes, request::ResourceRequest};
use http::{Request, Response};
pub use pod::kubelet_of;

use crate::Server;

/// Answers a request that [`is_streaming`](apiserver_core::request::is_streaming) is true for.
pub async fn answer(
    server: &Server,
    caller: &Caller,
    mut target: ResourceRequest,
    request: Request<Body>,
) -> Result<Response<Body>, Status> {
    if matches!(target.subresource.as_str(), "exec" | "attach" | "portforward") {
        // WebSocket begins with a GET, but a stream is not just read.
        target.verb = "create";
        server
            .authorizers()
            .authorize_request(caller.user(), &RequestAttributes::from_resource_request(&target))
            .await?;
    }
    if target.subresource != "log" {
        admit(server, &target).await?;
    }
    match target.subresource.as_str() {
        "log" => log::answer(server, &target, request).await,
        "exec" | "attach" => command::answer(server, &target, request).await,
        "portforward" => port_forward::answer(server, &target, request).await,
        _ => proxy::answer(server, &target, request).await,
    }
}

/// Asks admission about a stream. What it is asked about are the options of the request.
async fn admit(server: &Server, target: &ResourceRequest) -> Result<(), Status> {
    let attributes = admission::AdmissionAttributes::connect(&**server.registry(), target);
    let (group, version, kind) = attributes.kind();
    let mut options = options::object(&target.query, &target.subresource);
    options["apiVersion"] = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }.into();
    options["kind"] = kind.into();
    let admission = server.registry().admission();
    admission.admit(&attributes, &mut options).await?;
    admission.validate(&attributes, &options).await
}
