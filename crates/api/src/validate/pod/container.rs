//! What containers of a pod must agree on, with each other and with the pod: names, ports of the host, how they are resized.

use super::{is_pod, spec_of};
use crate::validate::prelude::*;

/// Containers that run first have names that no other container has.
pub fn init_names(list: &At, e: &mut Errors) {
    let mut seen: Vec<&str> = list.up(1).get("containers").items().map(|container| container.text_of("name")).collect();
    for container in list.items() {
        let name = container.get("name");
        if seen.contains(&name.text()) {
            name.duplicate(e, name.text());
        } else if !name.is_empty() {
            seen.push(name.text());
        }
    }
}

/// Containers for looking inside have names of their own, and may name one that they look into.
pub fn debug_names(list: &At, e: &mut Errors) {
    let spec = list.up(1);
    let names = |list: &str| spec.get(list).items().map(|container| container.text_of("name")).collect::<Vec<_>>();
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

/// A port has a name that no other port of its container has.
pub fn port_names(list: &At, e: &mut Errors) {
    let mut seen = Vec::new();
    for name in list.items().map(|port| port.text_of("name")).enumerate().filter(|(_, name)| !name.is_empty()) {
        if !names::port(name.1).is_empty() {
            continue;
        }
        if seen.contains(&name.1) {
            list.index(name.0).get("name").duplicate(e, name.1);
        }
        seen.push(name.1);
    }
}

/// A port of the host can be taken once.
pub fn host_ports(list: &At, e: &mut Errors) {
    let mut taken = Vec::new();
    list.items().for_each(|container| take_ports(&container, &mut taken, e));
}

/// Upstream looks at each container that runs first alone.
pub fn own_host_ports(container: &At, e: &mut Errors) {
    take_ports(container, &mut Vec::new(), e);
}

fn take_ports<'v>(container: &At<'v, '_>, taken: &mut Vec<(&'v str, &'v str, i64)>, e: &mut Errors) {
    for port in container.get("ports").items() {
        let number = port.get("hostPort");
        if number.int() == 0 {
            continue;
        }
        let key = (port.text_of("protocol"), port.text_of("hostIP"), number.int());
        if taken.contains(&key) {
            number.duplicate(e, format!("{}/{}/{}", key.0, key.1, key.2));
        }
        taken.push(key);
    }
}

/// The faults of how resources are resized. Upstream tells most of them at the list.
pub fn resize_policy(list: &At, e: &mut Errors) {
    if list.is_empty() {
        return;
    }
    let restart = spec_of(list).text_of("restartPolicy");
    let mut seen = Vec::new();
    for policy in list.items() {
        let (name, action) = (policy.text_of("resourceName"), policy.text_of("restartPolicy"));
        if seen.contains(&name) {
            policy.duplicate(e, name);
        }
        seen.push(name);
        for (text, supported) in [(name, ["cpu", "memory"]), (action, ["NotRequired", "RestartContainer"])] {
            if text.is_empty() {
                list.required(e, "");
            } else if !supported.contains(&text) {
                list.unsupported_as(e, text, &supported);
            }
        }
        if restart == "Never" && action != "NotRequired" {
            list.invalid_as(e, action, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

/// A pause before the end leaves time for it.
pub fn sleep(at: &At, e: &mut Errors) {
    let seconds = at.get("seconds").int();
    let grace = spec_of(at).get("terminationGracePeriodSeconds");
    if grace.exists() && !(0..=grace.int()).contains(&seconds) {
        let message = "must be non-negative and less than terminationGracePeriodSeconds";
        at.invalid_as(e, seconds, format!("{message} ({})", grace.int()));
    }
}

/// On the host's network a port is the host's port.
pub fn pod_host_ports(spec: &At, e: &mut Errors) {
    if !spec.get("hostNetwork").is_true() {
        return;
    }
    for container in spec.get("containers").items() {
        for port in container.get("ports").items() {
            let (host, inside) = (port.get("hostPort"), port.get("containerPort"));
            if (is_pod(spec) || host.int() != 0) && host.int() != inside.int() {
                host.invalid_int(e, "must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}

pub fn search_length(searches: &At, e: &mut Errors) {
    if searches.texts().map(|text| text.len() + 1).sum::<usize>() > 2048 + 1 {
        searches.invalid(e, "must not have more than 2048 characters (including spaces) in the search list");
    }
}

pub fn search_domain(search: &At, e: &mut Errors) {
    if search.text() != "." {
        let name = search.text().strip_suffix('.').unwrap_or(search.text());
        search.form_as(e, name, names::subdomain_with_underscores);
    }
}

/// Variables from files need an `emptyDir` that has the file.
pub fn file_of_volume(key: &At, e: &mut Errors) {
    let (spec, name) = (spec_of(key), key.get("volumeName"));
    match spec.get("volumes").find("name", name.text()) {
        None => name.not_found(e),
        Some(volume) if !volume.get("emptyDir").exists() => {
            name.invalid_text(e, "referenced volume must be of type emptyDir");
        }
        Some(_) => {}
    }
}
