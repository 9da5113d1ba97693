//! Checks of the `restricted` level: pods must explicitly drop privileges.

use std::collections::BTreeSet;

use api::{Value, meta};

use super::{
    baseline,
    baseline::is_safe_profile,
    checks::{EvaluatedPod, Violation, context_field, format_containers, format_setters, join_quoted, pluralize},
};

const VOLUMES: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

pub fn check_allow_privilege_escalation(pod: &EvaluatedPod<'_>) -> Option<Violation> {
    let names = pod.matching_containers(|container| {
        context_field(container, "allowPrivilegeEscalation") != Some(&Value::Bool(false))
    });
    (!names.is_empty()).then(|| Violation {
        reason: "allowPrivilegeEscalation != false",
        detail: format!("{} must set securityContext.allowPrivilegeEscalation=false", format_containers(&names)),
    })
}

pub fn check_capabilities(pod: &EvaluatedPod<'_>) -> Option<Violation> {
    let list = |container: &Value, which: &str| -> BTreeSet<String> {
        let list = meta::list_at(container, &["securityContext", "capabilities", which]);
        list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let added = |container: &Value| -> BTreeSet<String> {
        list(container, "add").into_iter().filter(|capability| capability != "NET_BIND_SERVICE").collect()
    };
    let keeps = pod.matching_containers(|container| !list(container, "drop").contains("ALL"));
    let adds = pod.matching_containers(|container| !added(container).is_empty());
    let mut details = Vec::new();
    if !keeps.is_empty() {
        details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", format_containers(&keeps)));
    }
    if !adds.is_empty() {
        let all: BTreeSet<String> = pod.containers().flat_map(added).collect();
        let (names, all) = (format_containers(&adds), join_quoted(all));
        details.push(format!("{names} must not include {all} in securityContext.capabilities.add"));
    }
    (!details.is_empty()).then(|| Violation { reason: "unrestricted capabilities", detail: details.join("; ") })
}

pub fn check_restricted_volumes(pod: &EvaluatedPod<'_>) -> Option<Violation> {
    let kind = |volume: &Value| {
        let fields =
            volume.as_object().into_iter().flatten().filter(|(name, value)| *name != "name" && !value.is_null());
        fields.map(|(name, _)| name.clone()).next().unwrap_or_else(|| "unknown".to_owned())
    };
    let bad: Vec<&Value> = meta::list_at(pod.spec, &["volumes"])
        .iter()
        .filter(|volume| !VOLUMES.contains(&kind(volume).as_str()))
        .collect();
    let kinds: BTreeSet<String> = bad.iter().map(|volume| kind(volume)).collect();
    let names = join_quoted(bad.iter().map(|volume| meta::string_at(volume, &["name"])));
    let detail = format!(
        "{} {names} {} {} {}",
        pluralize(bad.len(), "volume", "volumes"),
        pluralize(bad.len(), "uses", "use"),
        pluralize(kinds.len(), "restricted volume type", "restricted volume types"),
        join_quoted(kinds)
    );
    (!bad.is_empty()).then_some(Violation { reason: "restricted volume types", detail })
}

pub fn check_run_as_non_root(pod: &EvaluatedPod<'_>) -> Option<Violation> {
    let reason = "runAsNonRoot != true";
    let bool_value = |value: Option<&Value>| value.and_then(Value::as_bool);
    let whole = bool_value(pod.security_context("runAsNonRoot"));
    let names =
        pod.matching_containers(|container| bool_value(context_field(container, "runAsNonRoot")) == Some(false));
    if let Some(by) = format_setters(whole == Some(false), &names) {
        return Some(Violation { reason, detail: format!("{by} must not set securityContext.runAsNonRoot=false") });
    }
    let silent = pod.matching_containers(|container| bool_value(context_field(container, "runAsNonRoot")).is_none());
    (whole != Some(true) && !silent.is_empty()).then(|| Violation {
        reason,
        detail: format!("pod or {} must set securityContext.runAsNonRoot=true", format_containers(&silent)),
    })
}

pub fn check_run_as_user(pod: &EvaluatedPod<'_>) -> Option<Violation> {
    let root = |value: Option<&Value>| value.and_then(Value::as_i64) == Some(0);
    let names = pod.matching_containers(|container| root(context_field(container, "runAsUser")));
    let by = format_setters(root(pod.security_context("runAsUser")), &names)?;
    Some(Violation { reason: "runAsUser=0", detail: format!("{by} must not set runAsUser=0") })
}

pub fn check_seccomp_profile(pod: &EvaluatedPod<'_>) -> Option<Violation> {
    if let Some(violation) = baseline::check_seccomp_profile(pod) {
        return Some(violation);
    }
    let whole = pod.security_context("seccompProfile").is_some_and(is_safe_profile);
    let silent = pod.matching_containers(|container| context_field(container, "seccompProfile").is_none());
    (!whole && !silent.is_empty()).then(|| Violation {
        reason: "seccompProfile",
        detail: format!(
            "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
            format_containers(&silent)
        ),
    })
}
