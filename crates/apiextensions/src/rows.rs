//! A snapshot of all served custom resources, by path and by group.

use std::{collections::HashMap, sync::Arc};

use api::schema::{Resource, ResourceRef};

use crate::{Definition, version_order};

type Named = HashMap<&'static str, Arc<Resource>>;

/// A snapshot of all served custom resources.
#[derive(Debug, Default)]
pub struct Rows {
    /// Grows with every change.
    pub generation: u64,
    /// By group, version and plural name.
    by_path: HashMap<&'static str, HashMap<&'static str, Named>>,
    /// Groups by name, each with its versions in order of preference.
    groups: Vec<(&'static str, Vec<&'static str>)>,
    definitions: HashMap<String, Arc<Definition>>,
}

impl Rows {
    /// Builds a snapshot from CRDs that are sorted by name.
    pub fn new<'a>(definitions: impl Iterator<Item = &'a Arc<Definition>>, generation: u64) -> Self {
        let mut rows = Self { generation, ..Self::default() };
        for definition in definitions {
            rows.definitions.insert(definition.name.clone(), definition.clone());
            for row in definition.rows() {
                rows.add(row);
            }
        }
        rows.groups.sort_unstable();
        rows.groups.iter_mut().for_each(|(_, versions)| versions.sort_by(|a, b| version_order(b, a)));
        rows
    }

    fn add(&mut self, row: Arc<Resource>) {
        let (group, version) = (row.group, row.version);
        match self.groups.iter_mut().find(|(name, _)| *name == group) {
            Some((_, versions)) if versions.contains(&version) => {}
            Some((_, versions)) => versions.push(version),
            None => self.groups.push((group, vec![version])),
        }
        self.by_path.entry(group).or_default().entry(version).or_default().insert(row.name, row);
    }

    /// Returns the resource with a group, version and plural name.
    pub fn row(&self, group: &str, version: &str, plural: &str) -> Option<ResourceRef> {
        self.by_path.get(group)?.get(version)?.get(plural).cloned().map(ResourceRef::Custom)
    }

    /// Returns the resource whose objects have a kind.
    pub fn row_of_kind(&self, group: &str, version: &str, kind: &str) -> Option<ResourceRef> {
        let named = self.by_path.get(group)?.get(version)?;
        named.values().find(|row| row.kind == kind).cloned().map(ResourceRef::Custom)
    }

    /// Returns the resources of a group-version, sorted by name.
    pub fn of_version(&self, group: &str, version: &str) -> Vec<&Resource> {
        let named = self.by_path.get(group).and_then(|versions| versions.get(version));
        let mut rows: Vec<&Resource> = named.into_iter().flat_map(HashMap::values).map(|row| &**row).collect();
        rows.sort_unstable_by_key(|row| row.name);
        rows
    }

    /// Returns all served versions of a resource.
    pub fn versions<'a>(&'a self, group: &str, plural: &'a str) -> impl Iterator<Item = ResourceRef> + 'a {
        let versions = self.by_path.get(group).into_iter().flat_map(HashMap::values);
        versions.filter_map(|rows| rows.get(plural).cloned().map(ResourceRef::Custom))
    }

    /// Returns the resource of a kind.
    pub fn of_kind(&self, group: &str, version: &str, kind: &str) -> Option<ResourceRef> {
        let rows = self.by_path.get(group)?.get(version)?;
        rows.values().find(|row| row.kind == kind).cloned().map(ResourceRef::Custom)
    }

    /// Returns the groups by name, each with its versions in order of preference.
    pub fn groups(&self) -> &[(&'static str, Vec<&'static str>)] {
        &self.groups
    }

    /// Returns all resources.
    pub fn all(&self) -> Vec<&Resource> {
        let named = self.by_path.values().flat_map(HashMap::values);
        named.flat_map(HashMap::values).map(|row| &**row).collect()
    }

    /// Returns a CRD by name.
    pub fn definition(&self, name: &str) -> Option<&Arc<Definition>> {
        self.definitions.get(name)
    }
}
