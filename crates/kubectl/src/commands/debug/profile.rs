//! Profiles: what a debugging container may do.

use api::Value;
use serde_json::json;

use crate::{errors::CommandResult, flag_set::FlagSet, object};

/// A debugging profile of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugStyle {
    /// In an ephemeral container.
    Ephemeral,
    /// In a copy of the pod.
    PodCopy,
    /// On a node.
    Node,
}

/// The parts of a pod that its copy keeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeptParts {
    labels: bool,
    annotations: bool,
    liveness: bool,
    readiness: bool,
    startup: bool,
    init_containers: bool,
}

impl KeptParts {
    /// Reads the `--keep-…` flags.
    pub fn from_flags(flags: &FlagSet) -> Self {
        let kept = |part: &str| flags.bool(&format!("keep-{part}"));
        KeptParts {
            labels: kept("labels"),
            annotations: kept("annotations"),
            liveness: kept("liveness"),
            readiness: kept("readiness"),
            startup: kept("startup"),
            init_containers: kept("init-containers"),
        }
    }
}

/// Refuses unknown profiles.
pub fn check_name(profile: &str) -> CommandResult {
    if ["legacy", "general", "baseline", "restricted", "netadmin", "sysadmin"].contains(&profile) {
        return Ok(());
    }
    crate::bail!("unknown profile: {profile}")
}

/// The container of that name in any list.
pub fn container_mut<'a>(pod: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    let spec = pod.get_mut("spec")?.as_object_mut()?;
    spec.iter_mut()
        .filter(|(field, _)| ["initContainers", "containers", "ephemeralContainers"].contains(&field.as_str()))
        .filter_map(|(_, list)| list.as_array_mut())
        .flatten()
        .find(|container| container["name"] == name)
}

/// Applies a profile to a container of the pod.
pub fn apply_profile(profile: &str, pod: &mut Value, name: &str, style: DebugStyle, kept: &KeptParts) {
    let is_node = style == DebugStyle::Node;
    match (profile, style) {
        ("legacy", DebugStyle::Node) | ("sysadmin", DebugStyle::Node) | ("general", DebugStyle::Node) => {
            mount_root(pod, name);
            use_host_namespaces(pod);
        }
        ("legacy", DebugStyle::PodCopy) => object::remove_path(pod, "metadata.labels"),
        ("netadmin", DebugStyle::Node) => use_host_namespaces(pod),
        _ => {}
    }
    if style == DebugStyle::PodCopy && profile != "legacy" {
        remove_parts(pod, kept);
        if pod["spec"].get("shareProcessNamespace").is_none_or(Value::is_null) {
            pod["spec"]["shareProcessNamespace"] = true.into();
        }
    }
    let Some(container) = container_mut(pod, name) else { return };
    match profile {
        "general" if is_node => object::remove_path(container, "securityContext"),
        "general" => add_capabilities(container, &["SYS_PTRACE"]),
        "baseline" => object::remove_path(container, "securityContext"),
        "restricted" => {
            container["securityContext"] = json!({"runAsNonRoot": true, "capabilities": {"drop": ["ALL"]},
                "allowPrivilegeEscalation": false, "seccompProfile": {"type": "RuntimeDefault"}});
        }
        "netadmin" => add_capabilities(container, &["NET_ADMIN", "NET_RAW"]),
        "sysadmin" => object::set_path(container, "securityContext.privileged", true.into()),
        _ => {}
    }
}

fn mount_root(pod: &mut Value, name: &str) {
    let push = |list: &mut Value, item: Value| match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = json!([item]),
    };
    push(&mut pod["spec"]["volumes"], json!({"name": "host-root", "hostPath": {"path": "/"}}));
    if let Some(container) = container_mut(pod, name) {
        push(&mut container["volumeMounts"], json!({"mountPath": "/host", "name": "host-root"}));
    }
}

fn use_host_namespaces(pod: &mut Value) {
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        pod["spec"][field] = true.into();
    }
}

fn add_capabilities(container: &mut Value, names: &[&str]) {
    for name in names {
        match container.pointer_mut("/securityContext/capabilities/add").and_then(Value::as_array_mut) {
            Some(list) => list.push((*name).into()),
            None => object::set_path(container, "securityContext.capabilities.add", json!([name])),
        }
    }
}

fn remove_parts(pod: &mut Value, kept: &KeptParts) {
    if !kept.labels {
        object::remove_path(pod, "metadata.labels");
    }
    if !kept.annotations {
        object::remove_path(pod, "metadata.annotations");
    }
    if !kept.init_containers {
        object::remove_path(pod, "spec.initContainers");
    }
    let probes = [("livenessProbe", kept.liveness), ("readinessProbe", kept.readiness), ("startupProbe", kept.startup)];
    for container in pod["spec"].get_mut("containers").and_then(Value::as_array_mut).into_iter().flatten() {
        for (probe, _) in probes.iter().filter(|(_, kept)| !kept) {
            object::remove_path(container, probe);
        }
    }
}
