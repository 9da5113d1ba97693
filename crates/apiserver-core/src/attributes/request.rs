//! Builds authorizer attributes from a request.

use std::borrow::Cow;

use http::Method;

use crate::{
    User,
    attributes::{Attributes, AttributesTarget, ResourceAttributes},
    query::Query,
    request::{RequestInfo, ResourceRequest},
    selectors::RequestSelectors,
};

/// The parts of a request that authorizer attributes are built from; also used by impersonation and the audit policy.
pub enum RequestAttributes<'a> {
    /// A resource that this server serves.
    Resource {
        /// The resource request.
        request: &'a ResourceRequest,
        /// Selectors of the query, if any.
        selectors: Option<RequestSelectors>,
    },
    /// A resource that does not exist or is served by another server.
    UnknownResource {
        /// The request info of the path.
        info: &'a RequestInfo,
        /// Selectors of the query, if any.
        selectors: Option<RequestSelectors>,
    },
    /// A non-resource path.
    NonResource {
        /// The method in lower case.
        verb: Cow<'static, str>,
        /// The path.
        path: &'a str,
    },
}

impl<'a> RequestAttributes<'a> {
    /// Attributes of a request for a resource that this server serves.
    pub fn from_resource_request(request: &'a ResourceRequest) -> Self {
        Self::Resource { request, selectors: parse_query_selectors(request.verb, &request.query) }
    }

    /// Attributes of a resource path that this server does not serve itself.
    pub fn from_request_info(info: &'a RequestInfo, query: &Query) -> Self {
        Self::UnknownResource { selectors: parse_query_selectors(info.verb, query), info }
    }

    /// Attributes of a path that names no resource.
    pub fn from_path(method: &Method, path: &'a str) -> Self {
        Self::NonResource { verb: lowercase_method(method), path }
    }

    /// Returns the attributes with `user` as the requesting user.
    pub fn attributes_for<'q>(&'q self, user: &'q User) -> Attributes<'q> {
        let (verb, target) = match self {
            Self::Resource { request, selectors } => {
                let selectors = selectors_or_everything(selectors);
                // `OPTIONS` has no verb; only proxied requests use it.
                let verb = if request.verb == "options" { "" } else { request.verb };
                (verb, AttributesTarget::Resource(served_resource_attributes(request, selectors)))
            }
            Self::UnknownResource { info, selectors } => (
                info.verb,
                AttributesTarget::Resource(unknown_resource_attributes(info, selectors_or_everything(selectors))),
            ),
            Self::NonResource { verb, path } => (verb.as_ref(), AttributesTarget::NonResource(path)),
        };
        Attributes { user, verb, target }
    }
}

/// Parses the selectors of a list, watch or deletecollection; `None` if it has none.
fn parse_query_selectors(verb: &str, query: &Query) -> Option<RequestSelectors> {
    let selects_many = matches!(verb, "list" | "watch" | "deletecollection");
    let text = |name: &str| if selects_many { query.get(name).unwrap_or_default() } else { "" };
    let (fields, labels) = (text("fieldSelector"), text("labelSelector"));
    let limited = !fields.is_empty() || !labels.is_empty();
    limited.then(|| RequestSelectors::parse(fields, labels))
}

fn selectors_or_everything(selectors: &Option<RequestSelectors>) -> &RequestSelectors {
    selectors.as_ref().unwrap_or_else(|| RequestSelectors::everything())
}

/// Returns the object name; for a list or watch, the name that `metadata.name` selects.
fn effective_name<'a>(verb: &str, name: &'a str, selectors: &'a RequestSelectors) -> &'a str {
    if matches!(verb, "list" | "watch") && name.is_empty() {
        return selectors
            .required_field_value("metadata.name")
            .filter(|name| is_path_segment(name))
            .unwrap_or_default();
    }
    name
}

fn unknown_resource_attributes<'a>(info: &'a RequestInfo, selectors: &'a RequestSelectors) -> ResourceAttributes<'a> {
    ResourceAttributes {
        group: &info.group,
        version: &info.version,
        resource: &info.resource,
        subresource: &info.subresource,
        namespace: &info.namespace,
        name: effective_name(info.verb, &info.name, selectors),
        selectors,
    }
}

fn served_resource_attributes<'a>(
    request: &'a ResourceRequest,
    selectors: &'a RequestSelectors,
) -> ResourceAttributes<'a> {
    let resource = &request.resource;
    let mut attributes = ResourceAttributes {
        group: resource.group,
        version: resource.version,
        resource: resource.name,
        // The path behind `proxy/` belongs to the backend.
        subresource: request.subresource.split('/').next().unwrap_or_default(),
        namespace: &request.namespace,
        name: effective_name(request.verb, &request.name, selectors),
        selectors,
    };
    if resource.group.is_empty() && resource.name == "namespaces" {
        // A namespace lies within itself, so that a role in it covers reading it.
        attributes.namespace = &request.name;
    }
    attributes
}

/// Whether a selector value is usable as a name in a path.
fn is_path_segment(name: &str) -> bool {
    !matches!(name, "." | "..") && !name.contains(['/', '%'])
}

fn lowercase_method(method: &Method) -> Cow<'static, str> {
    match method.as_str() {
        "GET" => "get".into(),
        "POST" => "post".into(),
        "HEAD" => "head".into(),
        other => other.to_ascii_lowercase().into(),
    }
}
