//! Facts about pod specs that several stages need.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, EphemeralContainer, Pod, PodSpec, VolumeMount};

/// Action of a restart rule that restarts all containers of the pod.
const RESTART_ALL_CONTAINERS: &str = "RestartAllContainers";

/// Whether an init container is a sidecar (restart policy `Always`).
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Returns the restart policy, `Always` by default.
pub fn restart_policy(spec: &PodSpec) -> &str {
    spec.restart_policy.as_deref().unwrap_or("Always")
}

/// Consequence of a container's exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitAction {
    /// The container stays as it is.
    Stop,
    /// The container is restarted.
    Restart,
    /// All containers of the pod are restarted in place.
    RestartAllContainers,
}

/// Returns what happens after a container exited: its first matching restart rule decides, else its own restart policy,
/// else the pod's.
pub fn exit_action(spec: &PodSpec, container: &Container, exit_code: i32) -> ExitAction {
    if let Some(rule) = matching_rule(container, exit_code) {
        return match rule.action.as_str() {
            RESTART_ALL_CONTAINERS => ExitAction::RestartAllContainers,
            _ => ExitAction::Restart,
        };
    }
    match container.restart_policy.as_deref().unwrap_or_else(|| restart_policy(spec)) {
        "Never" => ExitAction::Stop,
        "OnFailure" if exit_code == 0 => ExitAction::Stop,
        _ => ExitAction::Restart,
    }
}

fn matching_rule(container: &Container, exit_code: i32) -> Option<&ContainerRestartRule> {
    container.restart_policy_rules.iter().flatten().find(|rule| matches_exit_code(rule, exit_code))
}

/// Whether this exit of the container restarts all containers of the pod.
pub fn restarts_all_containers(container: &Container, exit_code: i32) -> bool {
    matching_rule(container, exit_code).is_some_and(|rule| rule.action == RESTART_ALL_CONTAINERS)
}

/// Whether a container of the pod has a rule that restarts all containers.
pub fn may_restart_all_containers(spec: &PodSpec) -> bool {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let mut rules = containers.flat_map(|container| container.restart_policy_rules.iter().flatten());
    rules.any(|rule| rule.action == RESTART_ALL_CONTAINERS)
}

fn matches_exit_code(rule: &ContainerRestartRule, exit_code: i32) -> bool {
    let Some(codes) = &rule.exit_codes else { return false };
    let listed = codes.values.iter().flatten().any(|value| *value == exit_code);
    match codes.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    }
}

/// Why a mount cannot be recursively read-only.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecursiveReadOnlyError {
    /// It is writable.
    #[error("volume {0:?} requested recursive read-only mode, but it is not read-only")]
    Writable(String),
    /// Mounts are propagated.
    #[error("volume {0:?} requested recursive read-only mode, but it is not compatible with propagation {1:?}")]
    Propagation(String, String),
    /// The runtime cannot do it.
    #[error("volume {0:?} requested recursive read-only mode, but it is not supported by the runtime")]
    Runtime(String),
}

/// Whether a mount is recursively read-only.
pub fn is_recursive_read_only(mount: &VolumeMount, is_supported: bool) -> Result<bool, RecursiveReadOnlyError> {
    let mode = mount.recursive_read_only.as_deref().unwrap_or("Disabled");
    if mode == "Disabled" {
        return Ok(false);
    }
    let name = || mount.name.clone();
    if mount.read_only != Some(true) {
        return Err(RecursiveReadOnlyError::Writable(name()));
    }
    if let Some(propagation) = mount.mount_propagation.as_deref().filter(|propagation| *propagation != "None") {
        return Err(RecursiveReadOnlyError::Propagation(name(), propagation.into()));
    }
    match mode {
        "Enabled" if !is_supported => Err(RecursiveReadOnlyError::Runtime(name())),
        _ => Ok(is_supported),
    }
}

/// Whether a failed run of an init container is retried. One that succeeded never runs again.
pub fn is_init_retried(spec: &PodSpec, container: &Container, exit_code: i32) -> bool {
    exit_action(spec, container, exit_code) != ExitAction::Stop
}

