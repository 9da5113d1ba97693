//! The names of resources: which there are, what they may be used for, and how they are counted.

use super::{names::listed, prelude::*};

/// Resources without a domain.
const STANDARD: &str = "cpu memory ephemeral-storage requests.cpu requests.memory requests.ephemeral-storage limits.cpu \
    limits.memory limits.ephemeral-storage pods resourcequotas services replicationcontrollers secrets \
    configmaps persistentvolumeclaims storage requests.storage services.nodeports services.loadbalancers";
/// Resources that are counted.
const COUNTED: &str = "pods resourcequotas services replicationcontrollers secrets configmaps persistentvolumeclaims \
    services.nodeports services.loadbalancers";

pub(super) fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_quota_huge_page(name: &str) -> bool {
    is_huge_page(name) || name.starts_with("requests.hugepages-")
}

/// Kubernetes' own: without a domain, or in its domain.
pub(super) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

pub(super) fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified(&format!("requests.{name}")).is_empty()
}

/// Whether only whole amounts make sense.
pub(super) fn is_integer(name: &str) -> bool {
    if matches!(name, "cpu" | "memory" | "ephemeral-storage") {
        return false;
    }
    listed(COUNTED, name) || is_extended(name)
}

/// Whether more may be promised than there is.
pub(super) fn overcommits(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

/// Whether a quota can limit it.
pub(super) fn is_quota(name: &str) -> bool {
    (listed(STANDARD, name) && name != "storage") || is_quota_huge_page(name)
}

/// The faults of the name of any resource.
pub(super) fn any(name: &str, at: &At, e: &mut Errors) {
    let faults = names::qualified(name);
    if faults.is_empty() && !name.contains('/') && !listed(STANDARD, name) && !is_quota_huge_page(name) {
        at.invalid_as(e, name, "must be a standard resource type or fully qualified");
    }
    faults.into_iter().for_each(|fault| at.invalid_as(e, name, fault));
}

/// The faults of the name of a resource that a container may ask for.
pub(super) fn of_container(name: &str, at: &At, e: &mut Errors) {
    if matches!(name, "cpu" | "memory" | "ephemeral-storage") {
        return;
    }
    any(name, at, e);
    if !name.contains('/') {
        if !["cpu", "memory", "ephemeral-storage"].contains(&name) && !is_huge_page(name) {
            at.invalid_as(e, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        at.invalid_as(e, name, "doesn't follow extended resource name standard");
    }
}

/// The faults of the name of a resource that a pod may ask for as a whole.
pub(super) fn of_pod(name: &str, at: &At, e: &mut Errors) {
    let before = e.len();
    any(name, at, e);
    if e.len() == before && name != "cpu" && name != "memory" && !is_huge_page(name) {
        let error = FieldError::not_supported(at.to_string(), name, &["cpu", "hugepages-", "memory"]);
        e.push(error);
    }
}

/// The faults of the name of a resource that a quota limits.
pub(super) fn of_quota(name: &str, at: &At, e: &mut Errors) {
    any(name, at, e);
    if !name.contains('/') && !is_quota(name) {
        at.invalid_as(e, name, "must be a standard resource for quota");
    }
}
