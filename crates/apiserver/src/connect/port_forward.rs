//! `pods/<name>/portforward`: forwards connections to ports of a pod.

use api::status::Status;
use apiserver_core::{Body, request::ResourceRequest};
use http::{Request, Response};
use streaming::{join, tunnel};

use super::{options, pod};
use crate::Server;

/// Handles a port-forward request.
pub async fn handle_port_forward(
    server: &Server,
    target: &ResourceRequest,
    request: Request<Body>,
) -> Result<Response<Body>, Status> {
    let query = options::kubelet_ports_query(&target.query)?;
    let pod = pod::read_pod(server, target).await?;
    let kubelet = pod::pod_kubelet(server, target, &pod).await?;
    let mut path = format!("/portForward/{}/{}", target.namespace, target.name);
    if !query.is_empty() {
        path = format!("{path}?{query}");
    }
    if tunnel::is_asked_for(request.headers()) {
        return tunnel::answer(&server.shared.stopping, &kubelet, &path, request).await;
    }
    join::upgrade(&server.shared.stopping, &kubelet, &path, request).await
}
