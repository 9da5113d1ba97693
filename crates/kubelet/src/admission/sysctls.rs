//! Safe sysctls: those that are namespaced and cannot harm other pods. All others are rejected.

use k8s_openapi::api::core::v1::PodSpec;

use super::AdmissionRejection;

/// Sysctls of upstream's allow-list.
const SAFE_SYSCTLS: [&str; 12] = [
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

/// Rejects a pod with a sysctl that is neither safe nor `allowed`, or that would change the host's namespace.
pub(super) fn check_sysctls(spec: &PodSpec, allowed: &[String]) -> Result<(), AdmissionRejection> {
    let sysctls = spec.security_context.iter().flat_map(|context| context.sysctls.iter().flatten());
    for sysctl in sysctls {
        let name = normalize_sysctl_name(&sysctl.name);
        let (namespace, shared) = match name.starts_with("net.") {
            true => ("Net", spec.host_network == Some(true)),
            false => ("IPC", spec.host_ipc == Some(true)),
        };
        let is_allowed = allowed.iter().any(|pattern| matches_pattern(pattern, &name));
        let problem = match is_allowed || SAFE_SYSCTLS.contains(&name.as_str()) {
            false => format!("{name:?} not allowlisted"),
            true if shared => format!("{name:?} not allowed with host {namespace} enabled"),
            true => continue,
        };
        return Err(AdmissionRejection::new("SysctlForbidden", format!("forbidden sysctl: {problem}")));
    }
    Ok(())
}

/// Whether an allowed sysctl covers a name: the same, or a prefix that ends with `*`.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let pattern = normalize_sysctl_name(pattern);
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

/// Returns the name with dots as separators; the first separator tells which notation is used.
pub fn normalize_sysctl_name(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name[at..].starts_with('/') => {
            let swap = |c: char| match c {
                '/' => '.',
                '.' => '/',
                other => other,
            };
            name.chars().map(swap).collect()
        }
        _ => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_slashes_are_normalized() {
        assert_eq!(normalize_sysctl_name("kernel/shm_rmid_forced"), "kernel.shm_rmid_forced");
        assert_eq!(normalize_sysctl_name("net.ipv4.conf.eth0/1.x"), "net.ipv4.conf.eth0/1.x");
    }
}
