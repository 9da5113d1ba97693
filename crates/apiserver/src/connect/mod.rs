//! Connect requests: kubelets serve logs, exec, attach and port-forward; pods, services and nodes serve proxy.
//!
//! The pipeline calls [`handle_watch`] once a request is allowed. Streams are passed on byte for byte; only clients that speak a
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
pub use pod::node_kubelet;

use crate::Server;

/// Answers a request that [`is_streaming`](apiserver_core::request::is_streaming) is true for.
pub async fn handle_connect(
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
        admit_connect(server, &target).await?;
    }
    match target.subresource.as_str() {
        "log" => log::handle_log(server, &target, request).await,
        "exec" | "attach" => command::handle_command(server, &target, request).await,
        "portforward" => port_forward::handle_port_forward(server, &target, request).await,
        _ => proxy::handle_proxy(server, &target, request).await,
    }
}

/// Runs admission of a connect request; the object is its options.
async fn admit_connect(server: &Server, target: &ResourceRequest) -> Result<(), Status> {
    let attributes = admission::AdmissionAttributes::for_connect(&**server.registry(), target);
    let (group, version, kind) = attributes.group_version_kind();
    let mut options = options::options_object(&target.query, &target.subresource);
    options["apiVersion"] = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }.into();
    options["kind"] = kind.into();
    let admission = server.registry().admission();
    admission.admit(&attributes, &mut options).await?;
    admission.validate(&attributes, &options).await
}
