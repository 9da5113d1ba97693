//! Names the fields of a pod that this node does not support. Such a pod waits, with an event, as one does whose volume
//! cannot be mounted.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

/// Returns a message naming the first unsupported field of the pod.
pub fn find_unsupported_field(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let field =
        unsupported_projection(spec).or_else(|| unsupported_pod_field(spec)).or_else(|| unsupported_container(spec))?;
    Some(format!("{field} is not supported by this node"))
}

fn unsupported_projection(spec: &PodSpec) -> Option<String> {
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
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
        (spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()), "spec.resourceClaims"),
        (spec.host_users == Some(false), "spec.hostUsers: false"),
        (context.windows_options.is_some(), "spec.securityContext.windowsOptions"),
    ];
    checks.into_iter().find(|(used, _)| *used).map(|(_, field)| field.into())
}

fn unsupported_container(spec: &PodSpec) -> Option<String> {
    let init = spec.init_containers.iter().flatten().enumerate();
    let init = init.map(|(index, container)| (format!("spec.initContainers[{index}]"), container));
    let regular = spec.containers.iter().enumerate();
    let regular = regular.map(|(index, container)| (format!("spec.containers[{index}]"), container));
    init.chain(regular).find_map(|(path, container)| {
        let field = unsupported_container_field(container)?;
        Some(format!("{path}.{field}"))
    })
}

fn unsupported_container_field(container: &Container) -> Option<&'static str> {
    let context = container.security_context.clone().unwrap_or_default();
    let mut rules = container.restart_policy_rules.iter().flatten();
    let checks = [
        (rules.any(|rule| rule.action == "RestartAllContainers"), "restartPolicyRules: RestartAllContainers"),
        (context.windows_options.is_some(), "securityContext.windowsOptions"),
        (container.lifecycle.as_ref().is_some_and(|lifecycle| lifecycle.stop_signal.is_some()), "lifecycle.stopSignal"),
    ];
    checks.into_iter().find(|(used, _)| *used).map(|(_, field)| field)
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
        let users = json!({ "containers": [], "hostUsers": false });
        assert_eq!(refused(users).as_deref(), Some("spec.hostUsers: false is not supported by this node"));
        let rule = json!({ "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [1] } });
        let rules = json!({ "containers": [{ "name": "c", "restartPolicyRules": [rule] }] });
        let message = "spec.containers[0].restartPolicyRules: RestartAllContainers is not supported by this node";
        assert_eq!(refused(rules).as_deref(), Some(message));
        let volumes = json!([{ "name": "a", "emptyDir": {} }, { "name": "b", "configMap": { "name": "m" } }]);
        assert_eq!(refused(json!({ "containers": [{ "name": "c" }], "volumes": volumes })), None);
    }
}
