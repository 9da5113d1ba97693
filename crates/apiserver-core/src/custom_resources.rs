//! The trait through which stages find custom resources without knowing their CRDs.

use api::schema::ResourceRef;

/// The resources that CustomResourceDefinitions define, in step with the watch cache.
pub trait CustomResources: Send + Sync {
    /// Returns the resource with a plural name.
    fn find_resource(&self, group: &str, version: &str, plural: &str) -> Option<ResourceRef>;

    /// Returns the resource of a kind.
    fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<ResourceRef>;

    /// Returns the served versions of a resource.
    fn served_versions(&self, group: &str, plural: &str) -> Vec<ResourceRef>;
}
