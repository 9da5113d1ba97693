//! Resource names: classification and validation for containers, pods and quotas.

use super::{names::is_listed, prelude::*};

/// The unqualified resource names.
const STANDARD_RESOURCES: &str = "cpu memory ephemeral-storage requests.cpu requests.memory requests.ephemeral-storage limits.cpu \
    limits.memory limits.ephemeral-storage pods resourcequotas services replicationcontrollers secrets \
    configmaps persistentvolumeclaims storage requests.storage services.nodeports services.loadbalancers";
/// The resources with integer quantities.
const INTEGER_RESOURCES: &str = "pods resourcequotas services replicationcontrollers secrets configmaps persistentvolumeclaims \
    services.nodeports services.loadbalancers";

pub(super) fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_quota_huge_page(name: &str) -> bool {
    is_huge_page(name) || name.starts_with("requests.hugepages-")
}

/// Whether a name is unqualified or in a kubernetes.io domain.
pub(super) fn is_native_resource(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

pub(super) fn is_extended_resource(name: &str) -> bool {
    !is_native_resource(name)
        && !name.starts_with("requests.")
        && names::check_qualified_name(&format!("requests.{name}")).is_empty()
}

/// Whether only integer quantities are valid.
pub(super) fn is_integer_resource(name: &str) -> bool {
    if matches!(name, "cpu" | "memory" | "ephemeral-storage") {
        return false;
    }
    is_listed(INTEGER_RESOURCES, name) || is_extended_resource(name)
}

/// Whether requests may be less than limits.
pub(super) fn is_overcommit_allowed(name: &str) -> bool {
    is_native_resource(name) && !is_huge_page(name)
}

/// Whether a quota can limit the resource.
pub(super) fn is_quota_resource(name: &str) -> bool {
    (is_listed(STANDARD_RESOURCES, name) && name != "storage") || is_quota_huge_page(name)
}

/// Validates the name of any resource.
pub(super) fn validate_resource_name(name: &str, at: &FieldCursor, e: &mut ErrorList) {
    let faults = names::check_qualified_name(name);
    if faults.is_empty() && !name.contains('/') && !is_listed(STANDARD_RESOURCES, name) && !is_quota_huge_page(name) {
        at.invalid_as(e, name, "must be a standard resource type or fully qualified");
    }
    faults.into_iter().for_each(|fault| at.invalid_as(e, name, fault));
}

/// Validates the name of a container resource.
pub(super) fn validate_container_resource_name(name: &str, at: &FieldCursor, e: &mut ErrorList) {
    if matches!(name, "cpu" | "memory" | "ephemeral-storage") {
        return;
    }
    validate_resource_name(name, at, e);
    if !name.contains('/') {
        if !["cpu", "memory", "ephemeral-storage"].contains(&name) && !is_huge_page(name) {
            at.invalid_as(e, name, "must be a standard resource for containers");
        }
    } else if !is_native_resource(name) && !is_extended_resource(name) {
        at.invalid_as(e, name, "doesn't follow extended resource name standard");
    }
}

/// Validates the name of a pod-level resource.
pub(super) fn validate_pod_resource_name(name: &str, at: &FieldCursor, e: &mut ErrorList) {
    let before = e.len();
    validate_resource_name(name, at, e);
    if e.len() == before && name != "cpu" && name != "memory" && !is_huge_page(name) {
        let error = FieldError::not_supported(at.to_string(), name, &["cpu", "hugepages-", "memory"]);
        e.push(error);
    }
}

/// Validates the name of a quota resource.
pub(super) fn validate_quota_resource_name(name: &str, at: &FieldCursor, e: &mut ErrorList) {
    validate_resource_name(name, at, e);
    if !name.contains('/') && !is_quota_resource(name) {
        at.invalid_as(e, name, "must be a standard resource for quota");
    }
}
