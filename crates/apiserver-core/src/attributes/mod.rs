//! Authorizer attributes: the user, the verb and the target of a request, as authorizers, admission and audit see them.

mod request;

pub use request::RequestAttributes;

use crate::{User, selectors::RequestSelectors};

/// The attributes that authorizers decide on.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// The user that makes the request.
    pub user: &'a User,
    /// The verb of a resource request, such as `get`; for non-resource paths the HTTP method in lower case.
    pub verb: &'a str,
    /// The resource or path that is requested.
    pub target: AttributesTarget<'a>,
}

/// The resource or path of a request.
#[derive(Clone, Copy, Debug)]
pub enum AttributesTarget<'a> {
    /// A non-resource path, such as `/healthz`.
    NonResource(&'a str),
    /// A resource, which need not exist.
    Resource(ResourceAttributes<'a>),
}

/// The attributes of a resource request; absent parts are empty.
#[derive(Clone, Copy, Debug)]
pub struct ResourceAttributes<'a> {
    /// API group; empty for the core group.
    pub group: &'a str,
    /// API version, for example `v1`.
    pub version: &'a str,
    /// Plural name of the resource.
    pub resource: &'a str,
    /// Subresource; empty for the object itself.
    pub subresource: &'a str,
    /// Namespace; empty for all namespaces and cluster-scoped resources.
    pub namespace: &'a str,
    /// Object name; empty for collections and creates.
    pub name: &'a str,
    /// Selectors of a list, watch or deletecollection.
    pub selectors: &'a RequestSelectors,
}

impl Default for ResourceAttributes<'_> {
    fn default() -> Self {
        let selectors = RequestSelectors::everything();
        Self { group: "", version: "", resource: "", subresource: "", namespace: "", name: "", selectors }
    }
}
