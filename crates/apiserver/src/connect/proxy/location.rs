//! Resolves the backend of a proxied request: `name`, `name:port` or `scheme:name:port` of a pod, service or node.
//!
//! Loopback, link-local and multicast addresses are rejected.

use std::{net::IpAddr, sync::Arc};

use api::{Value, meta, selector::LabelSelector, status::Status};
use apiserver_core::{
    backend::{self, Backend},
    loopback,
    request::ResourceRequest,
};

use crate::{Server, connect::pod};

const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// The parts of `scheme:name:port`.
#[derive(Debug, PartialEq, Eq)]
struct ProxyLocation<'a> {
    scheme: &'a str,
    name: &'a str,
    port: &'a str,
}

impl<'a> ProxyLocation<'a> {
    fn parse(id: &'a str) -> Option<Self> {
        let parts: Vec<&str> = id.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme, name, port] => (*scheme, *name, *port),
            _ => return None,
        };
        let known = matches!(scheme, "" | "http" | "https") && !name.is_empty();
        known.then_some(Self { scheme, name, port })
    }

    /// The backend at an address; an empty port means the scheme's default.
    fn to_backend(&self, server: &Server, host: &str, port: &str) -> Result<Backend, Status> {
        let tls =
            (self.scheme == "https").then(|| backend::without_verification_or_identity(&server.shared.kubelet_tls));
        let default = if tls.is_some() { 443 } else { 80 };
        let port = if port.is_empty() { Ok(default) } else { port.parse() };
        let unknown = |_| {
            Status::service_unavailable(format!(
                "error trying to reach service: dial tcp: lookup tcp/{}: unknown port",
                self.port
            ))
        };
        Ok(Backend { host: host.to_owned(), port: port.map_err(unknown)?, tls: tls.map(Arc::new) })
    }
}

/// Resolves the backend of a pod, service or node.
pub async fn resolve_backend(server: &Server, target: &ResourceRequest) -> Result<Backend, Status> {
    let singular = target.resource.singular;
    let place = ProxyLocation::parse(&target.name)
        .ok_or_else(|| Status::bad_request(format!("invalid {singular} request {:?}", target.name)))?;
    match singular {
        "pod" => resolve_pod(server, target, &place).await,
        "service" => resolve_service(server, target, &place).await,
        _ => resolve_node(server, &place).await,
    }
}

async fn resolve_pod(server: &Server, target: &ResourceRequest, place: &ProxyLocation<'_>) -> Result<Backend, Status> {
    let (pod, _) = server.shared.registry.read_object(&target.resource, &target.namespace, place.name).await?;
    let ports =
        meta::list_at(&pod, &["spec", "containers"]).iter().flat_map(|container| meta::list_at(container, &["ports"]));
    let first = { ports }.next().map(|port| meta::integer_at(port, &["containerPort"]).to_string()).unwrap_or_default();
    let port = if place.port.is_empty() { &first } else { place.port };
    let ip =
        meta::list_at(&pod, &["status", "podIPs"]).first().map(|ip| meta::string_at(ip, &["ip"])).unwrap_or_default();
    let allowed = ip.parse().is_ok_and(is_proxyable);
    if allowed { place.to_backend(server, ip, port) } else { Err(Status::bad_request("address not allowed")) }
}

async fn resolve_node(server: &Server, place: &ProxyLocation<'_>) -> Result<Backend, Status> {
    let kubelet = pod::node_kubelet(server, place.name).await?;
    let resolved = tokio::net::lookup_host((kubelet.host.as_str(), kubelet.port)).await;
    let addresses: Vec<_> = resolved.map_err(|error| Status::bad_request(error.to_string()))?.collect();
    if addresses.is_empty() || !addresses.iter().all(|address| is_proxyable(address.ip())) {
        return Err(Status::bad_request("address not allowed"));
    }
    if place.port.is_empty() || place.port == kubelet.port.to_string() {
        return Ok(kubelet);
    }
    // Uses the checked address, because the name may resolve differently later.
    place.to_backend(server, &addresses[0].ip().to_string(), place.port)
}

async fn resolve_service(
    server: &Server,
    target: &ResourceRequest,
    place: &ProxyLocation<'_>,
) -> Result<Backend, Status> {
    let port = port_name(server, target, place).await?;
    let none = || Status::service_unavailable(format!("no endpoints available for service {:?}", target.name));
    let mut ends = ready_endpoints(server, target, place, &port).await?;
    while !ends.is_empty() {
        let (ip, number, pod) = ends.swap_remove(fastrand::usize(..ends.len()));
        // Endpoints may name any address; only those of pods are used.
        if check_pod_address(server, target, &pod, &ip).await {
            return place.to_backend(server, &ip, &number.to_string());
        }
    }
    Err(none())
}

