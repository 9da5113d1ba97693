//! `/api` and `/apis`: groups, versions and resources, one by one or all at once.

use api::discovery::{self, AggregatedVersion};
use http::{Response, header, request::Parts};

use super::{accepted, tagged};
use crate::{Body, Server, encode};

/// Answers a path of discovery, or 404.
pub fn answer(server: &Server, request: &Parts, parts: &[&str]) -> Response<Body> {
    let served = &server.shared.settings.served;
    let enabled = |group: &str, version: &str| served.includes(group, version);
    if let (["api" | "apis"], Some(version)) = (parts, aggregated(request)) {
        return all(request, version, parts == ["api"], &enabled);
    }
    let body = match parts {
        ["api"] => Some(discovery::core_versions(&address(server, request))),
        ["apis"] => Some(discovery::group_list_where(&enabled)),
        ["api", version] if enabled("", version) => discovery::resource_list("", version),
        ["apis", group] => discovery::group_where(group, &enabled),
        ["apis", group, version] if enabled(group, version) => discovery::resource_list(group, version),
        _ => None,
    };
    body.map_or_else(encode::no_page, |body| encode::json(200, &body))
}

/// The version of the aggregated form that a client asks for first.
fn aggregated(request: &Parts) -> Option<AggregatedVersion> {
    accepted(request).find_map(|choice| {
        let mut parts: Vec<&str> = choice.split(';').map(str::trim).collect();
        parts.sort_unstable();
        match parts.as_slice() {
            ["application/json", "as=APIGroupDiscoveryList", "g=apidiscovery.k8s.io", "v=v2"] => {
                Some(AggregatedVersion::V2)
            }
            ["application/json", "as=APIGroupDiscoveryList", "g=apidiscovery.k8s.io", "v=v2beta1"] => {
                Some(AggregatedVersion::V2Beta1)
            }
            _ => None,
        }
    })
}

fn all(request: &Parts, version: AggregatedVersion, core: bool, enabled: discovery::Enabled) -> Response<Body> {
    let name = match version {
        AggregatedVersion::V2 => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        AggregatedVersion::V2Beta1 => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    };
    let body = discovery::aggregated_where(core, version, enabled).to_string();
    let tag = tagged::tag_of(body.as_bytes());
    let response =
        if tagged::has(request, &tag) { tagged::unchanged(&tag) } else { tagged::document(body, name, &tag) };
    tagged::cached(response, "public")
}

/// Where clients find the server: what it advertises, else what they called it.
/// How a client reaches this server.
pub fn address(server: &Server, request: &Parts) -> String {
    if let Some((ip, port)) = server.shared.settings.advertise {
        return std::net::SocketAddr::new(ip, port).to_string();
    }
    let header = request.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    request.uri.authority().map(http::uri::Authority::as_str).or(header).unwrap_or_default().to_owned()
}
