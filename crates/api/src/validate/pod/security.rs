//! Security contexts, as far as the tables cannot say what is right.

use crate::validate::prelude::*;

pub(super) const FUNCTIONS: Functions = functions! { sysctls no_sys_admin };

/// The faults of settings of the kernel.
fn sysctls(list: &At, e: &mut Errors) {
    const PATTERN: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let mut seen = Vec::new();
    let spec = list.up(2);
    // What older servers let pass stays allowed.
    let before = At::top(list.old);
    let lenient = {
        let mut e = Vec::new();
        before.items().for_each(|one| of_host(&one, &spec.before(), &mut e));
        !e.is_empty()
    };
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

/// Whoever may administer the system may do more than its parent.
fn no_sys_admin(at: &At, e: &mut Errors) {
    let capabilities = at.get("capabilities");
    for _ in capabilities.get("add").texts().filter(|capability| *capability == "CAP_SYS_ADMIN") {
        let message = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        at.invalid_struct(e, "core/v1.SecurityContext", message);
    }
}
