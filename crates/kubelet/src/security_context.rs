//! Converts security contexts to CRI, with container settings taking precedence over pod settings.

use k8s_openapi::api::core::v1::{
    Container, PodSecurityContext, PodSpec, SELinuxOptions, SeccompProfile, SecurityContext,
};
use runtime::cri::types::{
    Capability, Image, Int64Value, LinuxContainerSecurityContext, LinuxSandboxSecurityContext, NamespaceMode,
    NamespaceOption, ProfileType, SeLinuxOption, SecurityProfile,
};

/// Paths masked in unprivileged containers.
const MASKED_PATHS: [&str; 11] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
];
/// Paths read-only in unprivileged containers.
const READ_ONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Returns the namespaces shared with the node and between containers.
pub fn namespace_options(spec: &PodSpec) -> NamespaceOption {
    let node = |host: Option<bool>, otherwise: NamespaceMode| match host {
        Some(true) => NamespaceMode::Node as i32,
        _ => otherwise as i32,
    };
    let shared = spec.share_process_namespace == Some(true);
    let pid = if shared { NamespaceMode::Pod } else { NamespaceMode::Container };
    NamespaceOption {
        network: node(spec.host_network, NamespaceMode::Pod),
        pid: node(spec.host_pid, pid),
        ipc: node(spec.host_ipc, NamespaceMode::Pod),
        ..Default::default()
    }
}

/// Builds the sandbox's security context.
pub fn sandbox_security_context(spec: &PodSpec) -> LinuxSandboxSecurityContext {
    let context = spec.security_context.clone().unwrap_or_default();
    let privileged = |container: &Container| is_privileged(container.security_context.as_ref());
    LinuxSandboxSecurityContext {
        namespace_options: Some(namespace_options(spec)),
        run_as_user: context.run_as_user.map(|value| Int64Value { value }),
        run_as_group: context.run_as_group.map(|value| Int64Value { value }),
        supplemental_groups: supplemental_groups(&context),
        privileged: spec.containers.iter().chain(spec.init_containers.iter().flatten()).any(privileged),
        seccomp: Some(security_profile(ProfileType::RuntimeDefault)),
        selinux_options: context.se_linux_options.as_ref().map(selinux_options),
        ..Default::default()
    }
}

/// Builds a container's security context.
pub fn container_security_context(spec: &PodSpec, container: &Container) -> LinuxContainerSecurityContext {
    let pod = spec.security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let privileged = is_privileged(Some(&own));
    let unmasked = privileged || own.proc_mount.as_deref() == Some("Unmasked");
    let paths = |list: &[&str]| if unmasked { Vec::new() } else { list.iter().map(|path| path.to_string()).collect() };
    let capabilities = own.capabilities.clone().unwrap_or_default();
    LinuxContainerSecurityContext {
        capabilities: Some(Capability {
            add_capabilities: capabilities.add.unwrap_or_default(),
            drop_capabilities: capabilities.drop.unwrap_or_default(),
            ..Default::default()
        }),
        privileged,
        namespace_options: Some(namespace_options(spec)),
        run_as_user: own.run_as_user.or(pod.run_as_user).map(|value| Int64Value { value }),
        run_as_group: own.run_as_group.or(pod.run_as_group).map(|value| Int64Value { value }),
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        supplemental_groups: supplemental_groups(&pod),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: paths(&MASKED_PATHS),
        readonly_paths: paths(&READ_ONLY_PATHS),
        seccomp: Some(seccomp_profile(own.seccomp_profile.as_ref().or(pod.seccomp_profile.as_ref()), privileged)),
        selinux_options: own.se_linux_options.as_ref().or(pod.se_linux_options.as_ref()).map(selinux_options),
        ..Default::default()
    }
}

fn is_privileged(context: Option<&SecurityContext>) -> bool {
    context.is_some_and(|context| context.privileged == Some(true))
}

