//! The order in which groups and versions are told to clients, who take the first one that suits them: by the priorities of
//! API services, the highest first.

use std::{cmp::Ordering, sync::Arc};

use apiextensions::version_order;

use super::{Api, OWN_GROUP};

/// What comes before everything else: API services themselves.
const FIRST: i64 = 20_000;
/// Of groups that no API service is about.
const OTHER: i64 = 1000;

/// API services by group; groups and the versions of each in order.
pub fn grouped(apis: &[Arc<Api>]) -> Vec<Vec<Arc<Api>>> {
    let mut sorted = apis.to_vec();
    sorted.sort_by(|a, b| b.group_priority.cmp(&a.group_priority).then_with(|| a.name.cmp(&b.name)));
    let mut groups: Vec<Vec<Arc<Api>>> = Vec::new();
    for api in sorted {
        match groups.iter_mut().find(|group| group[0].group == api.group) {
            Some(group) => group.push(api),
            None => groups.push(vec![api]),
        }
    }
    for group in &mut groups {
        group.sort_by(|a, b| versions((b.version_priority, &b.version), (a.version_priority, &a.version)));
    }
    groups
}

/// The priority of a group: the highest of its API services.
pub fn priority(apis: &[Arc<Api>], group: &str) -> i64 {
    if group == OWN_GROUP {
        return FIRST;
    }
    let of_group = apis.iter().filter(|api| api.group == group);
    of_group.map(|api| api.group_priority).max().unwrap_or(OTHER)
}

/// Which of two versions, each with its priority, is the greater.
pub fn versions(a: (i64, &str), b: (i64, &str)) -> Ordering {
    a.0.cmp(&b.0).then_with(|| version_order(a.1, b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_come_before_names() {
        let api = |group: &str, version: &str, group_priority, version_priority| {
            let (group, version) = (group.to_owned(), version.to_owned());
            let name = format!("{version}.{group}");
            let (condition, remote) = (Default::default(), None);
            Arc::new(Api { name, group, version, group_priority, version_priority, condition, remote })
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
            grouped(&apis).iter().map(|group| group.iter().map(|api| api.name.clone()).collect()).collect();
        assert_eq!(told, [vec!["v1.c"], vec!["v1.b"], vec!["v1.a", "v2.a", "v1beta1.a", "v1alpha1.a"]]);
        assert_eq!((priority(&apis, "a"), priority(&apis, "x"), priority(&apis, OWN_GROUP)), (10, OTHER, FIRST));
    }
}
