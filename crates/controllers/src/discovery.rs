//! API discovery: every served resource once, in its most stable version.

use client::ApiErrorExt;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    discovery::{ApiCapabilities, Discovery, Scope},
};

/// A served resource and its capabilities.
#[derive(Clone, Debug)]
pub(crate) struct DiscoveredResource {
    pub(crate) resource: ApiResource,
    capabilities: ApiCapabilities,
}

impl DiscoveredResource {
    pub(crate) fn is_namespaced(&self) -> bool {
        self.capabilities.scope == Scope::Namespaced
    }

    pub(crate) fn supports_verbs(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.capabilities.supports_operation(verb))
    }

    /// Formats `plural.group`, as upstream's messages do.
    pub(crate) fn group_resource(&self) -> String {
        format!("{}.{}", self.resource.plural, self.resource.group)
    }

    /// Returns an API handle for a namespace, which cluster-scoped resources ignore.
    pub(crate) fn dynamic_api(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        match self.is_namespaced() {
            true => Api::namespaced_with(client.clone(), namespace, &self.resource),
            false => Api::all_with(client.clone(), &self.resource),
        }
    }
}

/// Discovers all resources, group by group on servers without aggregated discovery.
pub(crate) async fn discover_resources(client: &Client) -> Result<Vec<DiscoveredResource>, kube::Error> {
    let discovery = match Discovery::new(client.clone()).run_aggregated().await {
        Ok(discovery) => discovery,
        Err(error) => {
            tracing::debug!(
                error = error.server_message(),
                "discovery: aggregated discovery unavailable, using per-group discovery"
            );
            Discovery::new(client.clone()).run().await?
        }
    };
    let resources = discovery.groups().flat_map(|group| group.resources_by_stability());
    Ok(resources.map(|(resource, capabilities)| DiscoveredResource { resource, capabilities }).collect())
}
