//! The mapping from arguments and kinds to resources: plural and singular names, short names, `TYPE.VERSION.GROUP`.

use api::json::go_quote;

use super::{ApiResource, DiscoveryData, group_version};
use crate::errln;

/// A resource with its kind and scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestMapping {
    /// The group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The plural name.
    pub resource: String,
    /// Whether objects are in namespaces.
    pub namespaced: bool,
}

impl RestMapping {
    /// The mapping of a discovered resource.
    pub fn from_resource(resource: &ApiResource) -> Self {
        RestMapping {
            group: resource.group.clone(),
            version: resource.version.clone(),
            kind: resource.kind.clone(),
            resource: resource.name.clone(),
            namespaced: resource.namespaced,
        }
    }

    /// The mapping of the lists of a resource, under the name that is guessed for their kind.
    pub fn of_lists(resource: &ApiResource) -> Self {
        let kind = format!("{}List", resource.kind);
        RestMapping { resource: format!("{}s", kind.to_lowercase()), kind, ..Self::from_resource(resource) }
    }

    /// `apiVersion` of the kind.
    pub fn api_version(&self) -> String {
        group_version(&self.group, &self.version)
    }

    /// `resource.group`, or the resource alone in the core group.
    pub fn qualified_resource(&self) -> String {
        if self.group.is_empty() { self.resource.clone() } else { format!("{}.{}", self.resource, self.group) }
    }

    /// `kind.group` in lower case, as in messages about an object.
    pub fn qualified_kind(&self) -> String {
        let kind = self.kind.to_lowercase();
        if self.group.is_empty() { kind } else { format!("{kind}.{}", self.group) }
    }

    /// The path of the collection or of an object.
    pub fn path(&self, namespace: &str, name: &str) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let mut path = format!("{root}/{}", self.api_version());
        if self.namespaced && !namespace.is_empty() {
            path += &format!("/namespaces/{namespace}");
        }
        path += &format!("/{}", self.resource);
        if !name.is_empty() {
            path += &format!("/{name}");
        }
        path
    }
}

/// Resource, version and group.
type FullName = (String, String, String);

/// Splits `resource.version.group` and `resource.group`.
fn parse_resource_argument(argument: &str) -> (Option<FullName>, (String, String)) {
    let mut parts = argument.splitn(3, '.').map(str::to_owned);
    let full = match (parts.next(), parts.next(), parts.next()) {
        (Some(resource), Some(version), Some(group)) => Some((resource, version, group)),
        _ => None,
    };
    let (resource, group) = argument.split_once('.').unwrap_or((argument, ""));
    (full, (resource.to_owned(), group.to_owned()))
}

impl DiscoveryData {
    /// Resources with their group's order: the core group and preferred versions first.
    fn by_priority(&self) -> Vec<&ApiResource> {
        let mut found: Vec<&ApiResource> =
            self.resources.iter().filter(|resource| !resource.name.contains('/')).collect();
        let rank = |resource: &ApiResource| {
            let at = self.groups.iter().position(|group| group.name == resource.group).unwrap_or(usize::MAX);
            let core = resource.group.is_empty() && resource.version == "v1";
            let preferred = self.groups.get(at).is_some_and(|group| group.preferred == resource.version);
            (!core, at, !preferred)
        };
        found.sort_by_key(|resource| rank(resource));
        found
    }

    /// Finds a resource by plural, singular or short name; group and version may be empty.
    pub fn find_resource(&self, name: &str, version: &str, group: &str) -> Option<&ApiResource> {
        let name = name.to_lowercase();
        let all = self.by_priority();
        let (long, in_group) = self.expand_short_name(&name, group);
        let group = in_group.as_deref().unwrap_or(group);
        let fits = |resource: &&&ApiResource| {
            let singular =
                if resource.singular.is_empty() { resource.kind.to_lowercase() } else { resource.singular.clone() };
            (resource.name == long || singular == long) && (version.is_empty() || resource.version == version)
        };
        let exact = all.iter().filter(fits).find(|resource| group.is_empty() || resource.group == group);
        // A part of the group's name is enough.
        let partial =
            || all.iter().filter(fits).find(|resource| !group.is_empty() && resource.group.starts_with(group));
        exact.or_else(partial).copied()
    }

    /// All resources of that plural, singular or short name, in order of preference.
    pub fn matching_resources(&self, name: &str) -> Vec<&ApiResource> {
        let name = name.to_lowercase();
        let fits = |resource: &&ApiResource| {
            resource.name == name || resource.singular == name || resource.short_names.contains(&name)
        };
        self.by_priority().into_iter().filter(fits).collect()
    }

    /// The long form of a short name, and its group.
    fn expand_short_name(&self, name: &str, group: &str) -> (String, Option<String>) {
        let in_group = |resource: &ApiResource| group.is_empty() || resource.group == group;
        let is_long =
            |resource: &ApiResource| in_group(resource) && (resource.name == name || resource.singular == name);
        if self.resources.iter().any(is_long) {
            return (name.to_owned(), None);
        }
        let has_short = |resource: &ApiResource| resource.short_names.iter().any(|short| short == name);
        let mut matches = self.by_priority().into_iter().filter(|resource| in_group(resource) && has_short(resource));
        if let Some(first) = matches.next() {
            let mut warned: Vec<(String, String)> = vec![(first.group.clone(), first.name.clone())];
            for other in matches {
                let identity = (other.group.clone(), other.name.clone());
                if !warned.contains(&identity) {
                    let full = if other.group.is_empty() {
                        other.name.clone()
                    } else {
                        format!("{}.{}", other.name, other.group)
                    };
                    errln!("Warning: short name {} could also match lower priority resource {full}", go_quote(name));
                    warned.push(identity);
                }
            }
            return (first.name.clone(), Some(first.group.clone()));
        }
        let prefix =
            |resource: &&ApiResource| !group.is_empty() && resource.group.starts_with(group) && has_short(resource);
        match self.resources.iter().find(prefix) {
            Some(found) => (found.name.clone(), Some(found.group.clone())),
            None => (name.to_owned(), None),
        }
    }

    /// Finds the resource of a kind; without a version the preferred one.
    pub fn find_kind(&self, group: &str, kind: &str, version: &str) -> Option<&ApiResource> {
        let fits = |resource: &&&ApiResource| {
            (resource.kind == kind || resource.kind.to_lowercase() == kind)
                && resource.group == group
                && (version.is_empty() || resource.version == version)
        };
        self.by_priority().iter().find(fits).copied()
    }

    /// The mapping of an argument: a resource or a kind.
    pub fn find_argument(&self, argument: &str) -> Option<RestMapping> {
        let (full, (name, group)) = parse_resource_argument(argument);
        if let Some((resource, version, group)) = &full
            && let Some(found) = self.find_resource(resource, version, group)
        {
            return Some(RestMapping::from_resource(found));
        }
        if let Some(found) = self.find_resource(&name, "", &group) {
            return Some(RestMapping::from_resource(found));
        }
        if let Some((kind, version, group)) = &full
            && let Some(found) = self.find_kind(group, kind, version)
        {
            return Some(RestMapping::from_resource(found));
        }
        self.find_kind(&group, &name, "").map(RestMapping::from_resource)
    }

    /// The resources of a category, as arguments.
    pub fn expand_category(&self, category: &str) -> Vec<String> {
        let mut names = Vec::new();
        for resource in self.resources.iter().filter(|resource| !resource.name.contains('/')) {
            if resource.categories.iter().any(|name| name == category) {
                let name = RestMapping::from_resource(resource).qualified_resource();
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        names
    }
}
