//! Checks of the `baseline` level, which prevents known privilege escalations.

use std::collections::BTreeSet;

use api::{Value, meta};

use super::checks::{Pod, Violation, containers, context, plural, quoted, setters};

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

pub fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    let bad = |profile: Option<&Value>| profile.is_some_and(|profile| !is_safe_profile(profile));
    let names = pod.names(|container| bad(context(container, "appArmorProfile")));
    let profiles = pod.containers().filter_map(|container| context(container, "appArmorProfile"));
    let profiles = profiles.chain(pod.context("appArmorProfile")).filter(|profile| bad(Some(profile)));
    let values: BTreeSet<String> = profiles.map(|profile| meta::string_at(profile, &["type"]).to_owned()).collect();
    let annotations = meta::value_at(pod.metadata, &["annotations"]).and_then(Value::as_object).into_iter().flatten();
    let mut forbidden: Vec<String> = annotations
        .filter(|(key, _)| key.starts_with(APP_ARMOR_ANNOTATION))
        .map(|(key, value)| (key, value.as_str().unwrap_or_default()))
        .filter(|(_, value)| !matches!(*value, "" | "runtime/default") && !value.starts_with("localhost/"))
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    forbidden.sort();
    let by = setters(bad(pod.context("appArmorProfile")), &names);
    let noted = (!forbidden.is_empty()).then(|| plural(forbidden.len(), "annotation", "annotations").to_owned());
    let by: Vec<String> = by.into_iter().chain(noted).collect();
    let values: Vec<String> = values.into_iter().chain(forbidden).collect();
    (!by.is_empty()).then(|| Violation {
        reason: plural(values.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles"),
        detail: format!("{} must not set AppArmor profile type to {}", by.join(" and "), quoted(values)),
    })
}

pub fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let beyond = |container: &Value| -> BTreeSet<String> {
        let added =
            meta::list_at(container, &["securityContext", "capabilities", "add"]).iter().filter_map(Value::as_str);
        added.filter(|capability| !CAPABILITIES.contains(capability)).map(str::to_owned).collect()
    };
    let names = pod.names(|container| !beyond(container).is_empty());
    let all: BTreeSet<String> = pod.containers().flat_map(beyond).collect();
    (!names.is_empty()).then(|| Violation {
        reason: "non-default capabilities",
        detail: format!("{} must not include {} in securityContext.capabilities.add", containers(&names), quoted(all)),
    })
}

pub fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let shared: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .iter()
        .filter(|field| pod.spec[**field] == true)
        .map(|field| format!("{field}=true"))
        .collect();
    (!shared.is_empty()).then(|| Violation { reason: "host namespaces", detail: shared.join(", ") })
}

pub fn host_paths(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = meta::list_at(pod.spec, &["volumes"]).iter();
    let bad: Vec<&str> = volumes
        .filter(|volume| meta::value_at(volume, &["hostPath"]).is_some())
        .map(|volume| meta::string_at(volume, &["name"]))
        .collect();
    let what = plural(bad.len(), "volume", "volumes");
    (!bad.is_empty()).then(|| Violation { reason: "hostPath volumes", detail: format!("{what} {}", quoted(bad)) })
}

pub fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let ports = |container: &Value| -> BTreeSet<String> {
        let ports = meta::list_at(container, &["ports"]).iter().map(|port| meta::integer_at(port, &["hostPort"]));
        ports.filter(|port| *port != 0).map(|port| port.to_string()).collect()
    };
    let names = pod.names(|container| !ports(container).is_empty());
    let all: Vec<String> = pod.containers().flat_map(ports).collect::<BTreeSet<_>>().into_iter().collect();
    let (uses, what) = (plural(names.len(), "uses", "use"), plural(all.len(), "hostPort", "hostPorts"));
    (!names.is_empty()).then(|| Violation {
        reason: "hostPort",
        detail: format!("{} {uses} {what} {}", containers(&names), all.join(", ")),
    })
}

pub fn probe_hosts(pod: &Pod<'_>) -> Option<Violation> {
    const PLACES: [&[&str]; 5] = [
        &["livenessProbe"],
        &["readinessProbe"],
        &["startupProbe"],
        &["lifecycle", "postStart"],
        &["lifecycle", "preStop"],
    ];
    let hosts = |container: &Value| -> BTreeSet<String> {
        let handlers = PLACES.iter().filter_map(|place| meta::value_at(container, place));
        let hosts =
            handlers.flat_map(|handler| ["httpGet", "tcpSocket"].map(|how| meta::string_at(handler, &[how, "host"])));
        hosts.filter(|host| !host.is_empty()).map(str::to_owned).collect()
    };
    let names: BTreeSet<&str> = pod.names(|container| !hosts(container).is_empty()).into_iter().collect();
    let names: Vec<&str> = names.into_iter().collect();
    let all: BTreeSet<String> = pod.containers().flat_map(hosts).collect();
    let (uses, what) =
        (plural(names.len(), "uses", "use"), plural(all.len(), "probe or lifecycle host", "probe or lifecycle hosts"));
    (!names.is_empty()).then(|| Violation {
        reason: "probe or lifecycle host",
        detail: format!("{} {uses} {what} {}", containers(&names), quoted(all)),
    })
}

