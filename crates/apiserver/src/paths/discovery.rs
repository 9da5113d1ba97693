//! Discovery: `/api` and `/apis`, per group-version or aggregated.

use api::{
    discovery::{self, AggregatedVersion},
    document_cache::DocumentName,
    status::Status,
};
use apiserver_core::{Body, negotiation};
use http::{Response, header, request::Parts};

use super::{accepted_types, tagged};
use crate::{Server, encode};

/// Handles a discovery path; 404 if it is unknown.
pub fn handle_discovery(server: &Server, request: &Parts, parts: &[&str]) -> Result<Response<Body>, Status> {
    if let (["api" | "apis"], Some(version)) = (parts, aggregated_version(request)) {
        return Ok(aggregated_response(server, request, version, parts == ["api"]));
    }
    let name = match parts {
        ["api"] => {
            super::check_accept(request, &negotiation::media_types())?;
            return Ok(encode::json_response(200, &discovery::core_versions(&server_address(server, request))));
        }
        ["apis"] => DocumentName::Groups,
        ["api", version] => DocumentName::Resources(String::new(), (*version).to_owned()),
        ["apis", group] => DocumentName::Group((*group).to_owned()),
        ["apis", group, version] => DocumentName::Resources((*group).to_owned(), (*version).to_owned()),
        _ => return Ok(encode::not_found_response()),
    };
    let Some(page) = server.api_document(&name) else { return Ok(encode::not_found_response()) };
    match name {
        // Upstream's aggregator serves these with another error text.
        DocumentName::Groups | DocumentName::Group(_) if !super::accepts_any(request, &negotiation::media_types()) => {
            Err(Status::not_acceptable(&negotiation::media_types().join(", ")))
        }
        DocumentName::Groups | DocumentName::Group(_) => Ok(encode::json_bytes_response(200, page.bytes)),
        _ => super::check_accept(request, &negotiation::media_types())
            .map(|()| encode::json_bytes_response(200, page.bytes)),
    }
}

/// The first accepted version of aggregated discovery.
fn aggregated_version(request: &Parts) -> Option<AggregatedVersion> {
    accepted_types(request).find_map(|choice| {
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

fn aggregated_response(server: &Server, request: &Parts, version: AggregatedVersion, core: bool) -> Response<Body> {
    let content_type = match version {
        AggregatedVersion::V2 => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        AggregatedVersion::V2Beta1 => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    };
    let page = server.api_document(&DocumentName::Aggregated { core, version });
    page.map_or_else(encode::not_found_response, |page| {
        tagged::with_cache_control(tagged::document_response(request, &page, content_type), "public")
    })
}

/// The server address: the advertised one, else the request's host.
pub fn server_address(server: &Server, request: &Parts) -> String {
    if let Some((ip, port)) = server.shared.options.advertise {
        return std::net::SocketAddr::new(ip, port).to_string();
    }
    let header = request.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    request.uri.authority().map(http::uri::Authority::as_str).or(header).unwrap_or_default().to_owned()
}
