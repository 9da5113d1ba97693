//! Validation of the status of pods, as kubelets write it.

use super::update::annotation_updates;
use crate::validate::net;
use crate::validate::prelude::*;

pub(super) const FUNCTIONS: Functions = functions! { pod_status };

/// The faults of a changed status.
fn pod_status(new: &At, e: &mut Errors) {
    let old = &new.before();
    annotation_updates(new, e);
    let (status, before) = (new.get("status"), old.get("status"));
    conditions(&status.get("conditions"), e);
    let (node, old_node) = (new.get("spec"), old.get("spec"));
    let (node, old_node) = (node.get("nodeName"), old_node.get("nodeName"));
    if node.text() != old_node.text() {
        status.get("nodeName").forbidden(e, "may not be changed directly");
    }
    let nominated = status.get("nominatedNodeName");
    if !nominated.is_empty() && nominated.text() != before.get("nominatedNodeName").text() {
        nominated.form(e, names::subdomain);
        if !old_node.is_empty() {
            nominated.forbidden(e, "may not be set on pods that are already bound to a node");
        }
    }
    let seen = status.get("observedGeneration");
    if seen.int() < 0 {
        seen.invalid(e, "must be a non-negative integer");
    }
    if status.get("qosClass").text() != before.get("qosClass").text() {
        status.get("qosClass").invalid_text(e, "field is immutable");
    }
    transitions(&status, &before, &old.get("spec"), e);
    claims(&status.get("resourceClaimStatuses"), &new.get("spec"), e);
    addresses(&status, &before, e);
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        users(&status.get(list), new.get("spec").get("os").get("name").text(), e);
    }
}

fn conditions(list: &At, e: &mut Errors) {
    for condition in list.items() {
        if condition.get("observedGeneration").int() < 0 {
            condition.get("observedGeneration").invalid(e, "must be a non-negative integer");
        }
        let kind = condition.get("type");
        if !["PodScheduled", "Ready", "Initialized"].contains(&kind.text()) {
            condition.called("Type", kind.value).form(e, names::qualified);
        }
    }
}

/// A container that ended stays so unless something may restart it.
fn transitions(status: &At, old: &At, spec: &At, e: &mut Errors) {
    let lists = [
        ("containerStatuses", Some("containers")),
        ("initContainerStatuses", Some("initContainers")),
        ("ephemeralContainerStatuses", None),
    ];
    let any = could_restart(spec);
    for (list, containers) in lists {
        let (new, before) = (status.get(list), old.get(list));
        if containers.is_some() && any {
            continue;
        }
        for (at, was) in before.items().enumerate() {
            let ended = was.get("state");
            let ended = ended.get("terminated");
            let name = was.get("name").text();
            let revived = |now: &At| now.get("name").text() == name && !now.get("state").get("terminated").exists();
            if !ended.exists() || !new.items().any(|now| revived(&now)) {
                continue;
            }
            let allowed = containers.is_some_and(|kind| {
                let list = spec.get(kind);
                let own = list.items().find(|container| container.get("name").text() == name);
                own.is_some_and(|container| restarts(&container, spec, ended.get("exitCode").int()))
            });
            if !allowed {
                let place = new.index(at);
                place.get("state").forbidden(e, "may not be transitioned to non-terminated state");
            }
        }
    }
}

/// Whether a rule may restart all containers at once.
fn could_restart(spec: &At) -> bool {
    ["containers", "initContainers"].iter().any(|list| {
        let list = spec.get(list);
        let all = |rule: At| rule.get("action").text() == "RestartAllContainers";
        list.items().any(|container| container.get("restartPolicyRules").items().any(all))
    })
}

/// Whether a container that ended with this code is started again.
fn restarts(container: &At, spec: &At, code: i64) -> bool {
    for rule in container.get("restartPolicyRules").items() {
        let codes = rule.get("exitCodes");
        let listed = codes.get("values").value.as_array().is_some_and(|list| list.contains(&Value::from(code)));
        let holds = match codes.get("operator").text() {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        };
        if holds && rule.get("action").text() == "Restart" {
            return true;
        }
    }
    let own = container.get("restartPolicy");
    let policy = if own.exists() { own.text() } else { spec.get("restartPolicy").text() };
    match policy {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}

fn claims(list: &At, spec: &At, e: &mut Errors) {
    let known = spec.get("resourceClaims");
    let mut seen = Vec::new();
    for claim in list.items() {
        let name = claim.get("name");
        if !known.items().any(|known| known.get("name").text() == name.text()) {
            name.invalid_text(e, "must match the name of an entry in `spec.resourceClaims`");
        }
        if seen.contains(&name.text()) {
            name.duplicate(e, name.text());
        }
        seen.push(name.text());
        let object = claim.get("resourceClaimName");
        if object.exists() {
            object.form(e, names::subdomain);
        }
    }
}

fn addresses(status: &At, old: &At, e: &mut Errors) {
    for (field, first) in [("podIPs", None), ("hostIPs", Some("hostIP"))] {
        let list = status.get(field);
        let texts = |list: &At| -> Vec<String> { list.items().map(|item| item.get("ip").text().to_owned()).collect() };
        let (ips, before) = (texts(&list), texts(&old.get(field)));
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        let Some(front) = ips.first() else { continue };
        if let Some(first) = first
            && front != status.get(first).text()
        {
            list.index(0).get("ip").invalid_text(e, "must be equal to `hostIP`");
        }
        for (at, ip) in ips.iter().enumerate() {
            let value = Value::from(ip.as_str());
            let mut faults = Vec::new();
            At::top(&value).ip(&mut faults, &before);
            faults.into_iter().for_each(|fault| list.index(at).fault(e, fault.kind, fault.message));
        }
        if ips.len() > 1 {
            let dual = net::dual_stack(ips.iter().map(String::as_str)).unwrap_or(false);
            if !dual || ips.len() > 2 {
                let ty = if field == "podIPs" { "core/v1.PodIP" } else { "core/v1.HostIP" };
                list.invalid_as(e, Bad::of(ty, list.value), "may specify no more than one IP for each IP family");
            }
        }
    }
}

fn users(list: &At, os: &str, e: &mut Errors) {
    for status in list.items() {
        let user = status.get("user");
        let linux = user.get("linux");
        if !linux.exists() {
            continue;
        }
        if os == "windows" {
            linux.forbidden(e, "cannot be set for a windows pod");
            continue;
        }
        for field in ["uid", "gid"] {
            linux.get(field).in_range(e, 0, i64::from(i32::MAX));
        }
        linux.get("supplementalGroups").items().for_each(|group| group.in_range(e, 0, i64::from(i32::MAX)));
    }
}
