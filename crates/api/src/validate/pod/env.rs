//! Validation of container environments.

use crate::validate::prelude::*;
use crate::{quantity::Quantity, validate::names::is_listed};

/// The pod fields available to the downward API.
const POD_FIELDS: &str = "metadata.annotations metadata.labels metadata.name metadata.namespace metadata.uid spec.nodeName \
    spec.restartPolicy spec.serviceAccountName spec.schedulerName status.phase status.hostIP status.hostIPs \
    status.podIP status.podIPs spec.host";
const CONTAINER_RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const BYTE_DIVISORS: &[&str] = &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// Validates a pod field reference, one of those allowed.
pub fn validate_field_of_pod(at: &FieldCursor, allowed: &str, e: &mut ErrorList) {
    let path = at.get("fieldPath");
    if !at.get("apiVersion").require_value(e) || !path.require_value(e) {
        return;
    }
    let (version, text) = (at.get("apiVersion").text(), path.text());
    if version != "v1" {
        return path.invalid_text(e, format!("error converting fieldPath: unsupported pod version: {version}"));
    }
    if let Some((head, subscript)) = split_subscript(text) {
        match head {
            "metadata.annotations" => {
                at.check_format_as(e, &subscript.to_lowercase(), names::check_qualified_name);
            }
            "metadata.labels" => {
                at.check_format_as(e, subscript, names::check_qualified_name);
            }
            _ => {
                let message = "error converting fieldPath: field label does not support subscript";
                path.invalid_text(e, format!("{message}: {text}"));
            }
        }
    } else if !is_listed(POD_FIELDS, text) {
        path.invalid_text(e, format!("error converting fieldPath: field label not supported: {text}"));
    } else if !is_listed(allowed, text) && text != "spec.host" {
        path.not_supported(e, &allowed.split(' ').collect::<Vec<_>>());
    }
}

/// Splits `metadata.labels['a']`.
fn split_subscript(path: &str) -> Option<(&str, &str)> {
    let (head, tail) = path.strip_suffix("']")?.split_once("['")?;
    (!head.is_empty()).then_some((head, tail))
}

/// Validates a container resource reference; volumes must name the container.
pub fn validate_resource_of_container(at: &FieldCursor, place: &str, e: &mut ErrorList) {
    let (name, container) = (at.get("resource"), at.get("containerName"));
    let huge = |text: &str| text.starts_with("requests.hugepages-") || text.starts_with("limits.hugepages-");
    if place == "volume" && container.is_empty() {
        container.required(e, "");
    } else if name.is_empty() {
        name.required(e, "");
    } else if !CONTAINER_RESOURCES.contains(&name.text()) && !huge(name.text()) {
        name.not_supported(e, CONTAINER_RESOURCES);
    }
    let divisor = at.get("divisor");
    let Some(quantity) = divisor.quantity().filter(|_| divisor.quantity_sign() != 0) else { return };
    let text = Quantity::to_string(&quantity);
    let (values, what) = match name.text() {
        "limits.cpu" | "requests.cpu" => {
            if text != "1m" && text != "1" {
                let message = "only divisor's values 1m and 1 are supported with the cpu resource";
                divisor.invalid_as(e, name.text(), message);
            }
            return;
        }
        "limits.memory" | "requests.memory" => (BYTE_DIVISORS, "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => (BYTE_DIVISORS, "local ephemeral storage"),
        name if huge(name) => (BYTE_DIVISORS, "hugepages"),
        _ => return,
    };
    if !values.contains(&text.as_str()) {
        let message =
            format!("only divisor's values {} are supported with the {what} resource", BYTE_DIVISORS.join(", "));
        divisor.invalid_as(e, name.text(), message);
    }
}
