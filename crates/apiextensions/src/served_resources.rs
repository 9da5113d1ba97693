//! A snapshot of all served custom resources, by path and by group.

use std::{collections::HashMap, sync::Arc};

use api::schema::{Resource, ResourceRef};

use crate::{CrdInfo, version_order};

type ResourcesByName = HashMap<&'static str, Arc<Resource>>;

/// A snapshot of all served custom resources.
#[derive(Debug, Default)]
pub struct ServedResources {
    /// Grows with every change.
    pub generation: u64,
    /// By group, version and plural name.
    by_path: HashMap<&'static str, HashMap<&'static str, ResourcesByName>>,
    /// Groups by name, each with its versions in order of preference.
    groups: Vec<(&'static str, Vec<&'static str>)>,
    crds: HashMap<String, Arc<CrdInfo>>,
}

impl ServedResources {
    /// Builds a snapshot from CRDs that are sorted by name.
    pub fn new<'a>(crds: impl Iterator<Item = &'a Arc<CrdInfo>>, generation: u64) -> Self {
        let mut served = Self { generation, ..Self::default() };
        for crd in crds {
            served.crds.insert(crd.name.clone(), crd.clone());
            for resource in crd.served_resources() {
                served.add_resource(resource);
            }
        }
        served.groups.sort_unstable();
        served.groups.iter_mut().for_each(|(_, versions)| versions.sort_by(|a, b| version_order(b, a)));
        served
    }

    fn add_resource(&mut self, resource: Arc<Resource>) {
        let (group, version) = (resource.group, resource.version);
        match self.groups.iter_mut().find(|(name, _)| *name == group) {
            Some((_, versions)) if versions.contains(&version) => {}
            Some((_, versions)) => versions.push(version),
            None => self.groups.push((group, vec![version])),
        }
        self.by_path.entry(group).or_default().entry(version).or_default().insert(resource.name, resource);
    }

    /// Returns the resource with a group, version and plural name.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<ResourceRef> {
        self.by_path.get(group)?.get(version)?.get(plural).cloned().map(ResourceRef::Custom)
    }

    /// Returns the resource whose objects have a kind.
    pub fn resource_of_kind(&self, group: &str, version: &str, kind: &str) -> Option<ResourceRef> {
        let named = self.by_path.get(group)?.get(version)?;
        named.values().find(|resource| resource.kind == kind).cloned().map(ResourceRef::Custom)
    }

    /// Returns the resources of a group-version, sorted by name.
    pub fn resources_of_version(&self, group: &str, version: &str) -> Vec<&Resource> {
        let named = self.by_path.get(group).and_then(|versions| versions.get(version));
        let mut served: Vec<&Resource> =
            named.into_iter().flat_map(HashMap::values).map(|resource| &**resource).collect();
        served.sort_unstable_by_key(|resource| resource.name);
        served
    }

    /// Returns all served versions of a resource.
    pub fn served_versions<'a>(&'a self, group: &str, plural: &'a str) -> impl Iterator<Item = ResourceRef> + 'a {
        let versions = self.by_path.get(group).into_iter().flat_map(HashMap::values);
        versions.filter_map(|served| served.get(plural).cloned().map(ResourceRef::Custom))
    }

    /// Returns the groups by name, each with its versions in order of preference.
    pub fn groups(&self) -> &[(&'static str, Vec<&'static str>)] {
        &self.groups
    }

    /// Returns all resources.
    pub fn all_resources(&self) -> Vec<&Resource> {
        let named = self.by_path.values().flat_map(HashMap::values);
        named.flat_map(HashMap::values).map(|resource| &**resource).collect()
    }

    /// Returns a CRD by name.
    pub fn crd(&self, name: &str) -> Option<&Arc<CrdInfo>> {
        self.crds.get(name)
    }
}
