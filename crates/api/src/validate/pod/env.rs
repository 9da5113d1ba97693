//! Validation of the environment of containers.

use crate::{
    quantity::Quantity,
    validate::{Errors, at::At, names, path},
};

/// The fields of a pod that a variable may have.
const FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// All fields of a pod that can be told to containers.
const KNOWN: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
    "spec.host",
];
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const BYTES: &[&str] = &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// A check of one source of a value.
type Check = fn(&At, &mut Errors);

/// The faults of variables.
pub(super) fn variables(list: &At, e: &mut Errors) {
    for variable in list.items() {
        variable.get("name").required_form(e, names::variable);
        let from = variable.get("valueFrom");
        if from.exists() {
            value_from(&from, !variable.get("value").is_empty(), e);
        }
    }
}

fn value_from(at: &At, has_value: bool, e: &mut Errors) {
    let mut count = 0;
    let checks: [(&str, Check); 5] = [
        ("fieldRef", |at, e| field(at, FIELDS, e)),
        ("resourceFieldRef", |at, e| resource(at, false, e)),
        ("configMapKeyRef", key),
        ("secretKeyRef", key),
        ("fileKeyRef", file_key),
    ];
    for (name, check) in checks {
        let source = at.get(name);
        if source.exists() {
            count += 1;
            check(&source, e);
        }
    }
    let message = match count {
        0 => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        _ if has_value => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    at.invalid_as(e, "", message);
}

/// The faults of a reference to a field of the pod.
pub(super) fn field(at: &At, allowed: &[&str], e: &mut Errors) {
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
                let key = subscript.to_lowercase();
                names::qualified(&key).into_iter().for_each(|fault| at.invalid_as(e, key.as_str(), fault));
            }
            "metadata.labels" => {
                names::qualified(subscript).into_iter().for_each(|fault| at.invalid_as(e, subscript, fault));
            }
            _ => {
                let message = "error converting fieldPath: field label does not support subscript";
                path.invalid_text(e, format!("{message}: {text}"));
            }
        }
    } else if !KNOWN.contains(&text) {
        path.invalid_text(e, format!("error converting fieldPath: field label not supported: {text}"));
    } else if !allowed.contains(&text) && text != "spec.host" {
        let mut sorted = allowed.to_vec();
        sorted.sort_unstable();
        path.unsupported(e, &sorted);
    }
}

/// `metadata.labels['a']` in two.
fn subscripted(path: &str) -> Option<(&str, &str)> {
    let (head, tail) = path.strip_suffix("']")?.split_once("['")?;
    (!head.is_empty()).then_some((head, tail))
}

/// The faults of a reference to a resource of a container.
pub(super) fn resource(at: &At, in_volume: bool, e: &mut Errors) {
    let (name, container) = (at.get("resource"), at.get("containerName"));
    let huge = |text: &str| text.starts_with("requests.hugepages-") || text.starts_with("limits.hugepages-");
    if in_volume && container.is_empty() {
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

fn key(at: &At, e: &mut Errors) {
    at.get("name").form(e, names::subdomain);
    at.get("key").required_form(e, names::config_key);
}

fn file_key(at: &At, e: &mut Errors) {
    at.get("key").required_form(e, names::variable);
    at.get("volumeName").required_form(e, names::label);
    if at.get("path").require(e) {
        path::no_backsteps(&at.get("path"), e);
    }
}

/// The faults of sources of many variables at once.
pub(super) fn sources(list: &At, e: &mut Errors) {
    for source in list.items() {
        source.get("prefix").optional_form(e, names::variable);
        let mut count = 0;
        for name in ["configMapRef", "secretRef"] {
            let reference = source.get(name);
            if reference.exists() {
                count += 1;
                let name = reference.get("name");
                if name.require(e) {
                    name.form(e, prefix_subdomain);
                }
            }
        }
        match count {
            0 => list.invalid_as(e, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => list.invalid_as(e, "", "may not have more than one field specified at a time"),
        }
    }
}

/// A subdomain of which only the beginning is known: a dash at its end is followed by something.
fn prefix_subdomain(text: &str) -> Vec<String> {
    match text.strip_suffix('-').filter(|rest| !rest.is_empty()) {
        Some(rest) => names::subdomain(&format!("{rest}a")),
        None => names::subdomain(text),
    }
}
