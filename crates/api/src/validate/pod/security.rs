//! Security contexts, and what depends on the operating system being Windows, as far as the tables cannot say it.

use super::{containers, visit};
use crate::validate::prelude::*;

/// The faults of settings of the kernel.
pub fn sysctls(list: &At, e: &mut Errors) {
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
pub fn no_sys_admin(at: &At, e: &mut Errors) {
    let capabilities = at.get("capabilities");
    for _ in capabilities.get("add").texts().filter(|capability| *capability == "CAP_SYS_ADMIN") {
        let message = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        at.invalid_struct(e, "core/v1.SecurityContext", message);
    }
}

/// Containers that are processes of the host: all or none.
pub fn host_process(spec: &At, e: &mut Errors) {
    let of = |value: &Value| value.get("securityContext")?.get("windowsOptions")?.get("hostProcess")?.as_bool();
    let pod = of(spec.value);
    let mut counts = (0, 0);
    for (_, _, container) in containers(spec) {
        counts.0 += 1;
        counts.1 += usize::from(of(container).or(pod) == Some(true));
    }
    if pod.is_none() && counts.1 == 0 {
        return;
    }
    visit(spec, |container| {
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

/// The faults of a user's name.
pub fn user_name(at: &At, e: &mut Errors) {
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
    if domain.is_some_and(|domain| !is_net_bios(domain) && !is_dns(domain)) {
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

fn is_net_bios(text: &str) -> bool {
    let right = |c: char| !"\\/:*?\"<>|".contains(c);
    (1..=15).contains(&text.chars().count()) && !text.starts_with('.') && text.chars().all(right)
}

fn is_dns(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    text.split('.').all(label)
}
