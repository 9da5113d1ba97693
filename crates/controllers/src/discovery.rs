//! API discovery: every served resource once, in its most stable version.

use std::{collections::HashSet, time::Duration};

use client::ApiErrorExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    core::Version,
    core::discovery::v2::{APIGroupDiscovery, APIResourceDiscovery},
    discovery::{Discovery, Scope},
};

/// A served resource and its capabilities.
#[derive(Clone, Debug)]
pub(crate) struct DiscoveredResource {
    pub(crate) resource: ApiResource,
    is_namespaced: bool,
    verbs: Vec<String>,
}

/// The served resources, and the group versions that could not be discovered.
#[derive(Debug, Default)]
pub(crate) struct DiscoveredApi {
    pub(crate) resources: Vec<DiscoveredResource>,
    /// Group versions whose server is unavailable, as `group/version`; their resources are unknown.
    pub(crate) failed: Vec<String>,
}

impl DiscoveredResource {
    pub(crate) fn is_namespaced(&self) -> bool {
        self.is_namespaced
    }

    pub(crate) fn supports_verbs(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|supported| supported == verb))
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

impl DiscoveredApi {
    /// Whether a version of the group could not be discovered.
    pub(crate) fn is_group_failed(&self, group: &str) -> bool {
        self.failed.iter().any(|failed| failed.split_once('/').is_some_and(|(name, _)| name == group))
    }

    /// Adds the resources of a group, each in its most stable version.
    fn add_group(&mut self, group: APIGroupDiscovery) {
        let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        let mut versions = group.versions;
        versions.sort_by_cached_key(|version| {
            std::cmp::Reverse(Version::parse(version.version.as_deref().unwrap_or_default()).priority())
        });
        let mut known = HashSet::new();
        for version in versions {
            let version_name = version.version.unwrap_or_default();
            if version.freshness.as_deref() == Some("Stale") {
                self.failed.push(format!("{name}/{version_name}"));
                continue;
            }
            let resources = version.resources.into_iter();
            let resources = resources.filter_map(|resource| new_resource(&name, &version_name, resource));
            self.resources.extend(resources.filter(|resource| known.insert(resource.resource.plural.clone())));
        }
    }
}

fn new_resource(group: &str, version: &str, resource: APIResourceDiscovery) -> Option<DiscoveredResource> {
    let api_version = if group.is_empty() { version.into() } else { format!("{group}/{version}") };
    let api_resource = ApiResource {
        group: group.into(),
        version: version.into(),
        api_version,
        kind: resource.response_kind.and_then(|kind| kind.kind)?,
        plural: resource.resource?,
    };
    let is_namespaced = resource.scope.as_deref() == Some("Namespaced");
    Some(DiscoveredResource { resource: api_resource, is_namespaced, verbs: resource.verbs })
}

/// Discovers all resources, group by group on servers without aggregated discovery.
pub(crate) async fn discover_api(client: &Client) -> Result<DiscoveredApi, kube::Error> {
    let aggregated = async {
        let (core, groups) =
            (client.list_core_api_versions_aggregated().await?, client.list_api_groups_aggregated().await?);
        let mut api = DiscoveredApi::default();
        core.items.into_iter().chain(groups.items).for_each(|group| api.add_group(group));
        Ok::<_, kube::Error>(api)
    };
    match aggregated.await {
        Ok(api) if !api.resources.is_empty() => Ok(api),
        result => {
            if let Err(error) = result {
                let error = error.server_message();
                tracing::debug!(error, "discovery: aggregated discovery unavailable, using per-group discovery");
            }
            discover_by_group(client).await
        }
    }
}

/// Discovers group by group; fails if one group does.
async fn discover_by_group(client: &Client) -> Result<DiscoveredApi, kube::Error> {
    let discovery = Discovery::new(client.clone()).run().await?;
    let resources = discovery.groups().flat_map(|group| group.resources_by_stability());
    let resources = resources.map(|(resource, capabilities)| DiscoveredResource {
        resource,
        is_namespaced: capabilities.scope == Scope::Namespaced,
        verbs: capabilities.operations,
    });
    Ok(DiscoveredApi { resources: resources.collect(), failed: Vec::new() })
}

/// Delay before a failed discovery is repeated.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Whether the server has a resource, in this version, when the controller starts. The features of such controllers are
/// off by default in the API server too.
pub(crate) async fn check_served<K: kube::Resource<DynamicType = ()>>(client: &Client) -> bool {
    let path = format!("/apis/{}/{}", K::group(&()), K::version(&()));
    loop {
        let Ok(request) = http::Request::get(&path).body(Vec::new()) else { return false };
        match client.request::<APIResourceList>(request).await {
            Ok(list) => return list.resources.iter().any(|resource| resource.name == K::plural(&())),
            Err(error) if error.is_not_found() => return false,
            Err(error) => tracing::debug!(path, %error, "discovery: resources not listed, retrying"),
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Parses groups of an aggregated discovery document.
    pub(crate) fn discovered(groups: Value) -> DiscoveredApi {
        let groups: Vec<APIGroupDiscovery> = serde_json::from_value(groups).unwrap();
        let mut api = DiscoveredApi::default();
        groups.into_iter().for_each(|group| api.add_group(group));
        api
    }

    /// Returns a version of the group `example.com` that serves `widgets`.
    pub(crate) fn version(name: &str, freshness: &str) -> Value {
        let kind = json!({"group": "example.com", "version": name, "kind": "Widget"});
        let widgets =
            json!({"resource": "widgets", "responseKind": kind, "scope": "Namespaced", "verbs": ["list", "delete"]});
        json!({"version": name, "freshness": freshness, "resources": [widgets]})
    }

    #[test]
    fn resources_of_unavailable_servers_are_reported_and_not_listed() {
        let group = |versions: Value| json!([{"metadata": {"name": "example.com"}, "versions": versions}]);
        let api = discovered(group(json!([version("v1beta1", "Current"), version("v1", "Current")])));
        assert_eq!(api.resources.len(), 1);
        assert_eq!(api.resources[0].resource.api_version, "example.com/v1");
        assert!(api.resources[0].is_namespaced() && api.resources[0].supports_verbs(&["list"]));
        let api = discovered(group(json!([version("v1", "Stale")])));
        assert!(api.resources.is_empty() && api.is_group_failed("example.com") && !api.is_group_failed(""));
        assert_eq!(api.failed, ["example.com/v1"]);
    }
}
