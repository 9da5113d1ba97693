//! Names the fields of a pod that this node does not support. Such a pod waits, with an event, as one does whose volume
//! cannot be mounted.

use k8s_openapi::api::core::v1::{Pod, PodSpec};

/// Returns a message naming the first unsupported field of the pod.
pub fn find_unsupported_field(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let field = unsupported_projection(spec).or_else(|| unsupported_pod_field(spec))?;
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
    let checks = [(spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()), "spec.resourceClaims")];
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
        let claims = json!({ "containers": [], "resourceClaims": [{ "name": "gpu" }] });
        assert_eq!(refused(claims).as_deref(), Some("spec.resourceClaims is not supported by this node"));
        let volumes = json!([{ "name": "a", "emptyDir": {} }, { "name": "b", "configMap": { "name": "m" } }]);
        assert_eq!(refused(json!({ "containers": [{ "name": "c" }], "volumes": volumes })), None);
    }
}
