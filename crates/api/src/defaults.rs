//! What upstream fills in: static defaults from the tables, and the few that are computed from other fields.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::json;

use crate::{
    Map, Value, decode, meta,
    schema::{Presence, Ty, TypeId, schema},
};

/// A default that depends on other fields of the same struct.
type Computed = fn(&mut Map);

/// By type. They run after the static defaults of the struct and of everything in it.
const COMPUTED: &[(&str, Computed)] = &[
    ("core/v1.Container", container),
    ("core/v1.EphemeralContainerCommon", container),
    ("core/v1.Pod", pod),
    ("core/v1.PodSpec", pod_spec),
    ("core/v1.Secret", secret),
    ("core/v1.Service", service),
    ("apps/v1.DeploymentStrategy", |map| rolling_update(map, json!({"maxUnavailable": "25%", "maxSurge": "25%"}))),
    ("apps/v1.DaemonSetUpdateStrategy", |map| rolling_update(map, json!({"maxUnavailable": 1, "maxSurge": 0}))),
    ("apps/v1.StatefulSetUpdateStrategy", |map| rolling_update(map, json!({"partition": 0}))),
    ("batch/v1.JobSpec", job),
    ("rbac/v1.Subject", subject),
    ("networking/v1.NetworkPolicySpec", policy_types),
];

/// Fills in everything that a client may leave out of an object of type `ty`.
pub fn apply(ty: TypeId, object: &mut Value) {
    if let Value::Object(map) = object {
        structure(ty, map);
    }
}

fn structure(id: TypeId, map: &mut Map) {
    let ty = schema().get(id);
    for field in &ty.fields {
        if let Some(default) = &field.default {
            let unset = match map.get(field.name) {
                None => true,
                Some(value) => field.presence != Presence::Pointer && decode::is_zero(value),
            };
            if unset {
                map.insert(field.name.to_owned(), filled(&field.ty, default));
            }
        }
        if let Some(value) = map.get_mut(field.name) {
            inside(&field.ty, value);
        }
    }
    if let Some((_, computed)) = COMPUTED.iter().find(|(name, _)| *name == ty.name) {
        computed(map);
    }
}

/// A default in canonical form; the tables' tests prove that it has one.
fn filled(ty: &Ty, default: &Value) -> Value {
    match ty {
        Ty::Struct(id) => decode::canonical(*id, default.clone()).map(|d| d.object).unwrap_or_else(|_| default.clone()),
        _ => default.clone(),
    }
}

fn inside(ty: &Ty, value: &mut Value) {
    match (ty, value) {
        (Ty::Struct(id), Value::Object(map)) => structure(*id, map),
        (Ty::List(inner), Value::Array(items)) => items.iter_mut().for_each(|item| inside(inner, item)),
        (Ty::Map(inner), Value::Object(map)) => map.values_mut().for_each(|item| inside(inner, item)),
        _ => {}
    }
}

/// `Always` for images that move (`:latest` or no tag), `IfNotPresent` for the rest; requests follow limits.
fn container(map: &mut Map) {
    let image = map.get("image").and_then(Value::as_str).unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    let moves = !name.contains('@') && name.rsplit_once(':').is_none_or(|(_, tag)| tag == "latest");
    if !map.contains_key("imagePullPolicy") {
        map.insert("imagePullPolicy".into(), if moves { "Always" } else { "IfNotPresent" }.into());
    }
}

fn requests_follow_limits(container: &mut Map) {
    let Some(resources) = container.get_mut("resources") else { return };
    let Some(limits) = meta::at(resources, &["limits"]).and_then(Value::as_object).cloned() else { return };
    let requests = meta::field_mut(resources, "requests");
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

fn pod(map: &mut Map) {
    let Some(spec) = map.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.entry("enableServiceLinks").or_insert(true.into());
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        containers.filter_map(Value::as_object_mut).for_each(requests_follow_limits);
    }
}

