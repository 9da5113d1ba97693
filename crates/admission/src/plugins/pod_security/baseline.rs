//! Checks of the `baseline` level, which prevents known privilege escalations.

use std::collections::BTreeSet;

use api::{Value, meta};

use super::checks::{
    EvaluatedPod, Violation, context_field, format_containers, format_setters, join_quoted, pluralize,
};

const CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// Safe sysctls, in the order in which versions allowed them.
const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];
const SELINUX: [&str; 5] = ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_ANNOTATION: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// Whether the type of a profile is `RuntimeDefault` or `Localhost`.
pub fn is_safe_profile(profile: &Value) -> bool {
    matches!(meta::string_at(profile, &["type"]), "RuntimeDefault" | "Localhost")
}

pub fn check_app_armor(pod: &EvaluatedPod<'_>) -> Option<Violation> {
    let bad = |profile: Option<&Value>| profile.is_some_and(|profile| !is_safe_profile(profile));
    let names = pod.matching_containers(|container| bad(context_field(container, "appArmorProfile")));
    let profiles = pod.containers().filter_map(|container| context_field(container, "appArmorProfile"));
    let profiles = profiles.chain(pod.security_context("appArmorProfile")).filter(|profile| bad(Some(profile)));
    let values: BTreeSet<String> = profiles.map(|profile| meta::string_at(profile, &["type"]).to_owned()).collect();
    let annotations = meta::value_at(pod.metadata, &["annotations"]).and_then(Value::as_object).into_iter().flatten();
    let mut forbidden: Vec<String> = annotations
        .filter(|(key, _)| key.starts_with(APP_ARMOR_ANNOTATION))
        .map(|(key, value)| (key, value.as_str().unwrap_or_default()))
        .filter(|(_, value)| !matches!(*value, "" | "runtime/default") && !value.starts_with("localhost/"))
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    forbidden.sort();
    let by = format_setters(bad(pod.security_context("appArmorProfile")), &names);
    let noted = (!forbidden.is_empty()).then(|| pluralize(forbidden.len(), "annotation", "annotations").to_owned());
    let by: Vec<String> = by.into_iter().chain(noted).collect();
    let values: Vec<String> = values.into_iter().chain(forbidden).collect();
    (!by.is_empty()).then(|| Violation {
        reason: pluralize(values.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles"),
        detail: format!("{} must not set AppArmor profile type to {}", by.join(" and "), join_quoted(values)),
    })
}

pub fn check_capabilities(pod: &EvaluatedPod<'_>) -> Option<Violation> {
    let beyond = |container: &Value| -> BTreeSet<String> {
        let added =
            meta::list_at(container, &["securityContext", "capabilities", "add"]).iter().filter_map(Value::as_str);
        added.filter(|capability| !CAPABILITIES.contains(capability)).map(str::to_owned).collect()
    };
    let names = pod.matching_containers(|container| !beyond(container).is_empty());
    let all: BTreeSet<String> = pod.containers().flat_map(beyond).collect();
    (!names.is_empty()).then(|| Violation {
        reason: "non-default capabilities",
        detail: format!(
            "{} must not include {} in securityContext.capabilities.add",
            format_containers(&names),
            join_quoted(all)
        ),
    })
}

pub fn check_host_namespaces(pod: &EvaluatedPod<'_>) -> Option<Violation> {
    let shared: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .iter()
        .filter(|field| pod.spec[**field] == true)
        .map(|field| format!("{field}=true"))
        .collect();
    (!shared.is_empty()).then(|| Violation { reason: "host namespaces", detail: shared.join(", ") })
}

pub fn check_host_paths(pod: &EvaluatedPod<'_>) -> Option<Violation> {
    let volumes = meta::list_at(pod.spec, &["volumes"]).iter();
    let bad: Vec<&str> = volumes
        .filter(|volume| meta::value_at(volume, &["hostPath"]).is_some())
        .map(|volume| meta::string_at(volume, &["name"]))
        .collect();
    let what = pluralize(bad.len(), "volume", "volumes");
    (!bad.is_empty()).then(|| Violation { reason: "hostPath volumes", detail: format!("{what} {}", join_quoted(bad)) })
}

pub fn check_host_ports(pod: &EvaluatedPod<'_>) -> Option<Violation> {
    let ports = |container: &Value| -> BTreeSet<String> {
        let ports = meta::list_at(container, &["ports"]).iter().map(|port| meta::integer_at(port, &["hostPort"]));
        ports.filter(|port| *port != 0).map(|port| port.to_string()).collect()
    };
    let names = pod.matching_containers(|container| !ports(container).is_empty());
    let all: Vec<String> = pod.containers().flat_map(ports).collect::<BTreeSet<_>>().into_iter().collect();
    let (uses, what) = (pluralize(names.len(), "uses", "use"), pluralize(all.len(), "hostPort", "hostPorts"));
    (!names.is_empty()).then(|| Violation {
        reason: "hostPort",
        detail: format!("{} {uses} {what} {}", format_containers(&names), all.join(", ")),
    })
}

pub fn check_probe_hosts(pod: &EvaluatedPod<'_>) -> Option<Violation> {
    const HANDLER_PATHS: [&[&str]; 5] = [
        &["livenessProbe"],
        &["readinessProbe"],
        &["startupProbe"],
        &["lifecycle", "postStart"],
        &["lifecycle", "preStop"],
    ];
    let hosts = |container: &Value| -> BTreeSet<String> {
        let handlers = HANDLER_PATHS.iter().filter_map(|path| meta::value_at(container, path));
        let hosts =
            handlers.flat_map(|handler| ["httpGet", "tcpSocket"].map(|how| meta::string_at(handler, &[how, "host"])));
        hosts.filter(|host| !host.is_empty()).map(str::to_owned).collect()
    };
    let names: BTreeSet<&str> = pod.matching_containers(|container| !hosts(container).is_empty()).into_iter().collect();
    let names: Vec<&str> = names.into_iter().collect();
    let all: BTreeSet<String> = pod.containers().flat_map(hosts).collect();
    let (uses, what) = (
        pluralize(names.len(), "uses", "use"),
        pluralize(all.len(), "probe or lifecycle host", "probe or lifecycle hosts"),
    );
    (!names.is_empty()).then(|| Violation {
        reason: "probe or lifecycle host",
        detail: format!("{} {uses} {what} {}", format_containers(&names), join_quoted(all)),
    })
}

pub fn check_privileged(pod: &EvaluatedPod<'_>) -> Option<Violation> {
    let names = pod.matching_containers(|container| context_field(container, "privileged") == Some(&Value::Bool(true)));
    (!names.is_empty()).then(|| Violation {
        reason: "privileged",
        detail: format!("{} must not set securityContext.privileged=true", format_containers(&names)),
    })
}

pub fn check_proc_mount(pod: &EvaluatedPod<'_>) -> Option<Violation> {
    let other = |container: &Value| context_field(container, "procMount").is_some_and(|mount| mount != "Default");
    let names = pod.matching_containers(other);
    let mounts = pod.containers().filter(|container| other(container));
    let mounts: BTreeSet<&str> =
        mounts.filter_map(|container| context_field(container, "procMount")).filter_map(Value::as_str).collect();
    (!names.is_empty()).then(|| Violation {
        reason: "procMount",
        detail: format!(
            "{} must not set securityContext.procMount to {}",
            format_containers(&names),
            join_quoted(mounts)
        ),
    })
}

pub fn check_selinux_options(pod: &EvaluatedPod<'_>) -> Option<Violation> {
    check_selinux_types(pod, &SELINUX[..4])
}

pub fn check_selinux_options_with_engine(pod: &EvaluatedPod<'_>) -> Option<Violation> {
    check_selinux_types(pod, &SELINUX)
}

fn check_selinux_types(pod: &EvaluatedPod<'_>, allowed: &[&str]) -> Option<Violation> {
    let other_type = |options: &Value| !allowed.contains(&meta::string_at(options, &["type"]));
    let sets = |options: &Value, field: &str| !meta::string_at(options, &[field]).is_empty();
    let bad = |options: Option<&Value>| {
        options.is_some_and(|options| other_type(options) || sets(options, "user") || sets(options, "role"))
    };
    let names = pod.matching_containers(|container| bad(context_field(container, "seLinuxOptions")));
    let by = format_setters(bad(pod.security_context("seLinuxOptions")), &names)?;
    let all: Vec<&Value> = pod
        .security_context("seLinuxOptions")
        .into_iter()
        .chain(pod.containers().filter_map(|c| context_field(c, "seLinuxOptions")))
        .collect();
    let types: BTreeSet<&str> =
        all.iter().filter(|options| other_type(options)).map(|options| meta::string_at(options, &["type"])).collect();
    let mut what = Vec::new();
    if !types.is_empty() {
        what.push(format!("{} {}", pluralize(types.len(), "type", "types"), join_quoted(&types)));
    }
    for field in ["user", "role"] {
        if all.iter().any(|options| sets(options, field)) {
            what.push(format!("{field} may not be set"));
        }
    }
    let detail = format!("{by} set forbidden securityContext.seLinuxOptions: {}", what.join("; "));
    Some(Violation { reason: "seLinuxOptions", detail })
}

pub fn check_seccomp_annotations(pod: &EvaluatedPod<'_>) -> Option<Violation> {
    let bad = |key: String| {
        let value = meta::value_at(pod.metadata, &["annotations", &key])?.as_str()?;
        let safe = matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
        (!safe).then(|| format!("{key}={value:?}"))
    };
    let of_containers = pod
        .containers()
        .filter_map(|container| bad(format!("{SECCOMP_CONTAINER}{}", meta::string_at(container, &["name"]))));
    let all: BTreeSet<String> = of_containers.chain(bad(SECCOMP_ANNOTATION.to_owned())).collect();
    let what = pluralize(all.len(), "annotation", "annotations");
    let detail = format!("forbidden {what} {}", all.iter().cloned().collect::<Vec<_>>().join(", "));
    (!all.is_empty()).then_some(Violation { reason: "seccompProfile", detail })
}

pub fn check_seccomp_profile(pod: &EvaluatedPod<'_>) -> Option<Violation> {
    let bad = |profile: Option<&Value>| profile.is_some_and(|profile| !is_safe_profile(profile));
    let names = pod.matching_containers(|container| bad(context_field(container, "seccompProfile")));
    let by = format_setters(bad(pod.security_context("seccompProfile")), &names)?;
    let profiles = pod.containers().filter_map(|container| context_field(container, "seccompProfile"));
    let profiles = profiles.chain(pod.security_context("seccompProfile")).filter(|profile| bad(Some(profile)));
    let values: BTreeSet<&str> = profiles.map(|profile| meta::string_at(profile, &["type"])).collect();
    let detail = format!("{by} must not set securityContext.seccompProfile.type to {}", join_quoted(values));
    Some(Violation { reason: "seccompProfile", detail })
}

pub fn check_sysctls(pod: &EvaluatedPod<'_>, allowed: usize) -> Option<Violation> {
    let set = meta::list_at(pod.spec, &["securityContext", "sysctls"])
        .iter()
        .map(|sysctl| meta::string_at(sysctl, &["name"]));
    let bad: Vec<&str> = set.filter(|name| !SYSCTLS[..allowed].contains(name)).collect();
    (!bad.is_empty()).then(|| Violation { reason: "forbidden sysctls", detail: bad.join(", ") })
}

pub fn check_windows_host_process(pod: &EvaluatedPod<'_>) -> Option<Violation> {
    let bad = |options: Option<&Value>| options.is_some_and(|options| options["hostProcess"] == true);
    let names = pod.matching_containers(|container| bad(context_field(container, "windowsOptions")));
    let by = format_setters(bad(pod.security_context("windowsOptions")), &names)?;
    let detail = format!("{by} must not set securityContext.windowsOptions.hostProcess=true");
    Some(Violation { reason: "hostProcess", detail })
}