pub fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let names = pod.names(|container| context(container, "privileged") == Some(&Value::Bool(true)));
    (!names.is_empty()).then(|| Violation {
        reason: "privileged",
        detail: format!("{} must not set securityContext.privileged=true", containers(&names)),
    })
}

pub fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let other = |container: &Value| context(container, "procMount").is_some_and(|mount| mount != "Default");
    let names = pod.names(other);
    let mounts = pod.containers().filter(|container| other(container));
    let mounts: BTreeSet<&str> =
        mounts.filter_map(|container| context(container, "procMount")).filter_map(Value::as_str).collect();
    (!names.is_empty()).then(|| Violation {
        reason: "procMount",
        detail: format!("{} must not set securityContext.procMount to {}", containers(&names), quoted(mounts)),
    })
}

pub fn selinux(pod: &Pod<'_>) -> Option<Violation> {
    selinux_types(pod, &SELINUX[..4])
}

pub fn selinux_with_engine(pod: &Pod<'_>) -> Option<Violation> {
    selinux_types(pod, &SELINUX)
}

fn selinux_types(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let other_type = |options: &Value| !allowed.contains(&meta::string_at(options, &["type"]));
    let sets = |options: &Value, field: &str| !meta::string_at(options, &[field]).is_empty();
    let bad = |options: Option<&Value>| {
        options.is_some_and(|options| other_type(options) || sets(options, "user") || sets(options, "role"))
    };
    let names = pod.names(|container| bad(context(container, "seLinuxOptions")));
    let by = setters(bad(pod.context("seLinuxOptions")), &names)?;
    let all: Vec<&Value> = pod
        .context("seLinuxOptions")
        .into_iter()
        .chain(pod.containers().filter_map(|c| context(c, "seLinuxOptions")))
        .collect();
    let types: BTreeSet<&str> =
        all.iter().filter(|options| other_type(options)).map(|options| meta::string_at(options, &["type"])).collect();
    let mut what = Vec::new();
    if !types.is_empty() {
        what.push(format!("{} {}", plural(types.len(), "type", "types"), quoted(&types)));
    }
    for field in ["user", "role"] {
        if all.iter().any(|options| sets(options, field)) {
            what.push(format!("{field} may not be set"));
        }
    }
    let detail = format!("{by} set forbidden securityContext.seLinuxOptions: {}", what.join("; "));
    Some(Violation { reason: "seLinuxOptions", detail })
}

pub fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let bad = |key: String| {
        let value = meta::value_at(pod.metadata, &["annotations", &key])?.as_str()?;
        let safe = matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
        (!safe).then(|| format!("{key}={value:?}"))
    };
    let of_containers = pod
        .containers()
        .filter_map(|container| bad(format!("{SECCOMP_CONTAINER}{}", meta::string_at(container, &["name"]))));
    let all: BTreeSet<String> = of_containers.chain(bad(SECCOMP_ANNOTATION.to_owned())).collect();
    let what = plural(all.len(), "annotation", "annotations");
    let detail = format!("forbidden {what} {}", all.iter().cloned().collect::<Vec<_>>().join(", "));
    (!all.is_empty()).then_some(Violation { reason: "seccompProfile", detail })
}

pub fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    let bad = |profile: Option<&Value>| profile.is_some_and(|profile| !is_safe_profile(profile));
    let names = pod.names(|container| bad(context(container, "seccompProfile")));
    let by = setters(bad(pod.context("seccompProfile")), &names)?;
    let profiles = pod.containers().filter_map(|container| context(container, "seccompProfile"));
    let profiles = profiles.chain(pod.context("seccompProfile")).filter(|profile| bad(Some(profile)));
    let values: BTreeSet<&str> = profiles.map(|profile| meta::string_at(profile, &["type"])).collect();
    let detail = format!("{by} must not set securityContext.seccompProfile.type to {}", quoted(values));
    Some(Violation { reason: "seccompProfile", detail })
}

pub fn sysctls(pod: &Pod<'_>, allowed: usize) -> Option<Violation> {
    let set = meta::list_at(pod.spec, &["securityContext", "sysctls"])
        .iter()
        .map(|sysctl| meta::string_at(sysctl, &["name"]));
    let bad: Vec<&str> = set.filter(|name| !SYSCTLS[..allowed].contains(name)).collect();
    (!bad.is_empty()).then(|| Violation { reason: "forbidden sysctls", detail: bad.join(", ") })
}

pub fn host_process(pod: &Pod<'_>) -> Option<Violation> {
    let bad = |options: Option<&Value>| options.is_some_and(|options| options["hostProcess"] == true);
    let names = pod.names(|container| bad(context(container, "windowsOptions")));
    let by = setters(bad(pod.context("windowsOptions")), &names)?;
    let detail = format!("{by} must not set securityContext.windowsOptions.hostProcess=true");
    Some(Violation { reason: "hostProcess", detail })
}
