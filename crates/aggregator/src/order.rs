//! The order of groups and versions in discovery: by the priorities of API services, highest first.

use std::{cmp::Ordering, sync::Arc};

use apiextensions::version_order;

use super::{ApiService, OWN_GROUP};

/// The priority of the group of `APIService` itself.
const OWN_GROUP_PRIORITY: i64 = 20_000;
/// The priority of groups without an API service.
const DEFAULT_PRIORITY: i64 = 1000;

/// Groups API services; groups and their versions are ordered by priority.
pub fn group_by_priority(apis: &[Arc<ApiService>]) -> Vec<Vec<Arc<ApiService>>> {
    let mut sorted = apis.to_vec();
    sorted.sort_by(|a, b| b.group_priority.cmp(&a.group_priority).then_with(|| a.name.cmp(&b.name)));
    let mut groups: Vec<Vec<Arc<ApiService>>> = Vec::new();
    for api in sorted {
        match groups.iter_mut().find(|group| group[0].group == api.group) {
            Some(group) => group.push(api),
            None => groups.push(vec![api]),
        }
    }
    for group in &mut groups {
        group.sort_by(|a, b| compare_versions((b.version_priority, &b.version), (a.version_priority, &a.version)));
    }
    groups
}

/// The priority of a group: the highest of its API services.
pub fn group_priority(apis: &[Arc<ApiService>], group: &str) -> i64 {
    if group == OWN_GROUP {
        return OWN_GROUP_PRIORITY;
    }
    let of_group = apis.iter().filter(|api| api.group == group);
    of_group.map(|api| api.group_priority).max().unwrap_or(DEFAULT_PRIORITY)
}

/// Compares two versions by priority, then by version order.
pub fn compare_versions(a: (i64, &str), b: (i64, &str)) -> Ordering {
    a.0.cmp(&b.0).then_with(|| version_order(a.1, b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_ordered_by_priority() {
        let api = |group: &str, version: &str, group_priority, version_priority| {
            let (group, version) = (group.to_owned(), version.to_owned());
            let name = format!("{version}.{group}");
            let (condition, remote) = (Default::default(), None);
            Arc::new(ApiService { name, group, version, group_priority, version_priority, condition, remote })
        };
        let apis = [
            api("b", "v1", 10, 1),
            api("a", "v1alpha1", 10, 5),
            api("a", "v2", 5, 5),
            api("a", "v1beta1", 5, 5),
            api("a", "v1", 5, 9),
            api("c", "v1", 20, 1),
        ];
        let told: Vec<Vec<String>> =
            group_by_priority(&apis).iter().map(|group| group.iter().map(|api| api.name.clone()).collect()).collect();
        assert_eq!(told, [vec!["v1.c"], vec!["v1.b"], vec!["v1.a", "v2.a", "v1beta1.a", "v1alpha1.a"]]);
        assert_eq!(
            (group_priority(&apis, "a"), group_priority(&apis, "x"), group_priority(&apis, OWN_GROUP)),
            (10, DEFAULT_PRIORITY, OWN_GROUP_PRIORITY)
        );
    }
}