/// Finds a container of any kind by name; an ephemeral one is converted.
pub fn find_container<'a>(pod: &'a Pod, name: &str) -> Option<Cow<'a, Container>> {
    let spec = pod.spec.as_ref()?;
    let mut regular = spec.init_containers.iter().flatten().chain(&spec.containers);
    if let Some(container) = regular.find(|container| container.name == name) {
        return Some(Cow::Borrowed(container));
    }
    let mut ephemeral = spec.ephemeral_containers.iter().flatten();
    ephemeral.find(|container| container.name == name).map(|container| Cow::Owned(ephemeral_as_container(container)))
}

/// Converts an ephemeral container, which has a container's fields. It is never restarted.
pub fn ephemeral_as_container(ephemeral: &EphemeralContainer) -> Container {
    let ephemeral = ephemeral.clone();
    Container {
        args: ephemeral.args,
        command: ephemeral.command,
        env: ephemeral.env,
        env_from: ephemeral.env_from,
        image: ephemeral.image,
        image_pull_policy: ephemeral.image_pull_policy,
        name: ephemeral.name,
        security_context: ephemeral.security_context,
        stdin: ephemeral.stdin,
        stdin_once: ephemeral.stdin_once,
        termination_message_path: ephemeral.termination_message_path,
        termination_message_policy: ephemeral.termination_message_policy,
        tty: ephemeral.tty,
        volume_devices: ephemeral.volume_devices,
        volume_mounts: ephemeral.volume_mounts,
        working_dir: ephemeral.working_dir,
        ..Default::default()
    }
}

/// Returns the spec field that lists the container: `containers`, `initContainers` or `ephemeralContainers`.
pub fn container_list_field(pod: &Pod, name: &str) -> &'static str {
    let spec = pod.spec.as_ref();
    let in_init = spec.iter().flat_map(|spec| spec.init_containers.iter().flatten()).any(|init| init.name == name);
    let mut ephemeral = spec.iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    match in_init {
        true => "initContainers",
        false if ephemeral.any(|container| container.name == name) => "ephemeralContainers",
        false => "containers",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn recursive_mounts_are_read_only_and_private() {
        let resolve = |mount: Value, is_supported: bool| {
            let mut mount = mount;
            (mount["name"], mount["mountPath"]) = ("v".into(), "/v".into());
            is_recursive_read_only(&serde_json::from_value(mount).unwrap(), is_supported)
        };
        let enabled = json!({ "readOnly": true, "recursiveReadOnly": "Enabled" });
        assert_eq!(resolve(enabled.clone(), true), Ok(true));
        assert_eq!(resolve(enabled, false), Err(RecursiveReadOnlyError::Runtime("v".into())));
        let possible = json!({ "readOnly": true, "recursiveReadOnly": "IfPossible" });
        assert_eq!((resolve(possible.clone(), true), resolve(possible, false)), (Ok(true), Ok(false)));
        let writable = json!({ "recursiveReadOnly": "IfPossible" });
        assert_eq!(resolve(writable, true), Err(RecursiveReadOnlyError::Writable("v".into())));
    }

    #[test]
    fn rules_precede_the_policies_of_container_and_pod() {
        let check = |policy: &str, container: Value, exit_code: i32, expected: ExitAction| {
            let mut container = container;
            container["name"] = "c".into();
            let spec: PodSpec =
                serde_json::from_value(json!({ "restartPolicy": policy, "containers": [container] })).unwrap();
            assert_eq!(exit_action(&spec, &spec.containers[0], exit_code), expected, "{spec:?} {exit_code}");
        };
        check("Never", json!({}), 1, ExitAction::Stop);
        check("OnFailure", json!({}), 0, ExitAction::Stop);
        check("OnFailure", json!({}), 1, ExitAction::Restart);
        check("Never", json!({ "restartPolicy": "Always" }), 0, ExitAction::Restart);
        check("Always", json!({ "restartPolicy": "OnFailure" }), 0, ExitAction::Stop);
        let rule = |action: &str, operator: &str| {
            let codes = json!({ "operator": operator, "values": [42] });
            json!({ "restartPolicy": "Never", "restartPolicyRules": [{ "action": action, "exitCodes": codes }] })
        };
        check("Never", rule("Restart", "In"), 42, ExitAction::Restart);
        check("Never", rule("Restart", "In"), 1, ExitAction::Stop);
        check("Never", rule("RestartAllContainers", "NotIn"), 1, ExitAction::RestartAllContainers);
    }
}
