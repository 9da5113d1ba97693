//! Keys of objects of built-in resources that the server itself uses.

use api::{
    schema::{Resource, schema},
    status::Status,
};

/// Returns a built-in resource that the server itself uses.
pub fn find_resource(group: &str, version: &str, name: &str) -> Result<&'static Resource, Status> {
    let found = schema().resource(group, version, name);
    found.ok_or_else(|| Status::internal_error(format!("the schema lacks {name} in {group}/{version}")))
}

/// Identifies an object of a resource.
#[derive(Clone, Copy, Debug)]
pub struct ObjectKey<'a> {
    /// The resource.
    pub resource: &'static Resource,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// Object name.
    pub name: &'a str,
}
