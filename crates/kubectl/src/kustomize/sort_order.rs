//! The order of the output: by kinds, unless the kustomization asks for the order of its files.

use super::{kustomization::Kustomization, resources::BuildResource};
use crate::{
    errors::CommandResult,
    object::{ObjectFields, group_version_kind, name_of, namespace_of},
};

const FIRST: [&str; 22] = [
    "Namespace",
    "ResourceQuota",
    "StorageClass",
    "CustomResourceDefinition",
    "ServiceAccount",
    "PodSecurityPolicy",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "Endpoints",
    "Service",
    "LimitRange",
    "PriorityClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
];
const LAST: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// The place of a kind in the order of upstream: those that others need first, then by name.
pub fn kind_rank(kind: &str) -> (usize, &str) {
    (FIRST.iter().position(|known| *known == kind).unwrap_or(FIRST.len()), kind)
}

/// Sorts the resources as `sortOptions` say.
pub fn sort_resources(kustomization: &Kustomization, resources: &mut [BuildResource]) -> CommandResult {
    let options = &kustomization.fields["sortOptions"];
    let legacy = &options["legacySortOptions"];
    match options.text("order") {
        "fifo" => return Ok(()),
        "" | "legacy" => {}
        other => crate::bail!("the field 'sortOptions.order' must be one of [fifo, legacy]; it is {other}"),
    }
    let names = |field: &str, default: &[&str]| -> Vec<String> {
        match legacy.list(field) {
            [] if legacy.is_null() => default.iter().map(|name| (*name).to_owned()).collect(),
            list => list.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect(),
        }
    };
    let (first, last) = (names("orderFirst", &FIRST), names("orderLast", &LAST));
    let rank = |kind: &str| -> i64 {
        let at = |list: &[String]| list.iter().position(|name| name == kind).map(|at| at as i64);
        match (at(&last), at(&first)) {
            (Some(at), _) => 1 + at,
            (None, Some(at)) => at - first.len() as i64,
            (None, None) => 0,
        }
    };
    resources.sort_by_cached_key(|resource| {
        let (group, version, kind) = group_version_kind(&resource.object);
        let part = |text: &str, none: &str| if text.is_empty() { none.to_owned() } else { text.to_owned() };
        let rank = rank(&kind);
        let kind_text = format!("{}_{}_{}", part(&group, "~G"), part(&version, "~V"), part(&kind, "~K"));
        let name = format!("{}|{}", part(namespace_of(&resource.object), "~X"), part(name_of(&resource.object), "~N"));
        (rank, kind_text, name)
    });
    Ok(())
}
