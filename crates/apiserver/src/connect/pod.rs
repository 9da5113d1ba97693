//! The pod, container and kubelet of a connect request.

use api::{Value, meta, status::Status};
use apiserver_core::{backend::Backend, loopback, request::ResourceRequest};
use streaming::backend_error;

use crate::Server;

/// Node address types in order of preference.
const ADDRESSES: &[&str] = &["InternalIP", "Hostname", "InternalDNS", "ExternalDNS", "ExternalIP"];
/// The default kubelet port.
const KUBELET_PORT: u16 = 10250;

/// The pod of a request.
pub async fn read_pod(server: &Server, target: &ResourceRequest) -> Result<Value, Status> {
    Ok(server.shared.registry.read_object(&target.resource, &target.namespace, &target.name).await?.0)
}

/// The requested container, or the only one.
pub fn find_container(target: &ResourceRequest, pod: &Value) -> Result<String, Status> {
    let names = |lists: &[&str]| -> Vec<String> {
        let containers = lists.iter().flat_map(|list| meta::list_at(pod, &["spec", list]));
        containers.map(|container| meta::string_at(container, &["name"]).to_owned()).collect()
    };
    let all = names(&["initContainers", "containers", "ephemeralContainers"]);
    let pod = &target.name;
    match target.query.get("container") {
        Some(name) if all.iter().any(|known| known == name) => Ok(name.to_owned()),
        Some(name) => Err(Status::bad_request(format!("container {name} is not valid for pod {pod}"))),
        None => match names(&["containers"]).as_slice() {
            [only] => Ok(only.clone()),
            [] => Err(Status::bad_request(format!("a container name must be specified for pod {pod}"))),
            _ => Err(Status::bad_request(format!(
                "a container name must be specified for pod {pod}, choose one of: [{}]",
                all.join(" ")
            ))),
        },
    }
}

/// The kubelet of a pod's node.
pub async fn pod_kubelet(server: &Server, target: &ResourceRequest, pod: &Value) -> Result<Backend, Status> {
    let node = meta::string_at(pod, &["spec", "nodeName"]);
    if node.is_empty() {
        return Err(Status::bad_request(format!("pod {} does not have a host assigned", target.name)));
    }
    node_kubelet(server, node).await
}

/// The kubelet of a node.
pub async fn node_kubelet(server: &Server, node: &str) -> Result<Backend, Status> {
    let nodes = loopback::find_resource("", "v1", "nodes")?;
    let (node, _) = server.shared.registry.read_object(nodes, "", node).await?;
    let addresses = meta::list_at(&node, &["status", "addresses"]);
    let find = |kind: &&str| addresses.iter().find(|address| address["type"] == **kind);
    let Some(address) = ADDRESSES.iter().find_map(find) else {
        let known: Vec<String> = addresses
            .iter()
            .map(|address| {
                format!("{{{} {}}}", meta::string_at(address, &["type"]), meta::string_at(address, &["address"]))
            })
            .collect();
        return Err(backend_error(format!("no preferred addresses found; known addresses: [{}]", known.join(" "))));
    };
    let port = u16::try_from(meta::integer_at(&node, &["status", "daemonEndpoints", "kubeletEndpoint", "Port"]));
    Ok(Backend {
        host: meta::string_at(address, &["address"]).to_owned(),
        port: port.ok().filter(|port| *port > 0).unwrap_or(KUBELET_PORT),
        tls: Some(server.shared.kubelet_tls.clone()),
    })
}
