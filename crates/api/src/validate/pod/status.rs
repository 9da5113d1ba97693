//! Validation of the status of pods, as kubelets write it.

use crate::validate::net;
use crate::validate::prelude::*;

/// A container that ended stays so unless something may restart it.
pub fn container_transitions(status: &At, e: &mut Errors) {
    let (old, whole) = (status.before(), status.up(1).before());
    let spec = &whole.get("spec");
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

/// The status of a claim is that of one of the pod's, or of the group's.
pub fn claim_of_pod(name: &At, e: &mut Errors) {
    let spec = name.whole().get("spec");
    if spec.get("resourceClaims").find("name", name.text()).is_none() {
        name.invalid_text(e, "must match the name of an entry in `spec.resourceClaims`");
    }
}

/// A pod and its host have one address of a family each.
pub fn pod_addresses(status: &At, e: &mut Errors) {
    let old = status.before();
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
