//! The table of checks: the versions each applies to, and the baseline checks that a restricted check overrides.

use std::collections::BTreeSet;

use api::{Value, meta};

use super::{
    baseline,
    policy::{Bound, Level, Version},
    restricted,
};

/// The newest version in which a check changed; later versions use its checks.
const NEWEST: u32 = 35;

/// A pod or the pod template of a workload.
pub struct Pod<'a> {
    /// The pod's metadata.
    pub metadata: &'a Value,
    /// The pod's spec.
    pub spec: &'a Value,
}

/// A violation of a pod security level.
pub struct Violation {
    /// The forbidden reason, in short.
    pub reason: &'static str,
    /// The containers and fields concerned.
    pub detail: String,
}

type Check = fn(&Pod<'_>) -> Option<Violation>;

struct Rule {
    name: &'static str,
    level: Level,
    /// The revisions of the check with their first minor version, oldest first.
    forms: &'static [(u32, Check)],
    /// The baseline check that it overrides.
    replaces: &'static str,
}

const fn rule(name: &'static str, forms: &'static [(u32, Check)]) -> Rule {
    Rule { name, level: Level::Baseline, forms, replaces: "" }
}

const fn strict(name: &'static str, replaces: &'static str, forms: &'static [(u32, Check)]) -> Rule {
    Rule { name, level: Level::Restricted, forms, replaces }
}

/// All checks, in the order in which violations are reported.
const RULES: &[Rule] = &[
    rule("appArmorProfile", &[(0, baseline::app_armor)]),
    rule("capabilities_baseline", &[(0, baseline::capabilities)]),
    rule("hostNamespaces", &[(0, baseline::host_namespaces)]),
    rule("hostPathVolumes", &[(0, baseline::host_paths)]),
    rule("hostPorts", &[(0, baseline::host_ports)]),
    rule("hostProbesAndHostLifecycle", &[(34, baseline::probe_hosts)]),
    rule("privileged", &[(0, baseline::privileged)]),
    rule("procMount", &[(0, baseline::proc_mount), (35, |pod| pod.unless_own_users(baseline::proc_mount))]),
    rule("seLinuxOptions", &[(0, baseline::selinux), (31, baseline::selinux_with_engine)]),
    rule("seccompProfile_baseline", &[(0, baseline::seccomp_annotations), (19, baseline::seccomp)]),
    rule(
        "sysctls",
        &[
            (0, |pod| baseline::sysctls(pod, 5)),
            (27, |pod| baseline::sysctls(pod, 6)),
            (29, |pod| baseline::sysctls(pod, 10)),
            (32, |pod| baseline::sysctls(pod, 12)),
        ],
    ),
    rule("windowsHostProcess", &[(0, baseline::host_process)]),
    strict(
        "allowPrivilegeEscalation",
        "",
        &[(8, restricted::escalation), (25, |pod| pod.unless_windows(restricted::escalation))],
    ),
    strict(
        "capabilities_restricted",
        "capabilities_baseline",
        &[(22, restricted::capabilities), (25, |pod| pod.unless_windows(restricted::capabilities))],
    ),
    strict("procMount_restricted", "procMount", &[(35, baseline::proc_mount)]),
    strict("restrictedVolumes", "hostPathVolumes", &[(0, restricted::volumes)]),
    strict("runAsNonRoot", "", &[(0, restricted::non_root), (35, |pod| pod.unless_own_users(restricted::non_root))]),
    strict("runAsUser", "", &[(23, restricted::user), (35, |pod| pod.unless_own_users(restricted::user))]),
    strict(
        "seccompProfile_restricted",
        "seccompProfile_baseline",
        &[(19, restricted::seccomp), (25, |pod| pod.unless_windows(restricted::seccomp))],
    ),
];

/// Evaluates a pod against a level and version.
pub fn violations(bound: Bound, pod: &Pod<'_>) -> Vec<Violation> {
    let version = match bound.version {
        Version::Latest => NEWEST,
        Version::Minor(minor) => minor.min(NEWEST),
    };
    let form = |rule: &Rule| rule.forms.iter().rev().find(|(since, _)| *since <= version).map(|(_, check)| *check);
    let rules = || RULES.iter().filter(|rule| rule.level <= bound.level && bound.level > Level::Privileged);
    let replaced: BTreeSet<&str> = rules().filter(|rule| form(rule).is_some()).map(|rule| rule.replaces).collect();
    rules().filter(|rule| !replaced.contains(rule.name)).filter_map(form).filter_map(|check| check(pod)).collect()
}

/// Formats all violations with their details in one line.
pub fn told(violations: &[Violation]) -> String {
    let tell = |violation: &Violation| match violation.detail.as_str() {
        "" => violation.reason.to_owned(),
        detail => format!("{} ({detail})", violation.reason),
    };
    violations.iter().map(tell).collect::<Vec<_>>().join(", ")
}

impl<'a> Pod<'a> {
    /// Iterates over all containers.
    pub fn containers(&self) -> impl Iterator<Item = &'a Value> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"]
            .into_iter()
            .flat_map(move |list| meta::list_at(spec, &[list]))
    }

    /// The names of the containers that satisfy the predicate.
    pub fn names(&self, bad: impl Fn(&Value) -> bool) -> Vec<&'a str> {
        self.containers()
            .filter(|container| bad(container))
            .map(|container| meta::string_at(container, &["name"]))
            .collect()
    }

    /// A field of the pod security context.
    pub fn context(&self, field: &str) -> Option<&'a Value> {
        meta::value_at(self.spec, &["securityContext", field])
    }

    fn unless_windows(&self, check: Check) -> Option<Violation> {
        if meta::string_at(self.spec, &["os", "name"]) == "windows" { None } else { check(self) }
    }

    /// Skips a check for pods with their own user namespace, whose root is unprivileged on the host.
    fn unless_own_users(&self, check: Check) -> Option<Violation> {
        if self.spec["hostUsers"] == false { None } else { check(self) }
    }
}

/// A field of a container's security context.
pub fn context<'a>(container: &'a Value, field: &str) -> Option<&'a Value> {
    meta::value_at(container, &["securityContext", field])
}

/// Formats a list as `"a", "b"`.
pub fn quoted<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect::<Vec<_>>().join(", ")
}

/// Formats a list as `container "a"` or `containers "a", "b"`.
pub fn containers(names: &[&str]) -> String {
    format!("{} {}", plural(names.len(), "container", "containers"), quoted(names))
}

/// Formats the setters of a field: the pod, containers, or both.
pub fn setters(pod: bool, names: &[&str]) -> Option<String> {
    let all: Vec<String> =
        pod.then(|| "pod".to_owned()).into_iter().chain((!names.is_empty()).then(|| containers(names))).collect();
    (!all.is_empty()).then(|| all.join(" and "))
}

/// Selects the singular or the plural.
pub fn plural<'a>(count: usize, one: &'a str, more: &'a str) -> &'a str {
    if count == 1 { one } else { more }
}
