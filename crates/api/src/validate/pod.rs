//! Validation of pods and pod templates: containers, names, images, policies, volumes.

use super::{FieldError, names};
use crate::{Value, meta, quantity::Quantity};

const POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
/// What may change in the specification of a pod that exists.
const MUTABLE: &[&str] = &["activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "schedulingGates"];

pub(super) fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    spec(&new["spec"], "spec", errors);
    if let Some(old) = old {
        unchanged(&new["spec"], &old["spec"], errors);
    }
}

/// The faults of a pod specification at `path`.
pub(super) fn spec(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let containers = meta::list(spec, &["containers"]);
    if containers.is_empty() {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    let volumes: Vec<&str> = meta::list(spec, &["volumes"]).iter().map(|volume| meta::text(volume, &["name"])).collect();
    let mut seen: Vec<&str> = Vec::new();
    for list in ["initContainers", "containers"] {
        for (at, item) in meta::list(spec, &[list]).iter().enumerate() {
            let path = format!("{path}.{list}[{at}]");
            container(item, &path, &volumes, errors);
            let name = meta::text(item, &["name"]);
            if !name.is_empty() && seen.contains(&name) {
                errors.push(FieldError::duplicate(format!("{path}.name"), name));
            }
            seen.push(name);
        }
    }
    for (at, name) in volumes.iter().enumerate() {
        let field = format!("{path}.volumes[{at}].name");
        match names::label(name) {
            _ if name.is_empty() => errors.push(FieldError::required(field, "")),
            faults => errors.extend(faults.into_iter().map(|fault| FieldError::invalid(field.clone(), *name, fault))),
        }
    }
    one_of(spec, "restartPolicy", path, POLICIES, errors);
    one_of(spec, "dnsPolicy", path, DNS_POLICIES, errors);
    let grace = meta::number(spec, &["terminationGracePeriodSeconds"]);
    if grace < 0 {
        let message = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(format!("{path}.terminationGracePeriodSeconds"), grace, message));
    }
}

fn container(container: &Value, path: &str, volumes: &[&str], errors: &mut Vec<FieldError>) {
    let name = meta::text(container, &["name"]);
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    } else {
        let faults = names::label(name);
        errors.extend(faults.into_iter().map(|f| FieldError::invalid(format!("{path}.name"), name, f)));
    }
    let image = meta::text(container, &["image"]);
    if image.is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    } else if image.trim() != image {
        let message = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid(format!("{path}.image"), image, message));
    }
    one_of(container, "imagePullPolicy", path, PULL_POLICIES, errors);
    for (at, mount) in meta::list(container, &["volumeMounts"]).iter().enumerate() {
        let name = meta::text(mount, &["name"]);
        if !volumes.contains(&name) {
            let field = format!("{path}.volumeMounts[{at}].name");
            errors.push(FieldError { kind: super::Fault::Invalid(name.into()), field, message: "not found".into() });
        }
        if meta::text(mount, &["mountPath"]).is_empty() {
            errors.push(FieldError::required(format!("{path}.volumeMounts[{at}].mountPath"), ""));
        }
    }
    for (at, port) in meta::list(container, &["ports"]).iter().enumerate() {
        let number = meta::number(port, &["containerPort"]);
        if !(1..=65535).contains(&number) {
            let field = format!("{path}.ports[{at}].containerPort");
            errors.push(FieldError::invalid(field, number, "must be between 1 and 65535, inclusive"));
        }
    }
    requests_within_limits(container, path, errors);
}

fn requests_within_limits(container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(requests) = meta::at(container, &["resources", "requests"]).and_then(Value::as_object) else { return };
    for (name, request) in requests {
        let limit = meta::text(container, &["resources", "limits", name]);
        let (Some(asked), Some(allowed)) = (Quantity::parse(request.as_str().unwrap_or_default()), Quantity::parse(limit))
        else {
            continue;
        };
        if asked > allowed {
            let message = format!("must be less than or equal to {name} limit of {limit}");
            errors.push(FieldError::invalid(format!("{path}.resources.requests"), request.clone(), message));
        }
    }
}

fn one_of(owner: &Value, field: &str, path: &str, supported: &[&str], errors: &mut Vec<FieldError>) {
    let value = meta::text(owner, &[field]);
    if !value.is_empty() && !supported.contains(&value) {
        errors.push(FieldError::not_supported(format!("{path}.{field}"), value, supported));
    }
}

/// All that a pod may change after creation is its images and a few timings; the scheduler sets `nodeName` by binding.
fn unchanged(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let strip = |spec: &Value| {
        let mut spec = spec.clone();
        if let Some(map) = spec.as_object_mut() {
            MUTABLE.iter().for_each(|field| {
                map.remove(*field);
            });
        }
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                container.as_object_mut().map(|map| map.remove("image"));
            }
        }
        spec
    };
    if strip(new) != strip(old) {
        let message = "pod updates may not change fields other than \
            `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
            `spec.tolerations` (only additions to existing tolerations),\
            `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        errors.push(FieldError::forbidden("spec", message));
    }
}
