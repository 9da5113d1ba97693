//! What containers of a pod must agree on: names, ports of the host, how they are resized.

use super::spec_of;
use crate::validate::prelude::*;

pub(super) const FUNCTIONS: Functions = functions! {
    init_names debug_names host_ports own_host_ports port_names resize_policy sleep
};

/// Containers that run first have names that no other container has.
fn init_names(list: &At, e: &mut Errors) {
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
fn debug_names(list: &At, e: &mut Errors) {
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
fn port_names(list: &At, e: &mut Errors) {
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
fn host_ports(list: &At, e: &mut Errors) {
    let mut taken = Vec::new();
    list.items().for_each(|container| take_ports(&container, &mut taken, e));
}

/// Upstream looks at each container that runs first alone.
fn own_host_ports(container: &At, e: &mut Errors) {
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
fn resize_policy(list: &At, e: &mut Errors) {
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
fn sleep(at: &At, e: &mut Errors) {
    let seconds = at.get("seconds").int();
    let grace = spec_of(at).get("terminationGracePeriodSeconds");
    if grace.exists() && !(0..=grace.int()).contains(&seconds) {
        let message = "must be non-negative and less than terminationGracePeriodSeconds";
        at.invalid_as(e, seconds, format!("{message} ({})", grace.int()));
    }
}
