//! Validation of the `status` subresource of pods.

use crate::validate::ip_address;
use crate::validate::prelude::*;

/// Requires terminated containers to stay so unless they may restart.
pub fn validate_container_transitions(status: &FieldCursor, e: &mut ErrorList) {
    let (old, whole) = (status.old_cursor(), status.ancestor(1).old_cursor());
    let spec = &whole.get("spec");
    let lists = [
        ("containerStatuses", Some("containers")),
        ("initContainerStatuses", Some("initContainers")),
        ("ephemeralContainerStatuses", None),
    ];
    let any = may_restart_all(spec);
    for (list, containers) in lists {
        let (new, before) = (status.get(list), old.get(list));
        if containers.is_some() && any {
            continue;
        }
        for (at, was) in before.items().enumerate() {
            let ended = was.get("state");
            let ended = ended.get("terminated");
            let name = was.get("name").text();
            let revived =
                |now: &FieldCursor| now.get("name").text() == name && !now.get("state").get("terminated").exists();
            if !ended.exists() || !new.items().any(|now| revived(&now)) {
                continue;
            }
            let allowed = containers.is_some_and(|kind| {
                let list = spec.get(kind);
                let own = list.items().find(|container| container.get("name").text() == name);
                own.is_some_and(|container| may_restart(&container, spec, ended.get("exitCode").int()))
            });
            if !allowed {
                let place = new.element(at);
                place.get("state").forbidden(e, "may not be transitioned to non-terminated state");
            }
        }
    }
}

/// Whether a rule may restart all containers.
fn may_restart_all(spec: &FieldCursor) -> bool {
    ["containers", "initContainers"].iter().any(|list| {
        let list = spec.get(list);
        let all = |rule: FieldCursor| rule.get("action").text() == "RestartAllContainers";
        list.items().any(|container| container.get("restartPolicyRules").items().any(all))
    })
}

/// Whether a container with this exit code may restart.
fn may_restart(container: &FieldCursor, spec: &FieldCursor, code: i64) -> bool {
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

/// Requires a resource claim status to name a claim of the pod.
pub fn validate_claim_of_pod(name: &FieldCursor, e: &mut ErrorList) {
    let spec = name.root().get("spec");
    if spec.get("resourceClaims").find_by("name", name.text()).is_none() {
        name.invalid_text(e, "must match the name of an entry in `spec.resourceClaims`");
    }
}

/// Validates pod and host IPs: at most one per family.
pub fn validate_pod_addresses(status: &FieldCursor, e: &mut ErrorList) {
    let old = status.old_cursor();
    for (field, first) in [("podIPs", None), ("hostIPs", Some("hostIP"))] {
        let list = status.get(field);
        let texts =
            |list: &FieldCursor| -> Vec<String> { list.items().map(|item| item.get("ip").text().to_owned()).collect() };
        let (ips, before) = (texts(&list), texts(&old.get(field)));
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        let Some(front) = ips.first() else { continue };
        if let Some(first) = first
            && front != status.get(first).text()
        {
            list.element(0).get("ip").invalid_text(e, "must be equal to `hostIP`");
        }
        for (at, ip) in ips.iter().enumerate() {
            let value = Value::from(ip.as_str());
            let mut faults = Vec::new();
            FieldCursor::for_create(&value).check_ip(&mut faults, &before);
            faults.into_iter().for_each(|fault| list.element(at).push_error(e, fault.kind, fault.message));
        }
        if ips.len() > 1 {
            let dual = ip_address::is_dual_stack(ips.iter().map(String::as_str)).unwrap_or(false);
            if !dual || ips.len() > 2 {
                let ty = if field == "podIPs" { "core/v1.PodIP" } else { "core/v1.HostIP" };
                list.invalid_as(
                    e,
                    render_bad_value(ty, list.value),
                    "may specify no more than one IP for each IP family",
                );
            }
        }
    }
}
