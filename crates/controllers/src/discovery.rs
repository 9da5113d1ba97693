//! Which kinds of objects the API server has: each once, in its most stable version.

use client::ApiErrorExt;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    discovery::{ApiCapabilities, Discovery, Scope},
};

/// A kind of objects and what can be done with them.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) resource: ApiResource,
    capabilities: ApiCapabilities,
}

impl Kind {
    pub(crate) fn is_namespaced(&self) -> bool {
        self.capabilities.scope == Scope::Namespaced
    }

    pub(crate) fn supports(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.capabilities.supports_operation(verb))
    }

    /// `plural.group`, as upstream names resources in messages.
    pub(crate) fn name(&self) -> String {
        format!("{}.{}", self.resource.plural, self.resource.group)
    }

    /// The objects of this kind in a namespace, which cluster-scoped kinds ignore.
    pub(crate) fn api(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        match self.is_namespaced() {
            true => Api::namespaced_with(client.clone(), namespace, &self.resource),
            false => Api::all_with(client.clone(), &self.resource),
        }
    }
}

/// All kinds. Servers older than aggregated discovery are asked group by group.
pub(crate) async fn kinds(client: &Client) -> Result<Vec<Kind>, kube::Error> {
    let discovery = match Discovery::new(client.clone()).run_aggregated().await {
        Ok(discovery) => discovery,
        Err(error) => {
            tracing::debug!(error = error.reply(), "no aggregated discovery");
            Discovery::new(client.clone()).run().await?
        }
    };
    let resources = discovery.groups().flat_map(|group| group.resources_by_stability());
    Ok(resources.map(|(resource, capabilities)| Kind { resource, capabilities }).collect())
}
