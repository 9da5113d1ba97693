//! Validation of security contexts, of pods and of containers.

use super::windows;
use crate::{
    Value,
    validate::{Errors, at::At, path},
};

const PROFILE_TYPES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];
const ID: std::ops::RangeInclusive<i64> = 0..=i32::MAX as i64;

fn id(at: &At, e: &mut Errors) {
    at.in_range(e, *ID.start(), *ID.end());
}

/// The faults of the security context of a pod.
pub(super) fn of_pod(spec: &At, old: Option<&Value>, e: &mut Errors) {
    let at = spec.get("securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(&at.get(field), e);
    }
    at.get("supplementalGroups").items().for_each(|group| id(&group, e));
    if spec.get("shareProcessNamespace").is_true() && spec.get("hostPID").is_true() {
        let shared = at.called("shareProcessNamespace", spec.get("shareProcessNamespace").value);
        shared.invalid(e, "ShareProcessNamespace and HostPID cannot both be enabled");
    }
    sysctls(&at.get("sysctls"), spec, old, e);
    at.get("fsGroupChangePolicy").one_of(e, &["Always", "OnRootMismatch"]);
    seccomp(&at.get("seccompProfile"), e);
    windows::options(&at.get("windowsOptions"), e);
    app_armor(&at.get("appArmorProfile"), e);
    at.get("supplementalGroupsPolicy").one_of(e, &["Merge", "Strict"]);
    // Mounting with a label is off by default upstream; what has it already keeps it.
    let mounts = old.is_some_and(|old| old["securityContext"]["seLinuxChangePolicy"] == "MountOption");
    at.get("seLinuxChangePolicy").one_of(e, if mounts { &["MountOption", "Recursive"] } else { &["Recursive"] });
}

fn sysctls(list: &At, spec: &At, old: Option<&Value>, e: &mut Errors) {
    const PATTERN: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let mut seen = Vec::new();
    // What older servers let pass stays allowed.
    let lenient = old.is_some_and(|old| {
        let mut e = Vec::new();
        At::top(old).get("securityContext").get("sysctls").items().for_each(|one| of_host(&one, &At::top(old), &mut e));
        !e.is_empty()
    });
    for sysctl in list.items() {
        let name = sysctl.get("name");
        if name.is_empty() {
            name.required(e, "");
        } else if !is_sysctl(name.text()) {
            name.invalid_text(e, format!("must have at most 253 characters and match regex {PATTERN}"));
        } else if seen.contains(&name.text()) {
            name.duplicate(e, name.text());
        }
        if !lenient {
            of_host(&sysctl, spec, e);
        }
        seen.push(name.text());
    }
}

fn is_sysctl(name: &str) -> bool {
    let segment = |segment: &str| {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        edge(segment.chars().next())
            && edge(segment.chars().last())
            && segment.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_')
    };
    name.len() <= 253 && name.split(['.', '/']).all(segment)
}

/// A setting of a namespace that is the host's is not the pod's to change.
fn of_host(sysctl: &At, spec: &At, e: &mut Errors) {
    const IPC: &[&str] = &["kernel.sem", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced"];
    let name = sysctl.get("name");
    let normal = name.text().replace('/', ".");
    if spec.get("hostNetwork").is_true() && normal.starts_with("net.") {
        name.invalid_text(e, "may not be specified when 'hostNetwork' is true");
    } else if spec.get("hostIPC").is_true()
        && (IPC.contains(&normal.as_str()) || normal.starts_with("fs.mqueue.") || normal.starts_with("kernel.msg"))
    {
        name.invalid_text(e, "may not be specified when 'hostIPC' is true");
    }
}

fn seccomp(at: &At, e: &mut Errors) {
    if !at.exists() {
        return;
    }
    let (kind, file) = (at.get("type"), at.get("localhostProfile"));
    if kind.is_empty() {
        kind.required(e, "type is required when seccompProfile is set");
    } else {
        kind.one_of(e, PROFILE_TYPES);
    }
    if kind.text() != "Localhost" {
        if file.exists() {
            let shown = crate::validate::render::internal("core/v1.SeccompProfile", at.value);
            let bad = crate::validate::error::Bad::Shown(shown);
            file.invalid_as(e, bad, "can only be set when seccomp type is Localhost");
        }
    } else if file.exists() {
        path::relative(&file, e);
    } else {
        file.required(e, "must be set when seccomp type is Localhost");
    }
}

fn app_armor(at: &At, e: &mut Errors) {
    const MISSING: &str = "must be set when AppArmor type is Localhost";
    if !at.exists() {
        return;
    }
    let (kind, file) = (at.get("type"), at.get("localhostProfile"));
    match kind.text() {
        "Localhost" if !file.exists() => file.required(e, MISSING),
        "Localhost" => {
            if file.text().trim() != file.text() {
                file.invalid_text(e, "must not be padded with whitespace");
            } else if file.is_empty() {
                file.required(e, MISSING);
            }
            if file.text().len() > 4095 {
                file.too_long(e, 4095);
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if file.exists() {
                file.invalid(e, "can only be set when AppArmor type is Localhost");
            }
        }
        "" => kind.required(e, "type is required when appArmorProfile is set"),
        _ => kind.unsupported(e, PROFILE_TYPES),
    }
}

/// The faults of the security context of a container.
pub(super) fn of_container(at: &At, host_users: bool, e: &mut Errors) {
    if !at.exists() {
        return;
    }
    id(&at.get("runAsUser"), e);
    id(&at.get("runAsGroup"), e);
    let mount = at.get("procMount");
    mount.one_of(e, &["Default", "Unmasked"]);
    if host_users && mount.text() == "Unmasked" {
        mount.invalid(e, "`hostUsers` must be false to use `Unmasked`");
    }
    seccomp(&at.get("seccompProfile"), e);
    if at.get("allowPrivilegeEscalation").value == &Value::Bool(false) {
        no_escalation(at, e);
    }
    windows::options(&at.get("windowsOptions"), e);
    app_armor(&at.get("appArmorProfile"), e);
}

fn no_escalation(at: &At, e: &mut Errors) {
    let ty = "core/v1.SecurityContext";
    if at.get("privileged").is_true() {
        at.invalid_internal(e, ty, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
    }
    for capability in at.get("capabilities").get("add").texts() {
        if capability == "CAP_SYS_ADMIN" {
            let message = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            at.invalid_internal(e, ty, message);
        }
    }
}
