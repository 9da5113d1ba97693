//! Validation of pods and pod templates.
//!
//! [`spec::check`] is the heart: it checks a pod specification wherever one stands. Pods themselves, their changes and their
//! status have more rules.

mod affinity;
mod annotations;
mod container;
mod env;
mod handler;
mod mount;
mod projected;
mod resize;
pub(super) mod resources;
pub(super) mod scheduling;
mod security;
mod spec;
mod status;
mod update;
pub(super) mod volume;
mod windows;

pub(super) use resize::validate as resize;
pub(super) use status::validate as status;
pub(super) use update::ephemeral;

use super::{Errors, at::At, metadata, selector};
use crate::Value;

/// The faults of a pod, new or changed.
pub(super) fn validate(new: &At, old: Option<&At>, e: &mut Errors) {
    whole(new, old, e);
    match old {
        None => create(new, e),
        Some(old) => update::validate(new, old, e),
    }
}

/// What holds for pods at all times, metadata aside.
fn whole(pod: &At, old: Option<&At>, e: &mut Errors) {
    let (meta, spec) = (pod.get("metadata"), pod.get("spec"));
    annotations::check(&meta.get("annotations"), &spec, e);
    spec::check(&spec, spec::Owner::Pod(meta.value), old.map(|old| old.get("spec").value), e);
    if spec.get("serviceAccountName").is_empty() {
        no_tokens(&spec, e);
    }
    for list in ["containers", "initContainers"] {
        spec.get(list).items().for_each(|container| container::trimmed_image(&container, e));
    }
}

/// Without an account there is nobody to give a token to.
fn no_tokens(spec: &At, e: &mut Errors) {
    for volume in spec.get("volumes").items() {
        for source in volume.get("projected").get("sources").items() {
            let token = source.get("serviceAccountToken");
            if token.exists() {
                token.forbidden(e, "must not be specified when serviceAccountName is not set");
            }
        }
    }
}

fn create(pod: &At, e: &mut Errors) {
    let spec = pod.get("spec");
    let ephemeral = spec.get("ephemeralContainers");
    if !ephemeral.is_empty() {
        ephemeral.forbidden(e, "cannot be set on create");
    }
    let node = spec.get("nodeName");
    if !node.is_empty() && !spec.get("schedulingGates").is_empty() {
        node.forbidden(e, "cannot be set until all schedulingGates have been cleared");
    }
    annotations::match_fields(&pod.get("metadata").get("annotations"), &spec, e);
}

/// The faults of a pod template at its place.
pub(super) fn template(at: &At, old: Option<&Value>, e: &mut Errors) {
    let (meta, spec) = (at.get("metadata"), at.get("spec"));
    selector::labels(&at.called("labels", meta.get("labels").value), e);
    let notes = at.called("annotations", meta.get("annotations").value);
    metadata::annotations(&notes, e);
    annotations::check(&notes, &spec, e);
    spec::check(&spec, spec::Owner::Template, old.and_then(|old| old.get("spec")), e);
    annotations::match_fields(&notes, &spec, e);
    let ephemeral = spec.get("ephemeralContainers");
    if !ephemeral.is_empty() {
        ephemeral.forbidden(e, "ephemeral containers not allowed in pod template");
    }
}

/// The faults of a `PodTemplate`.
pub(super) fn pod_template(new: &At, old: Option<&At>, e: &mut Errors) {
    template(&new.get("template"), old.map(|old| old.get("template").value), e);
}

/// The faults of a binding of a pod to a node.
pub(super) fn binding(new: &At, _: Option<&At>, e: &mut Errors) {
    let target = new.get("target");
    let kind = target.get("kind");
    if !kind.is_empty() && kind.text() != "Node" {
        kind.unsupported(e, &["Node", "<empty>"]);
    }
    target.get("name").require(e);
}

/// The containers of all kinds, in upstream's order of visits.
fn containers<'v>(spec: &At<'v, '_>) -> Vec<(&'static str, usize, &'v Value)> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|list| {
            spec.get(list).value.as_array().into_iter().flatten().enumerate().map(move |(at, c)| (list, at, c))
        })
        .collect()
}

/// Calls `visit` for every container of every kind.
fn visit(spec: &At, mut visit: impl FnMut(&At)) {
    for (list, at, _) in containers(spec) {
        let list = spec.get(list);
        visit(&list.index(at));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{decode, defaults, schema::schema, validate};

    fn check(spec: Value) -> Vec<String> {
        let pods = schema().resource("", "v1", "pods").unwrap();
        let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec});
        let mut pod = decode::canonical(pods.ty, pod).unwrap().object;
        defaults::apply(pods.ty, &mut pod);
        validate::create(pods, &pod).iter().map(ToString::to_string).collect()
    }

    fn container(more: Value) -> Value {
        let mut container = json!({"name": "c", "image": "i"});
        container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"containers": [container]})
    }

    #[test]
    fn containers_are_checked() {
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
    fn pods_of_all_sorts_are_accepted() {
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
