//! Validation of security contexts and Windows options beyond the rule tables.

use super::{all_containers, visit_containers};
use crate::validate::prelude::*;

/// Validates sysctls.
pub fn validate_sysctls(list: &FieldCursor, e: &mut ErrorList) {
    const PATTERN: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let mut seen = Vec::new();
    let spec = list.ancestor(2);
    // Stored invalid sysctls are tolerated.
    let before = FieldCursor::for_create(list.old);
    let lenient = {
        let mut e = Vec::new();
        before.items().for_each(|one| check_host_sysctl(&one, &spec.old_cursor(), &mut e));
        !e.is_empty()
    };
    for sysctl in list.items() {
        let name = sysctl.get("name");
        if name.is_empty() {
            name.required(e, "");
        } else if !is_sysctl_name(name.text()) {
            name.invalid_text(e, format!("must have at most 253 characters and match regex {PATTERN}"));
        } else if seen.contains(&name.text()) {
            name.duplicate(e, name.text());
        }
        if !lenient {
            check_host_sysctl(&sysctl, spec, e);
        }
        seen.push(name.text());
    }
}

fn is_sysctl_name(name: &str) -> bool {
    let segment = |segment: &str| {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        edge(segment.chars().next())
            && edge(segment.chars().last())
            && segment.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_')
    };
    name.len() <= 253 && name.split(['.', '/']).all(segment)
}

/// Rejects sysctls of a namespace shared with the host.
fn check_host_sysctl(sysctl: &FieldCursor, spec: &FieldCursor, e: &mut ErrorList) {
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

/// Rejects CAP_SYS_ADMIN without privilege escalation.
pub fn validate_no_sys_admin(at: &FieldCursor, e: &mut ErrorList) {
    let capabilities = at.get("capabilities");
    for _ in capabilities.get("add").texts().filter(|capability| *capability == "CAP_SYS_ADMIN") {
        let message = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        at.invalid_struct(e, "core/v1.SecurityContext", message);
    }
}

/// Requires all or no containers to be HostProcess containers.
pub fn validate_host_process(spec: &FieldCursor, e: &mut ErrorList) {
    let of = |value: &Value| value.get("securityContext")?.get("windowsOptions")?.get("hostProcess")?.as_bool();
    let pod = of(spec.value);
    let mut counts = (0, 0);
    for (_, _, container) in all_containers(spec) {
        counts.0 += 1;
        counts.1 += usize::from(of(container).or(pod) == Some(true));
    }
    if pod.is_none() && counts.1 == 0 {
        return;
    }
    visit_containers(spec, |container| {
        if let (Some(pod), Some(own)) = (pod, of(container.value))
            && pod != own
        {
            let context = container.get("securityContext");
            let options = context.get("windowsOptions");
            let message = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            options.get("hostProcess").invalid(e, message);
        }
    });
    let (all, count) = counts;
    if count == 0 {
        return;
    }
    if count != all {
        let message = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        spec.invalid_as(e, "", message);
    }
    if !spec.get("hostNetwork").is_true() {
        let message = "hostNetwork must be true if pod contains any hostProcess containers";
        spec.get("hostNetwork").invalid_as(e, false, message);
    }
}

/// Validates a Windows user name.
pub fn validate_user_name(at: &FieldCursor, e: &mut ErrorList) {
    let text = at.text();
    let parts: Vec<&str> = text.split('\\').collect();
    let (domain, user) = match parts[..] {
        _ if text.is_empty() => return at.invalid(e, "runAsUserName cannot be an empty string"),
        _ if text.contains(|c: char| c.is_ascii_control()) => {
            return at.invalid(e, "runAsUserName cannot contain control characters");
        }
        [user] => (None, user),
        [domain, user] => (Some(domain), user),
        _ => return at.invalid(e, "runAsUserName cannot contain more than one backslash"),
    };
    if domain.is_some_and(|domain| domain.len() >= 256) {
        at.invalid(e, "runAsUserName's Domain length must be under 256 characters");
    }
    if domain.is_some_and(|domain| !is_netbios_name(domain) && !is_dns_name(domain)) {
        at.invalid(e, "runAsUserName's Domain doesn't match the NetBios nor the DNS format");
    }
    if user.is_empty() {
        at.invalid(e, "runAsUserName's User cannot be empty");
    } else if user.len() > 104 {
        at.invalid(e, "runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.chars().all(|c| c == '.' || c == ' ') {
        at.invalid(e, "runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(|c: char| "\"/\\:;|=,+*?<>@[]".contains(c)) {
        at.invalid(e, "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
}

fn is_netbios_name(text: &str) -> bool {
    let right = |c: char| !"\\/:*?\"<>|".contains(c);
    (1..=15).contains(&text.chars().count()) && !text.starts_with('.') && text.chars().all(right)
}

fn is_dns_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    text.split('.').all(label)
}
