//! The scale subresource of any kind, found through discovery.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use client::ApiErrorExt;
use k8s_openapi::api::autoscaling::v1::Scale;
use kube::{
    Client, Resource,
    api::{ApiResource, DynamicObject, PostParams, Request},
    core::GroupVersion,
};
use tokio::time::Instant;

/// Age after which discovered resources are discovered again.
const DISCOVERY_LIFETIME: Duration = Duration::from_secs(30);

/// The scale of an object could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScaleError {
    /// The API version is malformed.
    #[error("unexpected GroupVersion string: {0}")]
    InvalidVersion(String),
    /// No resource of the kind is served.
    #[error("no matches for kind {kind:?} in {scope}")]
    NoMatch {
        /// The kind.
        kind: String,
        /// The group or version that was searched.
        scope: String,
    },
    /// The server refused the request.
    #[error("{}", .0.server_message())]
    Api(#[from] kube::Error),
    /// The request could not be built.
    #[error("{0}")]
    Request(#[from] kube::core::request::Error),
    /// The scale could not be encoded.
    #[error("{0}")]
    Encoding(#[from] serde_json::Error),
}

/// A resource of a kind, and whether it has a scale subresource.
#[derive(Clone, Debug)]
pub(crate) struct ScalableResource {
    pub(crate) resource: ApiResource,
    pub(crate) has_scale: bool,
}

impl ScalableResource {
    /// Formats `plural.group`, as upstream's messages do.
    pub(crate) fn group_resource(&self) -> String {
        match self.resource.group.as_str() {
            "" => self.resource.plural.clone(),
            group => format!("{}.{group}", self.resource.plural),
        }
    }
}

/// Discovered resources of a group and kind, with the time of discovery.
type DiscoveryCache = HashMap<(String, String), (Instant, Vec<ScalableResource>)>;

/// Reads and writes scales, remembering discovery for a short time.
pub(crate) struct ScaleClient {
    client: Client,
    discovered: Mutex<DiscoveryCache>,
}

impl ScaleClient {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, discovered: Mutex::default() }
    }

    /// Returns the resources of a group's kind, in the order of the group's versions, the preferred one first.
    pub(crate) async fn resources_of_kind(&self, group: &str, kind: &str) -> Result<Vec<ScalableResource>, ScaleError> {
        let key = (group.to_owned(), kind.to_owned());
        if let Some((at, resources)) = self.lock_discovered().get(&key)
            && at.elapsed() < DISCOVERY_LIFETIME
        {
            return Ok(resources.clone());
        }
        let mut resources = Vec::new();
        for version in self.versions_of_group(group).await? {
            let list = match group {
                "" => self.client.list_core_api_resources(&version).await?,
                _ => self.client.list_api_group_resources(&format!("{group}/{version}")).await?,
            };
            for found in list.resources.iter().filter(|found| found.kind == kind && !found.name.contains('/')) {
                let scale = format!("{}/scale", found.name);
                let gvk = GroupVersion::gv(group, &version).with_kind(kind);
                resources.push(ScalableResource {
                    resource: ApiResource::from_gvk_with_plural(&gvk, &found.name),
                    has_scale: list.resources.iter().any(|other| other.name == scale && other.kind == "Scale"),
                });
            }
        }
        if !resources.is_empty() {
            self.lock_discovered().insert(key, (Instant::now(), resources.clone()));
        }
        Ok(resources)
    }

    /// Returns the served versions of a group, the preferred one first; none if the group is not served.
    pub(crate) async fn versions_of_group(&self, group: &str) -> Result<Vec<String>, ScaleError> {
        if group.is_empty() {
            return Ok(self.client.list_core_api_versions().await?.versions);
        }
        let groups = self.client.list_api_groups().await?.groups;
        let Some(found) = groups.into_iter().find(|found| found.name == group) else { return Ok(Vec::new()) };
        let preferred = found.preferred_version.map(|version| version.version);
        let others = found.versions.into_iter().map(|version| version.version);
        Ok(preferred.clone().into_iter().chain(others.filter(|version| Some(version) != preferred.as_ref())).collect())
    }

    /// Reads the scale of an object.
    pub(crate) async fn get_scale(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
    ) -> Result<Scale, ScaleError> {
        let request = Request::new(DynamicObject::url_path(resource, Some(namespace)));
        let request = request.get_subresource("scale", name)?;
        Ok(self.client.request(request).await?)
    }

    /// Writes the scale of an object.
    pub(crate) async fn update_scale(
        &self,
        resource: &ApiResource,
        namespace: &str,
        scale: &Scale,
    ) -> Result<Scale, ScaleError> {
        let request = Request::new(DynamicObject::url_path(resource, Some(namespace)));
        let name = scale.metadata.name.as_deref().unwrap_or("");
        let body = serde_json::to_vec(scale)?;
        let request = request.replace_subresource("scale", name, &PostParams::default(), body)?;
        Ok(self.client.request(request).await?)
    }

    fn lock_discovered(&self) -> std::sync::MutexGuard<'_, DiscoveryCache> {
        self.discovered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Splits an `apiVersion` into group and version.
pub(crate) fn parse_group_version(api_version: &str) -> Result<(&str, &str), ScaleError> {
    match api_version.split_once('/') {
        None => Ok(("", api_version)),
        Some((_, version)) if version.contains('/') => Err(ScaleError::InvalidVersion(api_version.into())),
        Some((group, version)) => Ok((group, version)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_versions_are_split() {
        assert_eq!(parse_group_version("apps/v1").unwrap(), ("apps", "v1"));
        assert_eq!(parse_group_version("v1").unwrap(), ("", "v1"));
        let error = parse_group_version("a/b/c").unwrap_err();
        assert_eq!(error.to_string(), "unexpected GroupVersion string: a/b/c");
    }
}