fn supplemental_groups(context: &PodSecurityContext) -> Vec<i64> {
    let supplemental = context.supplemental_groups.iter().flatten().copied();
    supplemental.chain(context.fs_group).collect()
}

/// Converts SELinux options, which the runtime ignores on hosts without SELinux.
fn selinux_options(requested: &SELinuxOptions) -> SeLinuxOption {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    SeLinuxOption {
        user: text(&requested.user),
        role: text(&requested.role),
        r#type: text(&requested.type_),
        level: text(&requested.level),
    }
}

fn security_profile(kind: ProfileType) -> SecurityProfile {
    SecurityProfile { profile_type: kind as i32, localhost_ref: String::new() }
}

fn seccomp_profile(requested: Option<&SeccompProfile>, privileged: bool) -> SecurityProfile {
    match requested {
        Some(requested) if requested.type_ == "RuntimeDefault" && !privileged => {
            security_profile(ProfileType::RuntimeDefault)
        }
        _ => security_profile(ProfileType::Unconfined),
    }
}

/// Returns why `runAsNonRoot` forbids this image, if it does.
pub fn verify_run_as_non_root(spec: &PodSpec, container: &Container, image: &Image) -> Option<String> {
    let pod = spec.security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    if own.run_as_non_root.or(pod.run_as_non_root) != Some(true) {
        return None;
    }
    match (own.run_as_user.or(pod.run_as_user), &image.uid) {
        (Some(0), _) => Some("container's runAsUser breaks non-root policy".into()),
        (Some(_), _) => None,
        (None, Some(uid)) if uid.value != 0 => None,
        (None, None) if !image.username.is_empty() => Some(format!(
            "container has runAsNonRoot and image has non-numeric user ({}), cannot verify user is non-root",
            image.username
        )),
        (None, _) => Some("container has runAsNonRoot and image will run as root".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn container_selinux_options_take_precedence() {
        let spec: PodSpec = serde_json::from_value(json!({
            "securityContext": { "seLinuxOptions": { "level": "s0" } },
            "containers": [{ "name": "c" }, { "name": "d", "securityContext": { "seLinuxOptions": { "type": "t" } } }] }))
        .unwrap();
        let level = |options: Option<SeLinuxOption>| options.map(|options| (options.level, options.r#type));
        assert_eq!(level(sandbox_security_context(&spec).selinux_options), Some(("s0".into(), String::new())));
        assert_eq!(
            level(container_security_context(&spec, &spec.containers[0]).selinux_options),
            Some(("s0".into(), String::new()))
        );
        assert_eq!(
            level(container_security_context(&spec, &spec.containers[1]).selinux_options),
            Some((String::new(), "t".into()))
        );
    }

    #[test]
    fn container_settings_take_precedence_over_pod_settings() {
        let spec: PodSpec = serde_json::from_value(json!({
            "securityContext": { "runAsUser": 1, "runAsGroup": 2, "fsGroup": 3, "runAsNonRoot": true },
            "containers": [{ "name": "c", "securityContext": { "runAsUser": 9, "capabilities": { "add": ["NET_ADMIN"] } } },
                           { "name": "d", "securityContext": { "privileged": true, "runAsUser": 0 } }] }))
        .unwrap();
        let context = container_security_context(&spec, &spec.containers[0]);
        assert_eq!((context.run_as_user.unwrap().value, context.run_as_group.unwrap().value), (9, 2));
        assert_eq!(context.supplemental_groups, [3]);
        assert!(!context.masked_paths.is_empty());
        assert!(container_security_context(&spec, &spec.containers[1]).masked_paths.is_empty());
        assert!(sandbox_security_context(&spec).privileged);
        assert_eq!(verify_run_as_non_root(&spec, &spec.containers[0], &Image::default()), None);
        assert!(verify_run_as_non_root(&spec, &spec.containers[1], &Image::default()).is_some());
    }
}
