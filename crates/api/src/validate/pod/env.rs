//! Validation of the environment of containers.

use crate::validate::prelude::*;
use crate::{quantity::Quantity, validate::names::listed};

/// All fields of a pod that can be told to containers.
const KNOWN: &str = "metadata.annotations metadata.labels metadata.name metadata.namespace metadata.uid spec.nodeName \
    spec.restartPolicy spec.serviceAccountName spec.schedulerName status.phase status.hostIP status.hostIPs \
    status.podIP status.podIPs spec.host";
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const BYTES: &[&str] = &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// The faults of a reference to a field of the pod, one of those allowed.
pub fn field_of_pod(at: &At, allowed: &str, e: &mut Errors) {
    let path = at.get("fieldPath");
    if !at.get("apiVersion").require(e) || !path.require(e) {
        return;
    }
    let (version, text) = (at.get("apiVersion").text(), path.text());
    if version != "v1" {
        return path.invalid_text(e, format!("error converting fieldPath: unsupported pod version: {version}"));
    }
    if let Some((head, subscript)) = subscripted(text) {
        match head {
            "metadata.annotations" => {
                at.form_as(e, &subscript.to_lowercase(), names::qualified);
            }
            "metadata.labels" => {
                at.form_as(e, subscript, names::qualified);
            }
            _ => {
                let message = "error converting fieldPath: field label does not support subscript";
                path.invalid_text(e, format!("{message}: {text}"));
            }
        }
    } else if !listed(KNOWN, text) {
        path.invalid_text(e, format!("error converting fieldPath: field label not supported: {text}"));
    } else if !listed(allowed, text) && text != "spec.host" {
        path.unsupported(e, &allowed.split(' ').collect::<Vec<_>>());
    }
}

/// `metadata.labels['a']` in two.
fn subscripted(path: &str) -> Option<(&str, &str)> {
    let (head, tail) = path.strip_suffix("']")?.split_once("['")?;
    (!head.is_empty()).then_some((head, tail))
}

/// The faults of a reference to a resource of a container, which must be named in volumes.
pub fn resource_of_container(at: &At, place: &str, e: &mut Errors) {
    let (name, container) = (at.get("resource"), at.get("containerName"));
    let huge = |text: &str| text.starts_with("requests.hugepages-") || text.starts_with("limits.hugepages-");
    if place == "volume" && container.is_empty() {
        container.required(e, "");
    } else if name.is_empty() {
        name.required(e, "");
    } else if !RESOURCES.contains(&name.text()) && !huge(name.text()) {
        name.unsupported(e, RESOURCES);
    }
    let divisor = at.get("divisor");
    let Some(quantity) = divisor.quantity().filter(|_| divisor.sign() != 0) else { return };
    let text = Quantity::to_string(&quantity);
    let (values, what) = match name.text() {
        "limits.cpu" | "requests.cpu" => {
            if text != "1m" && text != "1" {
                let message = "only divisor's values 1m and 1 are supported with the cpu resource";
                divisor.invalid_as(e, name.text(), message);
            }
            return;
        }
        "limits.memory" | "requests.memory" => (BYTES, "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => (BYTES, "local ephemeral storage"),
        name if huge(name) => (BYTES, "hugepages"),
        _ => return,
    };
    if !values.contains(&text.as_str()) {
        let message = format!("only divisor's values {} are supported with the {what} resource", BYTES.join(", "));
        divisor.invalid_as(e, name.text(), message);
    }
}
