//! Computed defaults of the core group, except pods.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::json;

use super::string_field;
use crate::{Map, Value, decode, meta};

/// Moves the write-only `stringData` into `data`.
pub(super) fn default_secret(map: &mut Map) {
    let Some(Value::Object(given)) = map.remove("stringData") else { return };
    let data = meta::object_mut(map.entry("data").or_insert_with(|| json!({})));
    for (key, text) in given {
        data.insert(key, BASE64_STANDARD.encode(text.as_str().unwrap_or_default()).into());
    }
}

pub(super) fn default_service(map: &mut Map) {
    let Some(spec) = map.get_mut("spec").and_then(Value::as_object_mut) else { return };
    default_session_affinity(spec);
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let number = port.get("port").cloned().unwrap_or_default();
        if let Some(port) = port.as_object_mut()
            && port.get("targetPort").is_none_or(|target| decode::is_zero(target) || target == "")
        {
            port.insert("targetPort".into(), number);
        }
    }
    let kind = string_field(spec, "type").to_owned();
    let external = spec.get("externalIPs").is_some_and(|ips| !decode::is_zero(ips));
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") || kind == "ClusterIP" && external {
        spec.entry("externalTrafficPolicy").or_insert("Cluster".into());
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        spec.entry("internalTrafficPolicy").or_insert("Cluster".into());
    }
    if kind == "LoadBalancer" {
        spec.entry("allocateLoadBalancerNodePorts").or_insert(true.into());
        default_ip_mode(map);
    }
}

fn default_session_affinity(spec: &mut Map) {
    match string_field(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let timeout = spec.get("sessionAffinityConfig").and_then(|config| config.get("clientIP"));
            if timeout.and_then(|client| client.get("timeoutSeconds")).is_none() {
                spec.insert("sessionAffinityConfig".into(), json!({"clientIP": {"timeoutSeconds": 10800}}));
            }
        }
        _ => {}
    }
}

fn default_ip_mode(service: &mut Map) {
    let points = service.get_mut("status").and_then(|status| status.get_mut("loadBalancer"));
    let points = points.and_then(|balancer| balancer.get_mut("ingress")).and_then(Value::as_array_mut);
    for point in points.into_iter().flatten().filter_map(Value::as_object_mut) {
        if !string_field(point, "ip").is_empty() {
            point.entry("ipMode").or_insert("VIP".into());
        }
    }
}

/// Mirrors `podCIDR` and the first of `podCIDRs`.
pub(super) fn default_pod_cidrs(spec: &mut Map) {
    let first =
        spec.get("podCIDRs").and_then(|list| list.get(0)).and_then(Value::as_str).unwrap_or_default().to_owned();
    let one = string_field(spec, "podCIDR").to_owned();
    if !one.is_empty() && one != first {
        spec.insert("podCIDRs".into(), json!([one]));
    } else if one.is_empty() && !first.is_empty() {
        spec.insert("podCIDR".into(), first.into());
    }
}

/// Sets the label `kubernetes.io/metadata.name`.
pub(super) fn default_namespace(map: &mut Map) {
    let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let name = string_field(metadata, "name").to_owned();
    if !name.is_empty() {
        let labels = meta::object_mut(metadata.entry("labels").or_insert_with(|| json!({})));
        labels.insert("kubernetes.io/metadata.name".into(), name.into());
    }
}

/// Defaults `allocatable` to `capacity`.
pub(super) fn default_node_status(map: &mut Map) {
    if let Some(capacity) = map.get("capacity").cloned() {
        map.entry("allocatable").or_insert(capacity);
    }
}

/// Container limits: `default` from `max`, `defaultRequest` from `default`, then `min`.
pub(super) fn default_limit_range_item(map: &mut Map) {
    if string_field(map, "type") != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let Some(Value::Object(amounts)) = map.get(from).cloned() else { continue };
        let target = meta::object_mut(map.entry(to).or_insert_with(|| json!({})));
        amounts.into_iter().for_each(|(name, amount)| {
            target.entry(name).or_insert(amount);
        });
    }
}

/// Defaults selector and labels to those of the template.
pub(super) fn default_replication_controller(map: &mut Map) {
    let template = map.get("spec").and_then(|spec| spec.get("template"));
    let labels = template.and_then(|template| template.get("metadata")).and_then(|meta| meta.get("labels"));
    let Some(labels) = labels.cloned() else { return };
    if let Some(spec) = map.get_mut("spec").and_then(Value::as_object_mut)
        && spec.get("selector").is_none_or(decode::is_zero)
    {
        spec.insert("selector".into(), labels.clone());
    }
    super::other_groups::default_labels(map, labels);
}
