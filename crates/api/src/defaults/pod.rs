//! Computed defaults of pods: pull policies, requests from limits, host ports and volume sources.

use serde_json::json;

use super::string_field;
use crate::{Map, Value, decode, meta, resource_list};

/// `Always` for the tag `:latest` or no tag, `IfNotPresent` otherwise.
fn default_pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or_default();
    let moves = !name.contains('@') && name.rsplit_once(':').is_none_or(|(_, tag)| tag == "latest");
    if moves && !image.is_empty() { "Always" } else { "IfNotPresent" }
}

pub(super) fn default_container(map: &mut Map) {
    let policy = default_pull_policy(string_field(map, "image"));
    map.entry("imagePullPolicy").or_insert(policy.into());
}

/// Defaults a volume without a source to `emptyDir`.
pub(super) fn default_volume(map: &mut Map) {
    if map.iter().all(|(field, value)| field == "name" || value.is_null()) {
        map.insert("emptyDir".into(), json!({}));
    }
    if let Some(image) = map.get_mut("image").and_then(Value::as_object_mut) {
        let policy = default_pull_policy(string_field(image, "reference"));
        image.entry("pullPolicy").or_insert(policy.into());
    }
}

fn default_requests_to_limits(owner: &mut Map) {
    let Some(resources) = owner.get_mut("resources") else { return };
    let Some(limits) = meta::value_at(resources, &["limits"]).and_then(Value::as_object).cloned() else { return };
    let requests = meta::field_mut(resources, "requests");
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

pub(super) fn default_pod(map: &mut Map) {
    let Some(spec) = map.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.entry("enableServiceLinks").or_insert(true.into());
    let on_host = spec.get("hostNetwork").and_then(Value::as_bool) == Some(true);
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            default_requests_to_limits(container);
            if on_host {
                default_host_ports(container);
            }
        }
    }
    default_pod_level_requests(spec);
    if let Some(grace) = spec.get_mut("terminationGracePeriodSeconds").filter(|grace| grace.as_i64() < Some(0)) {
        *grace = 1.into();
    }
}

/// Defaults pod-level requests to those of the containers, then to the pod-level limits.
fn default_pod_level_requests(spec: &mut Map) {
    let limits =
        spec.get("resources").and_then(|resources| resources.get("limits")).and_then(Value::as_object).cloned();
    let Some(limits) = limits.filter(|limits| !limits.is_empty()) else { return };
    let whole = Value::Object(spec.clone());
    let totals = resource_list::container_resources(&whole, "requests");
    let resources = meta::object_mut(spec.entry("resources").or_insert_with(|| json!({})));
    let requests = meta::object_mut(resources.entry("requests").or_insert_with(|| json!({})));
    for (name, total) in
        totals.into_iter().filter(|(name, _)| resource_list::POD_LEVEL_RESOURCES.contains(&name.as_str()))
    {
        requests.entry(name).or_insert(total.to_string().into());
    }
    for (name, limit) in limits {
        if name == "cpu" || name == "memory" || name.starts_with("hugepages-") {
            requests.entry(name).or_insert(limit);
        }
    }
    if requests.is_empty() {
        resources.remove("requests");
    }
}

/// Defaults host ports to container ports on the host network.
fn default_host_ports(container: &mut Map) {
    let ports = container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
    for port in ports.filter_map(Value::as_object_mut) {
        let number = port.get("containerPort").cloned().unwrap_or_default();
        if port.get("hostPort").is_none_or(decode::is_zero) {
            port.insert("hostPort".into(), number);
        }
    }
}

/// Mirrors `serviceAccountName` and `serviceAccount`.
pub(super) fn default_service_account(map: &mut Map) {
    if let Some(name) = map.get("serviceAccountName").or(map.get("serviceAccount")).cloned() {
        map.insert("serviceAccountName".into(), name.clone());
        map.insert("serviceAccount".into(), name);
    }
}
