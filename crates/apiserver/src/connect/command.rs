//! `pods/<name>/exec` and `attach`: streams to a command or the main process of a container.

use api::status::Status;
use apiserver_core::{Body, request::ResourceRequest};
use http::{Request, Response};
use streaming::{RemoteCommandOptions, stream_translator, upgrade_proxy, websocket};

use super::pod;
use crate::Server;

/// The WebSocket protocol with a close signal, which container runtimes do not implement.
const CLOSABLE: &str = "v5.channel.k8s.io";

/// Handles exec and attach.
pub async fn handle_command(
    server: &Server,
    target: &ResourceRequest,
    request: Request<Body>,
) -> Result<Response<Body>, Status> {
    let pod = pod::read_pod(server, target).await?;
    let container = pod::find_container(target, &pod)?;
    let kubelet = pod::pod_kubelet(server, target, &pod).await?;
    let streams = RemoteCommandOptions::from_query(&target.query);
    let exec = target.subresource == "exec";
    let command = target.query.get_all("command").filter(|_| exec);
    let path = format!("/{}/{}/{}/{container}", target.subresource, target.namespace, target.name);
    let path = format!("{path}?{}", streams.kubelet_query(command));
    if websocket::offers_protocol(request.headers(), |protocol| protocol == CLOSABLE) {
        return stream_translator::translate_stream(&server.shared.stopping, kubelet, &path, streams, request);
    }
    upgrade_proxy::proxy_upgrade(&server.shared.stopping, &kubelet, &path, request).await
}
