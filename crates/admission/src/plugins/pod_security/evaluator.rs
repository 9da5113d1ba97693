//! The table of checks: the versions each applies to, and the baseline checks that a restricted check overrides.

use std::collections::BTreeSet;

use super::{
    baseline,
    checks::{EvaluatedPod, PodCheck, Violation},
    policy::{LevelVersion, PodSecurityLevel, StandardsVersion},
    restricted,
};

/// The newest version in which a check changed; later versions use its checks.
const NEWEST_CHANGE: u32 = 35;

struct VersionedCheck {
    name: &'static str,
    level: PodSecurityLevel,
    /// The revisions of the check with their first minor version, oldest first.
    forms: &'static [(u32, PodCheck)],
    /// The baseline check that it overrides.
    replaces: &'static str,
}

const fn baseline_check(name: &'static str, forms: &'static [(u32, PodCheck)]) -> VersionedCheck {
    VersionedCheck { name, level: PodSecurityLevel::Baseline, forms, replaces: "" }
}

const fn restricted_check(
    name: &'static str,
    replaces: &'static str,
    forms: &'static [(u32, PodCheck)],
) -> VersionedCheck {
    VersionedCheck { name, level: PodSecurityLevel::Restricted, forms, replaces }
}

/// All checks, in the order in which violations are reported.
const CHECKS: &[VersionedCheck] = &[
    baseline_check("appArmorProfile", &[(0, baseline::check_app_armor)]),
    baseline_check("capabilities_baseline", &[(0, baseline::check_capabilities)]),
    baseline_check("hostNamespaces", &[(0, baseline::check_host_namespaces)]),
    baseline_check("hostPathVolumes", &[(0, baseline::check_host_paths)]),
    baseline_check("hostPorts", &[(0, baseline::check_host_ports)]),
    baseline_check("hostProbesAndHostLifecycle", &[(34, baseline::check_probe_hosts)]),
    baseline_check("privileged", &[(0, baseline::check_privileged)]),
    baseline_check(
        "procMount",
        &[(0, baseline::check_proc_mount), (35, |pod| pod.unless_user_namespace(baseline::check_proc_mount))],
    ),
    baseline_check(
        "seLinuxOptions",
        &[(0, baseline::check_selinux_options), (31, baseline::check_selinux_options_with_engine)],
    ),
    baseline_check(
        "seccompProfile_baseline",
        &[(0, baseline::check_seccomp_annotations), (19, baseline::check_seccomp_profile)],
    ),
    baseline_check(
        "sysctls",
        &[
            (0, |pod| baseline::check_sysctls(pod, 5)),
            (27, |pod| baseline::check_sysctls(pod, 6)),
            (29, |pod| baseline::check_sysctls(pod, 10)),
            (32, |pod| baseline::check_sysctls(pod, 12)),
        ],
    ),
    baseline_check("windowsHostProcess", &[(0, baseline::check_windows_host_process)]),
    restricted_check(
        "allowPrivilegeEscalation",
        "",
        &[
            (8, restricted::check_allow_privilege_escalation),
            (25, |pod| pod.unless_windows(restricted::check_allow_privilege_escalation)),
        ],
    ),
    restricted_check(
        "capabilities_restricted",
        "capabilities_baseline",
        &[(22, restricted::check_capabilities), (25, |pod| pod.unless_windows(restricted::check_capabilities))],
    ),
    restricted_check("procMount_restricted", "procMount", &[(35, baseline::check_proc_mount)]),
    restricted_check("restrictedVolumes", "hostPathVolumes", &[(0, restricted::check_restricted_volumes)]),
    restricted_check(
        "runAsNonRoot",
        "",
        &[
            (0, restricted::check_run_as_non_root),
            (35, |pod| pod.unless_user_namespace(restricted::check_run_as_non_root)),
        ],
    ),
    restricted_check(
        "runAsUser",
        "",
        &[(23, restricted::check_run_as_user), (35, |pod| pod.unless_user_namespace(restricted::check_run_as_user))],
    ),
    restricted_check(
        "seccompProfile_restricted",
        "seccompProfile_baseline",
        &[(19, restricted::check_seccomp_profile), (25, |pod| pod.unless_windows(restricted::check_seccomp_profile))],
    ),
];

/// Evaluates a pod against a level and version.
pub fn evaluate_pod(bound: LevelVersion, pod: &EvaluatedPod<'_>) -> Vec<Violation> {
    let version = match bound.version {
        StandardsVersion::Latest => NEWEST_CHANGE,
        StandardsVersion::Minor(minor) => minor.min(NEWEST_CHANGE),
    };
    let form =
        |rule: &VersionedCheck| rule.forms.iter().rev().find(|(since, _)| *since <= version).map(|(_, check)| *check);
    let rules = || CHECKS.iter().filter(|rule| rule.level <= bound.level && bound.level > PodSecurityLevel::Privileged);
    let replaced: BTreeSet<&str> = rules().filter(|rule| form(rule).is_some()).map(|rule| rule.replaces).collect();
    rules().filter(|rule| !replaced.contains(rule.name)).filter_map(form).filter_map(|check| check(pod)).collect()
}

/// Formats all violations with their details in one line.
pub fn format_violations(violations: &[Violation]) -> String {
    let tell = |violation: &Violation| match violation.detail.as_str() {
        "" => violation.reason.to_owned(),
        detail => format!("{} ({detail})", violation.reason),
    };
    violations.iter().map(tell).collect::<Vec<_>>().join(", ")
}
