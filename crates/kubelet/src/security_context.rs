//! Converts security contexts to CRI, with container settings taking precedence over pod settings.

use std::path::Path;

use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, PodSecurityContext, PodSpec, SELinuxOptions, SeccompProfile, SecurityContext,
};
use runtime::cri::types::{
    Capability, Image, Int64Value, LinuxContainerSecurityContext, LinuxSandboxSecurityContext, NamespaceMode,
    NamespaceOption, ProfileType, SeLinuxOption, SecurityProfile, SupplementalGroupsPolicy, UserNamespace,
};

/// Paths masked in unprivileged containers.
const MASKED_PATHS: [&str; 12] = [
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
    "/sys/devices/virtual/powercap",
];
/// Paths read-only in unprivileged containers.
const READ_ONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Returns the namespaces shared with the node and between containers; `users` is the user namespace.
fn namespace_options(spec: &PodSpec, users: &UserNamespace) -> NamespaceOption {
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
        userns_options: Some(users.clone()),
        ..Default::default()
    }
}

/// Builds the sandbox's security context.
pub fn sandbox_security_context(spec: &PodSpec, users: &UserNamespace) -> LinuxSandboxSecurityContext {
    let context = spec.security_context.clone().unwrap_or_default();
    let privileged = |container: &Container| is_privileged(container.security_context.as_ref());
    LinuxSandboxSecurityContext {
        namespace_options: Some(namespace_options(spec, users)),
        run_as_user: context.run_as_user.map(|value| Int64Value { value }),
        // A group without a user is invalid, and the sandbox's image has none.
        run_as_group: context.run_as_group.filter(|_| context.run_as_user.is_some()).map(|value| Int64Value { value }),
        supplemental_groups: supplemental_groups(&context),
        privileged: spec.containers.iter().chain(spec.init_containers.iter().flatten()).any(privileged),
        seccomp: Some(security_profile(ProfileType::RuntimeDefault)),
        selinux_options: context.se_linux_options.as_ref().map(selinux_options),
        ..Default::default()
    }
}

/// Builds a container's security context.
///
/// Without `runAsUser` the image's user is passed, because a group alone is invalid in CRI.
pub fn container_security_context(
    spec: &PodSpec,
    container: &Container,
    image: &Image,
    (root_dir, users): (&Path, &UserNamespace),
) -> LinuxContainerSecurityContext {
    let pod = spec.security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let privileged = is_privileged(Some(&own));
    let unmasked = privileged || own.proc_mount.as_deref() == Some("Unmasked");
    let paths = |list: Vec<String>| if unmasked { Vec::new() } else { list };
    let seccomp = own.seccomp_profile.as_ref().or(pod.seccomp_profile.as_ref());
    let capabilities = own.capabilities.clone().unwrap_or_default();
    let run_as_user = own.run_as_user.or(pod.run_as_user).map(|value| Int64Value { value });
    let run_as_user = run_as_user.or_else(|| image_user(image));
    let strict = pod.supplemental_groups_policy.as_deref() == Some("Strict");
    let apparmor = own.app_armor_profile.as_ref().or(pod.app_armor_profile.as_ref());
    LinuxContainerSecurityContext {
        capabilities: Some(Capability {
            add_capabilities: capabilities.add.unwrap_or_default(),
            drop_capabilities: capabilities.drop.unwrap_or_default(),
            ..Default::default()
        }),
        privileged,
        namespace_options: Some(namespace_options(spec, users)),
        run_as_username: if run_as_user.is_none() { image.username.clone() } else { String::new() },
        run_as_user,
        run_as_group: own.run_as_group.or(pod.run_as_group).map(|value| Int64Value { value }),
        supplemental_groups_policy: if strict {
            SupplementalGroupsPolicy::Strict
        } else {
            SupplementalGroupsPolicy::Merge
        } as i32,
        apparmor: apparmor.map(apparmor_profile),
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        supplemental_groups: supplemental_groups(&pod),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: paths(masked_paths()),
        readonly_paths: paths(READ_ONLY_PATHS.map(String::from).into()),
        seccomp: Some(seccomp_profile(seccomp, privileged, root_dir)),
        selinux_options: own.se_linux_options.as_ref().or(pod.se_linux_options.as_ref()).map(selinux_options),
        ..Default::default()
    }
}

/// Returns the image's user ID: root if the image names no user, none if it names one by name.
fn image_user(image: &Image) -> Option<Int64Value> {
    let root = image.username.is_empty().then_some(Int64Value { value: 0 });
    image.uid.clone().or(root)
}

