//! Group, version and kind of types.

use std::collections::{BTreeSet, HashMap};

use serde_json::json;

use crate::{
    Value, discovery,
    schema::{TypeId, schema, versions_without_resources},
};

/// Group, version and kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupVersionKind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: String,
}

impl GroupVersionKind {
    /// Encodes an entry of `x-kubernetes-group-version-kind`.
    pub fn to_value(&self) -> Value {
        json!({"group": self.group, "version": self.version, "kind": self.kind})
    }
}

/// The groups missing in upstream's general client.
const GROUPS_WITHOUT_CLIENTS: &[&str] =
    &["admission.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "imagepolicy.k8s.io"];

/// The kinds of `meta/v1` without a group.
const META_KINDS: &[&str] = &["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status"];

/// All group-versions with kinds.
pub(super) fn all_group_versions() -> BTreeSet<(&'static str, &'static str)> {
    discovery::served_group_versions(discovery::ALL_ENABLED).into_iter().chain(versions_without_resources()).collect()
}

/// The group-versions of upstream's general client, listed for common kinds in documents of custom resources.
pub(super) fn client_group_versions() -> BTreeSet<(&'static str, &'static str)> {
    all_group_versions().into_iter().filter(|(group, _)| !GROUPS_WITHOUT_CLIENTS.contains(group)).collect()
}

/// The kinds of resources, their lists and their subresources.
pub(super) fn kinds_by_type() -> HashMap<TypeId, GroupVersionKind> {
    let mut kinds = HashMap::new();
    let mut add = |group: &'static str, version: &'static str, kind: &str, key: &str| {
        if let Some(id) = schema().type_named(key) {
            kinds.insert(id, GroupVersionKind { group, version, kind: kind.to_owned() });
        }
    };
    for resource in schema().resources() {
        let key = &schema().get(resource.ty).name;
        add(resource.group, resource.version, resource.kind, key);
        add(resource.group, resource.version, &format!("{}List", resource.kind), &format!("{key}List"));
        for sub in &resource.subresources {
            if let Some((group, version)) = sub.group_version {
                let package = group.split('.').next().unwrap_or(group);
                add(group, version, sub.kind, &format!("{package}/{version}.{}", sub.kind));
            }
        }
    }
    META_KINDS.iter().for_each(|kind| add("", "v1", kind, &format!("meta/v1.{kind}")));
    kinds
}
