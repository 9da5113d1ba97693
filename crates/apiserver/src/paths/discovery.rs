//! `/api` and `/apis`: groups, versions and resources, one by one or all at once.

use api::{
    discovery::{self, AggregatedVersion, DocumentName},
    status::Status,
};
use apiserver_core::{Body, negotiation};
use http::{Response, header, request::Parts};

use super::{accepted, tagged};
use crate::{Server, encode};

/// Answers a path of discovery, or 404.
pub fn answer(server: &Server, request: &Parts, parts: &[&str]) -> Result<Response<Body>, Status> {
    if let (["api" | "apis"], Some(version)) = (parts, aggregated(request)) {
        return Ok(all(server, request, version, parts == ["api"]));
    }
    let name = match parts {
        ["api"] => {
            super::offered(request, &negotiation::media_types())?;
            return Ok(encode::json(200, &discovery::core_versions(&address(server, request))));
        }
        ["apis"] => DocumentName::Groups,
        ["api", version] => DocumentName::Resources(String::new(), (*version).to_owned()),
        ["apis", group] => DocumentName::Group((*group).to_owned()),
        ["apis", group, version] => DocumentName::Resources((*group).to_owned(), (*version).to_owned()),
        _ => return Ok(encode::no_page()),
    };
    let Some(page) = server.page(&name) else { return Ok(encode::no_page()) };
    match name {
        // Upstream's aggregator answers these itself, and in other words.
        DocumentName::Groups | DocumentName::Group(_) if !super::accepts(request, &negotiation::media_types()) => {
            Err(Status::not_acceptable(&negotiation::media_types().join(", ")))
        }
        DocumentName::Groups | DocumentName::Group(_) => Ok(encode::bytes(200, page.bytes)),
        _ => super::offered(request, &negotiation::media_types()).map(|()| encode::bytes(200, page.bytes)),
    }
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

fn all(server: &Server, request: &Parts, version: AggregatedVersion, core: bool) -> Response<Body> {
    let content_type = match version {
        AggregatedVersion::V2 => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        AggregatedVersion::V2Beta1 => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    };
    let page = server.page(&DocumentName::Aggregated { core, version });
    page.map_or_else(encode::no_page, |page| tagged::cached(tagged::answer(request, &page, content_type), "public"))
}

/// Where clients find the server: what it advertises, else what they called it.
pub fn address(server: &Server, request: &Parts) -> String {
    if let Some((ip, port)) = server.shared.settings.advertise {
        return std::net::SocketAddr::new(ip, port).to_string();
    }
    let header = request.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    request.uri.authority().map(http::uri::Authority::as_str).or(header).unwrap_or_default().to_owned()
}
