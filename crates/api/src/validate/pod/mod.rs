//! Validation of pods and pod templates beyond the rule tables.

pub(super) mod annotations;
pub(super) mod container;
pub(super) mod env;
pub(super) mod resize;
pub(super) mod resources;
pub(super) mod scheduling;
pub(super) mod security;
pub(super) mod status;
pub(super) mod update;
pub(super) mod volume;

use super::field_cursor::FieldCursor;
use crate::validate::prelude::*;

/// The annotation of mirror pods.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Whether a spec is that of a pod instead of a template.
fn is_pod_spec(spec: &FieldCursor) -> bool {
    !spec.is_root() && spec.ancestor(1).is_root()
}

/// Iterates over all containers in upstream's order.
fn all_containers<'v>(spec: &FieldCursor<'v, '_>) -> impl Iterator<Item = (&'static str, usize, &'v Value)> {
    let value = spec.value;
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |list| {
        let list_of = value.get(list).and_then(Value::as_array).into_iter().flatten();
        list_of.enumerate().map(move |(at, container)| (list, at, container))
    })
}

/// Calls `visit` for every container. Upstream: `VisitContainers`.
pub(super) fn visit_containers<'v>(spec: &FieldCursor<'v, '_>, mut visit: impl FnMut(&FieldCursor<'v, '_>)) {
    for (list, at, _) in all_containers(spec) {
        visit(&spec.get(list).element(at));
    }
}

/// Returns the pod spec that encloses a container or a part of it.
fn enclosing_pod_spec<'a, 'v>(at: &'a FieldCursor<'v, '_>) -> &'a FieldCursor<'v, 'a> {
    let mut place: &FieldCursor = at;
    while !place.is_root() {
        if matches!(place.name(), "containers" | "initContainers" | "ephemeralContainers") {
            return place.ancestor(1);
        }
        place = place.ancestor(1);
    }
    let mut place: &FieldCursor = at;
    while !place.is_root() && place.value.get("containers").is_none() {
        place = place.ancestor(1);
    }
    place
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{decode, defaults, schema::schema, validate};

    fn check(spec: Value) -> Vec<String> {
        let pods = schema().resource("", "v1", "pods").unwrap();
        let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec});
        let mut pod = decode::canonicalize(pods.ty, pod).unwrap().object;
        defaults::apply_defaults(pods.ty, &mut pod);
        validate::validate_create(pods, &pod).iter().map(ToString::to_string).collect()
    }

    fn container(more: Value) -> Value {
        let mut container = json!({"name": "c", "image": "i"});
        container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"containers": [container]})
    }

    #[test]
    fn invalid_containers_are_reported() {
        let cases = [
            (
                json!({"volumeMounts": [{"name": "v", "mountPath": "/x"}]}),
                "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
            ),
            (
                json!({"livenessProbe": {}}),
                "spec.containers[0].livenessProbe: Required value: must specify a handler type",
            ),
            (
                json!({"env": [{"name": "a=b"}]}),
                "spec.containers[0].env[0].name: Invalid value: \"a=b\": a valid environment \
                variable name must consist only of printable ASCII characters other than '='",
            ),
            (
                json!({"resources": {"requests": {"hugepages-2Mi": "3Mi"}}}),
                "spec.containers[0].resources.requests[hugepages-2Mi]: \
                Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
            ),
            (
                json!({"resources": {"claims": [{"name": "x"}]}}),
                "spec.containers[0].resources.claims[0]: Not found: \"x\": must be \
                one of the names in pod.spec.resourceClaims which is empty",
            ),
            (
                json!({"lifecycle": {"preStop": {"sleep": {"seconds": 99}}}}),
                "spec.containers[0].lifecycle.preStop.sleep: Invalid \
                value: 99: must be non-negative and less than terminationGracePeriodSeconds (30)",
            ),
        ];
        for (more, want) in cases {
            let got = check(container(more));
            assert!(got.iter().any(|fault| fault == want), "{want}\n{got:#?}");
        }
    }

    #[test]
    fn valid_pods_are_accepted() {
        let plain = container(json!({}));
        let mut rich = container(json!({
            "ports": [{"name": "http", "containerPort": 80, "hostPort": 8080}],
            "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"}},
            "readinessProbe": {"httpGet": {"port": "http"}},
            "securityContext": {"runAsUser": 0, "capabilities": {"drop": ["ALL"]}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        }));
        rich["volumes"] = json!([{"name": "v"}]);
        rich["tolerations"] = json!([{"operator": "Exists"}]);
        rich["initContainers"] = json!([{"name": "i", "image": "i", "restartPolicy": "Always"}]);
        for spec in [plain, rich] {
            assert_eq!(check(spec), Vec::<String>::new());
        }
    }
}
