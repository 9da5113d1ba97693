//! Authorizer attributes: the user, the verb and the target of a request, as authorizers, admission and audit see them.

mod request;

pub use request::RequestAttributes;

use crate::{User, selectors::Selectors};

/// Who asks for what.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// Who asks.
    pub user: &'a User,
    /// `get`, `create`, … of a resource; the method in lower case of a path.
    pub verb: &'a str,
    /// What is asked for.
    pub target: AttributesTarget<'a>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub enum AttributesTarget<'a> {
    /// A path that is no resource's.
    NonResource(&'a str),
    /// Something of a resource, which need not exist.
    Resource(ResourceAttributes<'a>),
}

/// Something of a resource. What is not named is empty.
#[derive(Clone, Copy, Debug)]
pub struct ResourceAttributes<'a> {
    /// Empty for the core group.
    pub group: &'a str,
    /// For example `v1`.
    pub version: &'a str,
    /// The plural name.
    pub resource: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Empty: all namespaces, or the resource has none.
    pub namespace: &'a str,
    /// Empty: a collection, or an object that has no name yet.
    pub name: &'a str,
    /// What a list, a watch or a deletion of many is limited to.
    pub selectors: &'a Selectors,
}

impl Default for ResourceAttributes<'_> {
    fn default() -> Self {
        let selectors = Selectors::none();
        Self { group: "", version: "", resource: "", subresource: "", namespace: "", name: "", selectors }
    }
}
