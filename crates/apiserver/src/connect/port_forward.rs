//! `pods/<name>/portforward`: forwards connections to ports of a pod.

use api::status::Status;
use apiserver_core::{Body, request::ResourceRequest};
use http::{Request, Response};
use streaming::{stream_tunnel, upgrade_proxy};

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
    if stream_tunnel::is_tunnel_request(request.headers()) {
        return stream_tunnel::tunnel_port_forward(&server.shared.stopping, &kubelet, &path, request).await;
    }
    upgrade_proxy::proxy_upgrade(&server.shared.stopping, &kubelet, &path, request).await
}
