//! May whoever sent a request have it answered? What the pipeline asks.

use std::borrow::Cow;

use http::Method;

use crate::{
    User,
    attributes::{Attributes, AttributesTarget, ResourceAttributes},
    query::Query,
    request::{RequestInfo, ResourceRequest},
    selectors::Selectors,
};

/// What a request asks for, as authorizers, impersonators and the audit policy see it.
pub enum RequestAttributes<'a> {
    /// Something of a resource that is there.
    Resource {
        /// What.
        target: &'a ResourceRequest,
        /// What it is limited to.
        selectors: Option<Selectors>,
    },
    /// Something of a resource that is not there, or not here.
    UnknownResource {
        /// What.
        info: &'a RequestInfo,
        /// What it is limited to.
        selectors: Option<Selectors>,
    },
    /// A path that is no resource's.
    NonResource {
        /// The method in lower case.
        verb: Cow<'static, str>,
        /// The path.
        path: &'a str,
    },
}

impl<'a> RequestAttributes<'a> {
    /// What a request for a resource says.
    pub fn from_resource_request(target: &'a ResourceRequest) -> Self {
        Self::Resource { target, selectors: selectors(target.verb, &target.query) }
    }

    /// Attributes of a resource path that this server does not serve itself.
    pub fn from_request_info(info: &'a RequestInfo, query: &Query) -> Self {
        Self::UnknownResource { selectors: selectors(info.verb, query), info }
    }

    /// Attributes of a path that names no resource.
    pub fn from_path(method: &Method, path: &'a str) -> Self {
        Self::NonResource { verb: lower(method), path }
    }

    /// The question, asked by somebody.
    pub fn attributes_for<'q>(&'q self, user: &'q User) -> Attributes<'q> {
        let (verb, asked) = match self {
            Self::Resource { target, selectors } => {
                let selectors = or_none(selectors);
                // A method that is no verb: only what is proxied takes it.
                let verb = if target.verb == "options" { "" } else { target.verb };
                (verb, AttributesTarget::Resource(asked(target, selectors)))
            }
            Self::UnknownResource { info, selectors } => {
                (info.verb, AttributesTarget::Resource(missing(info, or_none(selectors))))
            }
            Self::NonResource { verb, path } => (verb.as_ref(), AttributesTarget::NonResource(path)),
        };
        Attributes { user, verb, target: asked }
    }
}

/// What a request is limited to, if it is about many objects.
fn selectors(verb: &str, query: &Query) -> Option<Selectors> {
    let many = matches!(verb, "list" | "watch" | "deletecollection");
    let text = |name: &str| if many { query.get(name).unwrap_or_default() } else { "" };
    let (fields, labels) = (text("fieldSelector"), text("labelSelector"));
    let limited = !fields.is_empty() || !labels.is_empty();
    limited.then(|| Selectors::parse(fields, labels))
}

fn or_none(selectors: &Option<Selectors>) -> &Selectors {
    selectors.as_ref().unwrap_or_else(|| Selectors::none())
}

/// The name of the one object that a list or a watch is limited to.
fn only<'a>(verb: &str, name: &'a str, selectors: &'a Selectors) -> &'a str {
    if matches!(verb, "list" | "watch") && name.is_empty() {
        return selectors.field("metadata.name").filter(|name| is_segment(name)).unwrap_or_default();
    }
    name
}

fn missing<'a>(info: &'a RequestInfo, selectors: &'a Selectors) -> ResourceAttributes<'a> {
    ResourceAttributes {
        group: &info.group,
        version: &info.version,
        resource: &info.resource,
        subresource: &info.subresource,
        namespace: &info.namespace,
        name: only(info.verb, &info.name, selectors),
        selectors,
    }
}

fn asked<'a>(target: &'a ResourceRequest, selectors: &'a Selectors) -> ResourceAttributes<'a> {
    let resource = &target.resource;
    let mut asked = ResourceAttributes {
        group: resource.group,
        version: resource.version,
        resource: resource.name,
        // What is proxied to is the other side's business.
        subresource: target.subresource.split('/').next().unwrap_or_default(),
        namespace: &target.namespace,
        name: only(target.verb, &target.name, selectors),
        selectors,
    };
    if resource.group.is_empty() && resource.name == "namespaces" {
        // A namespace is within itself: who may do everything in it may read it.
        asked.namespace = &target.name;
    }
    asked
}

/// Whether a text can be a name in a path.
fn is_segment(name: &str) -> bool {
    !matches!(name, "." | "..") && !name.contains(['/', '%'])
}

fn lower(method: &Method) -> Cow<'static, str> {
    match method.as_str() {
        "GET" => "get".into(),
        "POST" => "post".into(),
        "HEAD" => "head".into(),
        other => other.to_ascii_lowercase().into(),
    }
}
