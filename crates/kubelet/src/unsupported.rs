//! Rejects pods that use unsupported fields, naming the field.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use crate::pod_spec::is_sidecar;

const SUPPORTED_VOLUMES: [&str; 6] = ["emptyDir", "hostPath", "configMap", "secret", "downwardAPI", "projected"];

/// Returns a message naming the first unsupported field of the pod.
pub fn find_unsupported_field(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let field =
        unsupported_volume(spec).or_else(|| unsupported_pod_field(spec)).or_else(|| unsupported_container(spec))?;
    Some(format!("{field} is not supported by this node"))
}

fn unsupported_volume(spec: &PodSpec) -> Option<String> {
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let fields = serde_json::to_value(volume).unwrap_or_default();
        let known = |key: &str| key == "name" || SUPPORTED_VOLUMES.contains(&key);
        if let Some(kind) = fields.as_object().and_then(|map| map.keys().find(|key| !known(key))) {
            return Some(format!("spec.volumes[{index}].{kind}"));
        }
        let medium = volume.empty_dir.as_ref().and_then(|source| source.medium.as_deref()).unwrap_or_default();
        if !matches!(medium, "" | "Memory") {
            return Some(format!("spec.volumes[{index}].emptyDir.medium {medium:?}"));
        }
        for (at, source) in volume.projected.iter().flat_map(|source| source.sources.iter().flatten()).enumerate() {
            let known = source.config_map.is_some()
                || source.secret.is_some()
                || source.downward_api.is_some()
                || source.service_account_token.is_some();
            if !known {
                return Some(format!("spec.volumes[{index}].projected.sources[{at}]"));
            }
        }
    }
    None
}

fn unsupported_pod_field(spec: &PodSpec) -> Option<String> {
    let context = spec.security_context.clone().unwrap_or_default();
    let checks = [
        (spec.runtime_class_name.is_some(), "spec.runtimeClassName"),
        (spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()), "spec.resourceClaims"),
        (spec.host_users == Some(false), "spec.hostUsers: false"),
        (spec.os.as_ref().is_some_and(|os| os.name != "linux"), "spec.os.name"),
        (context.windows_options.is_some(), "spec.securityContext.windowsOptions"),
        (
            is_localhost_profile(context.seccomp_profile.as_ref().map(|p| p.type_.as_str())),
            "spec.securityContext.seccompProfile",
        ),
        (
            is_localhost_profile(context.app_armor_profile.as_ref().map(|p| p.type_.as_str())),
            "spec.securityContext.appArmorProfile",
        ),
        (
            context.supplemental_groups_policy.as_deref() == Some("Strict"),
            "spec.securityContext.supplementalGroupsPolicy",
        ),
    ];
    checks.into_iter().find(|(used, _)| *used).map(|(_, field)| field.into())
}

fn is_localhost_profile(kind: Option<&str>) -> bool {
    kind == Some("Localhost")
}

fn unsupported_container(spec: &PodSpec) -> Option<String> {
    let host_network = spec.host_network == Some(true);
    let init = spec.init_containers.iter().flatten().enumerate();
    let init = init.map(|(index, container)| (format!("spec.initContainers[{index}]"), container, true));
    let regular = spec.containers.iter().enumerate();
    let regular = regular.map(|(index, container)| (format!("spec.containers[{index}]"), container, false));
    init.chain(regular).find_map(|(path, container, init)| {
        let field = unsupported_container_field(container, host_network, init)?;
        Some(format!("{path}.{field}"))
    })
}

fn unsupported_container_field(container: &Container, host_network: bool, init: bool) -> Option<String> {
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let set = |field: &Option<String>| field.as_ref().is_some_and(|value| !value.is_empty());
        if set(&mount.sub_path) || set(&mount.sub_path_expr) {
            return Some(format!("volumeMounts[{index}].subPath"));
        }
    }
    for (index, port) in container.ports.iter().flatten().enumerate() {
        if port.host_port.unwrap_or(0) != 0 && !host_network {
            return Some(format!("ports[{index}].hostPort"));
        }
    }
    let context = container.security_context.clone().unwrap_or_default();
    let sidecar = init && is_sidecar(container);
    let grpc = |probe: &Option<_>| {
        probe.as_ref().is_some_and(|probe: &k8s_openapi::api::core::v1::Probe| probe.grpc.is_some())
    };
    let checks = [
        (container.restart_policy.is_some() && !sidecar, "restartPolicy"),
        (container.restart_policy_rules.as_ref().is_some_and(|rules| !rules.is_empty()), "restartPolicyRules"),
        (container.volume_devices.as_ref().is_some_and(|list| !list.is_empty()), "volumeDevices"),
        (grpc(&container.liveness_probe), "livenessProbe.grpc"),
        (grpc(&container.readiness_probe), "readinessProbe.grpc"),
        (grpc(&container.startup_probe), "startupProbe.grpc"),
        (init && !sidecar && container.lifecycle.is_some(), "lifecycle"),
        (context.windows_options.is_some(), "securityContext.windowsOptions"),
        (
            is_localhost_profile(context.seccomp_profile.as_ref().map(|p| p.type_.as_str())),
            "securityContext.seccompProfile",
        ),
        (
            is_localhost_profile(context.app_armor_profile.as_ref().map(|p| p.type_.as_str())),
            "securityContext.appArmorProfile",
        ),
    ];
    checks.into_iter().find(|(used, _)| *used).map(|(_, field)| field.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unsupported_field_is_named() {
        let refused = |spec: serde_json::Value| {
            find_unsupported_field(
                &serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": spec })).unwrap(),
            )
        };
        let nfs = json!({ "containers": [], "volumes": [{ "name": "v", "nfs": { "server": "s", "path": "/" } }] });
        assert_eq!(refused(nfs).as_deref(), Some("spec.volumes[0].nfs is not supported by this node"));
        let port = json!({ "name": "c", "ports": [{ "containerPort": 80, "hostPort": 80 }] });
        let message = refused(json!({ "containers": [port.clone()] }));
        assert_eq!(message.as_deref(), Some("spec.containers[0].ports[0].hostPort is not supported by this node"));
        assert_eq!(refused(json!({ "containers": [port], "hostNetwork": true })), None);
        let volumes = json!([{ "name": "a", "emptyDir": {} }, { "name": "b", "configMap": { "name": "m" } }]);
        assert_eq!(refused(json!({ "containers": [{ "name": "c" }], "volumes": volumes })), None);
    }
}