/// The name of the requested service port.
async fn port_name(server: &Server, target: &ResourceRequest, place: &ProxyLocation<'_>) -> Result<String, Status> {
    let Ok(number) = place.port.parse::<i64>() else { return Ok(place.port.to_owned()) };
    let (service, _) = server.shared.registry.read_object(&target.resource, &target.namespace, place.name).await?;
    let ports = meta::list_at(&service, &["spec", "ports"]);
    let found = ports.iter().find(|port| meta::integer_at(port, &["port"]) == number);
    let none = || Status::service_unavailable(format!("no service port {number} found for service {:?}", place.name));
    Ok(meta::string_at(found.ok_or_else(none)?, &["name"]).to_owned())
}

/// Ready endpoints with a port of this name: address, port and pod name.
async fn ready_endpoints(
    server: &Server,
    target: &ResourceRequest,
    place: &ProxyLocation<'_>,
    port: &str,
) -> Result<Vec<(String, i64, String)>, Status> {
    let slices = endpoint_slices(server, target, place.name).await?;
    let mut found = Vec::new();
    for slice in &slices {
        let of_name = |known: &&Value| meta::string_at(known, &["name"]) == port;
        let Some(port) = meta::list_at(slice, &["ports"]).iter().find(of_name) else { continue };
        for end in meta::list_at(slice, &["endpoints"]) {
            let ready = end["conditions"]["ready"] != false;
            let pod = meta::string_at(end, &["targetRef", "name"]);
            let here = meta::string_at(end, &["targetRef", "namespace"]) == target.namespace;
            for address in meta::list_at(end, &["addresses"]).iter().filter(|_| ready && here) {
                let address = address.as_str().unwrap_or_default().to_owned();
                found.push((address, meta::integer_at(port, &["port"]), pod.to_owned()));
            }
        }
    }
    Ok(found)
}

/// The endpoint slices of a service; 404 without any, as upstream responds.
async fn endpoint_slices(server: &Server, target: &ResourceRequest, service: &str) -> Result<Vec<Value>, Status> {
    let selector = LabelSelector::parse(&format!("{SERVICE_LABEL}={service}"));
    let selector = selector.map_err(|_| Status::not_found(&target.resource, service))?;
    let slices = loopback::find_resource("discovery.k8s.io", "v1", "endpointslices")?;
    let mut found = server.shared.registry.list_objects(slices, &target.namespace).await?;
    found.retain(|slice| selector.matches(&slice["metadata"]["labels"]));
    if found.is_empty() { Err(Status::not_found(&target.resource, service)) } else { Ok(found) }
}

async fn check_pod_address(server: &Server, target: &ResourceRequest, pod: &str, ip: &str) -> bool {
    let Ok(pods) = loopback::find_resource("", "v1", "pods") else { return false };
    let Ok((pod, _)) = server.shared.registry.read_object(pods, &target.namespace, pod).await else { return false };
    meta::list_at(&pod, &["status", "podIPs"]).iter().any(|known| meta::string_at(known, &["ip"]) == ip)
}

/// Whether an address is global unicast in Go's sense.
fn is_proxyable(ip: IpAddr) -> bool {
    let other = ip.is_unspecified() || ip.is_loopback() || ip.is_multicast();
    let special = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(ip) => !is_proxyable(IpAddr::V4(ip)),
            None => ip.is_unicast_link_local(),
        },
    };
    !other && !special
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn location_has_up_to_three_parts() {
        let check = |id| ProxyLocation::parse(id).map(|place| (place.scheme, place.name, place.port));
        assert_eq!(check("a"), Some(("", "a", "")));
        assert_eq!(check("a:80"), Some(("", "a", "80")));
        assert_eq!(check("https:a:"), Some(("https", "a", "")));
        assert_eq!((check("ftp:a:80"), check(":80"), check("a:b:c:d")), (None, None, None));
    }

    #[test]
    fn local_addresses_are_rejected() {
        let check = |ip: &str| is_proxyable(ip.parse().unwrap());
        assert!(check("10.0.0.1") && check("2001:db8::1"));
        for ip in ["127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "::1", "fe80::1", "::ffff:127.0.0.1"] {
            assert!(!check(ip), "{ip}");
        }
    }
}
