//! Validation across containers of a pod: names, host ports, resize policies.

use super::{enclosing_pod_spec, is_pod_spec};
use crate::validate::prelude::*;

/// Requires unique names of init containers.
pub fn validate_init_names(list: &FieldCursor, e: &mut ErrorList) {
    let mut seen: Vec<&str> =
        list.ancestor(1).get("containers").items().map(|container| container.text_at("name")).collect();
    for container in list.items() {
        let name = container.get("name");
        if seen.contains(&name.text()) {
            name.duplicate(e, name.text());
        } else if !name.is_empty() {
            seen.push(name.text());
        }
    }
}

/// Requires unique names of ephemeral containers, and existing targets.
pub fn validate_debug_names(list: &FieldCursor, e: &mut ErrorList) {
    let spec = list.ancestor(1);
    let names = |list: &str| spec.get(list).items().map(|container| container.text_at("name")).collect::<Vec<_>>();
    let others = [names("containers"), names("initContainers")].concat();
    let mut seen = others.clone();
    for container in list.items() {
        let (name, target) = (container.get("name"), container.get("targetContainerName"));
        if seen.contains(&name.text()) {
            name.duplicate(e, name.text());
        }
        seen.push(name.text());
        if !target.is_empty() && !others.contains(&target.text()) {
            target.not_found(e);
        }
    }
}

/// Requires unique port names within a container.
pub fn validate_port_names(list: &FieldCursor, e: &mut ErrorList) {
    let mut seen = Vec::new();
    for name in list.items().map(|port| port.text_at("name")).enumerate().filter(|(_, name)| !name.is_empty()) {
        if !names::check_port_name(name.1).is_empty() {
            continue;
        }
        if seen.contains(&name.1) {
            list.element(name.0).get("name").duplicate(e, name.1);
        }
        seen.push(name.1);
    }
}

/// Requires unique host ports.
pub fn validate_host_ports(list: &FieldCursor, e: &mut ErrorList) {
    let mut taken = Vec::new();
    list.items().for_each(|container| claim_host_ports(&container, &mut taken, e));
}

/// Requires unique host ports within an init container, as upstream.
pub fn validate_own_host_ports(container: &FieldCursor, e: &mut ErrorList) {
    claim_host_ports(container, &mut Vec::new(), e);
}

fn claim_host_ports<'v>(container: &FieldCursor<'v, '_>, taken: &mut Vec<(&'v str, &'v str, i64)>, e: &mut ErrorList) {
    for port in container.get("ports").items() {
        let number = port.get("hostPort");
        if number.int() == 0 {
            continue;
        }
        let key = (port.text_at("protocol"), port.text_at("hostIP"), number.int());
        if taken.contains(&key) {
            number.duplicate(e, format!("{}/{}/{}", key.0, key.1, key.2));
        }
        taken.push(key);
    }
}

/// Validates resize policies; upstream reports most errors at the list.
pub fn validate_resize_policy(list: &FieldCursor, e: &mut ErrorList) {
    if list.is_empty() {
        return;
    }
    let restart = enclosing_pod_spec(list).text_at("restartPolicy");
    let mut seen = Vec::new();
    for policy in list.items() {
        let (name, action) = (policy.text_at("resourceName"), policy.text_at("restartPolicy"));
        if seen.contains(&name) {
            policy.duplicate(e, name);
        }
        seen.push(name);
        for (text, supported) in [(name, ["cpu", "memory"]), (action, ["NotRequired", "RestartContainer"])] {
            if text.is_empty() {
                list.required(e, "");
            } else if !supported.contains(&text) {
                list.not_supported_as(e, text, &supported);
            }
        }
        if restart == "Never" && action != "NotRequired" {
            list.invalid_as(e, action, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

/// Requires the sleep to fit the grace period.
pub fn validate_sleep(at: &FieldCursor, e: &mut ErrorList) {
    let seconds = at.get("seconds").int();
    let grace = enclosing_pod_spec(at).get("terminationGracePeriodSeconds");
    if grace.exists() && !(0..=grace.int()).contains(&seconds) {
        let message = "must be non-negative and less than terminationGracePeriodSeconds";
        at.invalid_as(e, seconds, format!("{message} ({})", grace.int()));
    }
}

/// Requires host ports to equal container ports on the host network.
pub fn validate_pod_host_ports(spec: &FieldCursor, e: &mut ErrorList) {
    if !spec.get("hostNetwork").is_true() {
        return;
    }
    for container in spec.get("containers").items() {
        for port in container.get("ports").items() {
            let (host, inside) = (port.get("hostPort"), port.get("containerPort"));
            if (is_pod_spec(spec) || host.int() != 0) && host.int() != inside.int() {
                host.invalid_int(e, "must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}

pub fn validate_search_length(searches: &FieldCursor, e: &mut ErrorList) {
    if searches.texts().map(|text| text.len() + 1).sum::<usize>() > 2048 + 1 {
        searches.invalid(e, "must not have more than 2048 characters (including spaces) in the search list");
    }
}

pub fn validate_search_domain(search: &FieldCursor, e: &mut ErrorList) {
    if search.text() != "." {
        let name = search.text().strip_suffix('.').unwrap_or(search.text());
        search.check_format_as(e, name, names::check_underscore_subdomain);
    }
}

/// Requires an `emptyDir` volume for variables from files.
pub fn validate_file_of_volume(key: &FieldCursor, e: &mut ErrorList) {
    let (spec, name) = (enclosing_pod_spec(key), key.get("volumeName"));
    match spec.get("volumes").find_by("name", name.text()) {
        None => name.not_found(e),
        Some(volume) if !volume.get("emptyDir").exists() => {
            name.invalid_text(e, "referenced volume must be of type emptyDir");
        }
        Some(_) => {}
    }
}