/// On the host's network, every container port is a host port. `serviceAccount` mirrors `serviceAccountName`.
fn pod_spec(map: &mut Map) {
    if let Some(name) = map.get("serviceAccountName").or(map.get("serviceAccount")).cloned() {
        map.insert("serviceAccountName".into(), name.clone());
        map.insert("serviceAccount".into(), name);
    }
    if map.get("hostNetwork").and_then(Value::as_bool) != Some(true) {
        return;
    }
    for list in ["containers", "initContainers"] {
        let containers = map.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        let ports = containers.filter_map(|c| c.get_mut("ports")).filter_map(Value::as_array_mut).flatten();
        for port in ports.filter_map(Value::as_object_mut) {
            if let Some(number) = port.get("containerPort").cloned() {
                port.entry("hostPort").or_insert(number);
            }
        }
    }
}

/// `stringData` is for writing only: it becomes `data`.
fn secret(map: &mut Map) {
    let Some(Value::Object(given)) = map.remove("stringData") else { return };
    let data = meta::object_mut(map.entry("data").or_insert_with(|| json!({})));
    for (key, text) in given {
        data.insert(key, BASE64_STANDARD.encode(text.as_str().unwrap_or_default()).into());
    }
}

fn service(map: &mut Map) {
    let Some(spec) = map.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let number = port.get("port").cloned().unwrap_or_default();
        if let Some(port) = port.as_object_mut()
            && port.get("targetPort").is_none_or(decode::is_zero)
        {
            port.insert("targetPort".into(), number);
        }
    }
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind != "ExternalName" {
        spec.entry("internalTrafficPolicy").or_insert("Cluster".into());
    }
    if kind == "NodePort" || kind == "LoadBalancer" {
        spec.entry("externalTrafficPolicy").or_insert("Cluster".into());
    }
    if kind == "LoadBalancer" {
        spec.entry("allocateLoadBalancerNodePorts").or_insert(true.into());
    }
}

/// The parameters of a rolling update exist when the strategy is one.
fn rolling_update(map: &mut Map, parameters: Value) {
    if map.get("type").and_then(Value::as_str) == Some("RollingUpdate") {
        map.entry("rollingUpdate").or_insert(parameters);
    }
}

fn job(map: &mut Map) {
    if !map.contains_key("completions") && !map.contains_key("parallelism") {
        map.insert("completions".into(), 1.into());
    }
    map.entry("parallelism").or_insert(1.into());
    let replacement = if map.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    map.entry("podReplacementPolicy").or_insert(replacement.into());
}

fn subject(map: &mut Map) {
    let kind = map.get("kind").and_then(Value::as_str).unwrap_or_default();
    if matches!(kind, "User" | "Group") && map.get("apiGroup").is_none_or(decode::is_zero) {
        map.insert("apiGroup".into(), "rbac.authorization.k8s.io".into());
    }
}

fn policy_types(map: &mut Map) {
    if !map.contains_key("policyTypes") {
        let egress = map.get("egress").is_some_and(|rules| !decode::is_zero(rules));
        map.insert("policyTypes".into(), if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ty: &str, given: Value) -> Value {
        let ty = schema().type_named(ty).unwrap();
        let mut object = decode::canonical(ty, given).unwrap().object;
        apply(ty, &mut object);
        object
    }

    #[test]
    fn a_deployment_gets_what_upstream_gives_it() {
        let object = check("apps/v1.Deployment", json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx"}]}}}}));
        assert_eq!(object["spec"]["replicas"], 1);
        assert_eq!(object["spec"]["strategy"]["rollingUpdate"]["maxSurge"], "25%");
        let spec = &object["spec"]["template"]["spec"];
        assert_eq!(spec["containers"][0]["imagePullPolicy"], "Always");
        assert_eq!(spec["securityContext"], json!({}));
        assert_eq!(spec.get("enableServiceLinks"), None, "only pods get it");
    }

    #[test]
    fn a_secret_given_as_text_is_kept_as_data() {
        let secret = check("core/v1.Secret", json!({"data": {"a": "MQ=="}, "stringData": {"b": "2"}}));
        assert_eq!((&secret["data"], secret.get("stringData")), (&json!({"a": "MQ==", "b": "Mg=="}), None));
    }

    #[test]
    fn given_zeros_of_pointers_are_kept() {
        assert_eq!(check("apps/v1.Deployment", json!({"spec": {"replicas": 0}}))["spec"]["replicas"], 0);
    }
}