/// Returns the paths to mask on this machine: the counters of thermal throttling too, of each CPU that has them.
fn masked_paths() -> Vec<String> {
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get());
    let throttling = (0..cpus).map(|cpu| format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle"));
    MASKED_PATHS.map(String::from).into_iter().chain(throttling.filter(|path| Path::new(path).exists())).collect()
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

fn seccomp_profile(requested: Option<&SeccompProfile>, privileged: bool, root: &Path) -> SecurityProfile {
    match requested {
        Some(requested) if requested.type_ == "RuntimeDefault" && !privileged => {
            security_profile(ProfileType::RuntimeDefault)
        }
        Some(SeccompProfile { type_, localhost_profile: Some(profile) }) if type_ == "Localhost" && !privileged => {
            let localhost_ref = root.join("seccomp").join(profile).display().to_string();
            SecurityProfile { profile_type: ProfileType::Localhost as i32, localhost_ref }
        }
        _ => security_profile(ProfileType::Unconfined),
    }
}

/// Converts an AppArmor profile, which the runtime rejects on hosts without AppArmor.
fn apparmor_profile(requested: &AppArmorProfile) -> SecurityProfile {
    match (requested.type_.as_str(), &requested.localhost_profile) {
        ("Localhost", Some(profile)) => {
            SecurityProfile { profile_type: ProfileType::Localhost as i32, localhost_ref: profile.clone() }
        }
        ("Unconfined", _) => security_profile(ProfileType::Unconfined),
        _ => security_profile(ProfileType::RuntimeDefault),
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
        assert_eq!(
            level(sandbox_security_context(&spec, &UserNamespace::default()).selinux_options),
            Some(("s0".into(), String::new()))
        );
        assert_eq!(
            level(
                container_security_context(
                    &spec,
                    &spec.containers[0],
                    &Image::default(),
                    (Path::new("/root"), &UserNamespace::default())
                )
                .selinux_options
            ),
            Some(("s0".into(), String::new()))
        );
        assert_eq!(
            level(
                container_security_context(
                    &spec,
                    &spec.containers[1],
                    &Image::default(),
                    (Path::new("/root"), &UserNamespace::default())
                )
                .selinux_options
            ),
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
        let context = container_security_context(
            &spec,
            &spec.containers[0],
            &Image::default(),
            (Path::new("/root"), &UserNamespace::default()),
        );
        assert_eq!((context.run_as_user.unwrap().value, context.run_as_group.unwrap().value), (9, 2));
        assert_eq!(context.supplemental_groups, [3]);
        assert!(!context.masked_paths.is_empty());
        assert!(
            container_security_context(
                &spec,
                &spec.containers[1],
                &Image::default(),
                (Path::new("/root"), &UserNamespace::default())
            )
            .masked_paths
            .is_empty()
        );
        assert!(sandbox_security_context(&spec, &UserNamespace::default()).privileged);
        assert_eq!(verify_run_as_non_root(&spec, &spec.containers[0], &Image::default()), None);
        assert!(verify_run_as_non_root(&spec, &spec.containers[1], &Image::default()).is_some());
    }

    #[test]
    fn image_user_is_passed_without_run_as_user() {
        let spec: PodSpec = serde_json::from_value(json!({ "containers": [{ "name": "c" }],
            "securityContext": { "runAsGroup": 2, "supplementalGroupsPolicy": "Strict" } }))
        .unwrap();
        let context = |image: Image| {
            container_security_context(
                &spec,
                &spec.containers[0],
                &image,
                (Path::new("/root"), &UserNamespace::default()),
            )
        };
        let by_id = context(Image { uid: Some(Int64Value { value: 7 }), ..Default::default() });
        assert_eq!((by_id.run_as_user.map(|user| user.value), by_id.run_as_username.as_str()), (Some(7), ""));
        assert_eq!(by_id.supplemental_groups_policy, SupplementalGroupsPolicy::Strict as i32);
        let by_name = context(Image { username: "web".into(), ..Default::default() });
        assert_eq!((by_name.run_as_user, by_name.run_as_username.as_str()), (None, "web"));
    }

    #[test]
    fn localhost_profiles_are_files_below_the_kubelet_root() {
        let seccomp = SeccompProfile { type_: "Localhost".into(), localhost_profile: Some("a/b.json".into()) };
        let profile = seccomp_profile(Some(&seccomp), false, Path::new("/root"));
        assert_eq!(profile.localhost_ref, "/root/seccomp/a/b.json");
        assert_eq!(seccomp_profile(Some(&seccomp), true, Path::new("/root")).localhost_ref, "");
    }
}
