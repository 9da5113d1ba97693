//! Objects of `metrics.k8s.io/v1beta1`: discovery, metrics, tables and errors.

use std::collections::BTreeMap;

use http::StatusCode;
use jiff::Timestamp;
use kube::core::ObjectMeta;
use serde_json::{Map, Value, json};

use super::usage::{MetricsStorage, ResourceUsage, cpu_quantity, memory_quantity};

/// The API group.
pub const GROUP: &str = "metrics.k8s.io";
/// Group and version.
pub const GROUP_VERSION: &str = "metrics.k8s.io/v1beta1";

/// A resource of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsResource {
    /// `nodes`
    Nodes,
    /// `pods`
    Pods,
}

impl MetricsResource {
    /// Returns the kind of its objects.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Nodes => "NodeMetrics",
            Self::Pods => "PodMetrics",
        }
    }

    /// Returns the error for an object without metrics.
    pub fn not_found(self, namespace: Option<&str>, name: &str) -> (StatusCode, Value) {
        let name = namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"));
        let kind = self.kind().to_ascii_lowercase();
        let message = format!("{kind}.{GROUP} {name:?} not found");
        let details = json!({ "name": name, "group": GROUP, "kind": kind });
        (StatusCode::NOT_FOUND, status_document(StatusCode::NOT_FOUND, "NotFound", &message, Some(details)))
    }
}

/// Returns the list of the version's resources.
pub fn resource_list() -> Value {
    let resource = |name: &str, namespaced: bool, kind: &str| json!({ "name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"] });
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION,
        "resources": [resource("nodes", false, "NodeMetrics"), resource("pods", true, "PodMetrics")] })
}

/// Returns the group.
pub fn api_group() -> Value {
    let version = json!({ "groupVersion": GROUP_VERSION, "version": "v1beta1" });
    json!({ "kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": [version], "preferredVersion": version })
}

/// Returns a Status that reports a failure.
pub fn status_document(code: StatusCode, reason: &str, message: &str, details: Option<Value>) -> Value {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason });
    if let Some(details) = details {
        status["details"] = details;
    }
    status["code"] = code.as_u16().into();
    status
}

/// The metrics of a node or a pod with the object's metadata.
#[derive(Debug)]
pub struct ObjectMetrics {
    metadata: Value,
    usage: ResourceUsage,
    /// Of a pod.
    containers: Option<BTreeMap<String, ResourceUsage>>,
}

impl ObjectMetrics {
    /// Returns the metrics of a node.
    pub fn of_node(storage: &MetricsStorage, node: &ObjectMeta) -> Option<Self> {
        let usage = storage.node_usage(node.name.as_deref()?)?;
        Some(Self { metadata: metadata_document(node), usage, containers: None })
    }

    /// Returns the metrics of a pod.
    pub fn of_pod(storage: &MetricsStorage, pod: &ObjectMeta) -> Option<Self> {
        let usages = storage.pod_usage(&(pod.namespace.clone()?, pod.name.clone()?))?;
        let earliest = usages.iter().map(|(_, usage)| *usage).min_by_key(|usage| usage.nanos)?;
        let total = ResourceUsage {
            nano_cores: usages.iter().map(|(_, usage)| usage.nano_cores).sum(),
            memory_bytes: usages.iter().map(|(_, usage)| usage.memory_bytes).sum(),
            ..earliest
        };
        let containers = usages.into_iter().map(|(name, usage)| (name.to_owned(), usage)).collect();
        Some(Self { metadata: metadata_document(pod), usage: total, containers: Some(containers) })
    }

    /// Returns the object without kind and version.
    fn document(&self) -> Map<String, Value> {
        let time = Timestamp::from_second(self.usage.nanos.div_euclid(1_000_000_000)).unwrap_or_default();
        let mut fields = Map::new();
        fields.insert("metadata".into(), self.metadata.clone());
        fields.insert("timestamp".into(), time.to_string().into());
        fields.insert("window".into(), window_text(self.usage.window_nanos).into());
        match &self.containers {
            Some(containers) => {
                let containers = containers.iter();
                let usages = containers.map(|(name, usage)| json!({ "name": name, "usage": usage.resource_list() }));
                fields.insert("containers".into(), usages.collect());
            }
            None => {
                fields.insert("usage".into(), self.usage.resource_list());
            }
        }
        fields
    }
}

fn metadata_document(object: &ObjectMeta) -> Value {
    let mut metadata = json!({ "name": object.name });
    if let Some(namespace) = &object.namespace {
        metadata["namespace"] = namespace.as_str().into();
    }
    let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
    metadata["creationTimestamp"] = now.to_string().into();
    if let Some(labels) = object.labels.as_ref().filter(|labels| !labels.is_empty()) {
        metadata["labels"] = json!(labels);
    }
    metadata
}

/// Returns one object.
pub fn single_document(resource: MetricsResource, object: &ObjectMetrics) -> Value {
    let mut fields = Map::new();
    fields.insert("kind".into(), resource.kind().into());
    fields.insert("apiVersion".into(), GROUP_VERSION.into());
    fields.extend(object.document());
    Value::Object(fields)
}

/// Returns a list.
pub fn list_document(resource: MetricsResource, objects: &[ObjectMetrics]) -> Value {
    let items: Vec<Value> = objects.iter().map(|object| Value::Object(object.document())).collect();
    json!({
        "kind": format!("{}List", resource.kind()), "apiVersion": GROUP_VERSION, "metadata": {}, "items": items })
}

/// Returns a table; `version` is that of `meta.k8s.io`.
pub fn table_document(version: &str, objects: &[ObjectMetrics]) -> Value {
    let column = |name: &str, format: &str, description: &str| json!({ "name": name, "type": "string", "format": format, "description": description, "priority": 0 });
    let columns = match objects.is_empty() {
        true => Value::Null,
        false => json!([
            column("Name", "name", "Name of the resource"),
            column("cpu", "quantity", ""),
            column("memory", "quantity", ""),
            column("Window", "duration", ""),
        ]),
    };
    let rows = objects.iter().map(|object| {
        let usage = &object.usage;
        json!({
            "cells": [object.metadata["name"], cpu_quantity(usage.nano_cores), memory_quantity(usage.memory_bytes),
                window_text(usage.window_nanos)],
            "object": {
                "kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": object.metadata } })
    });
    json!({
        "kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": {},
        "columnDefinitions": columns, "rows": rows.collect::<Vec<_>>() })
}

/// Formats a duration of milliseconds or more as Go does.
fn window_text(nanos: i64) -> String {
    let millis = nanos / 1_000_000;
    if millis < 1000 {
        return format!("{millis}ms");
    }
    let (hours, minutes) = (millis / 3_600_000, millis / 60_000 % 60);
    let mut seconds = format!("{}.{:03}", millis / 1000 % 60, millis % 1000);
    seconds.truncate(seconds.trim_end_matches('0').trim_end_matches('.').len());
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_written_as_go_writes_durations() {
        let cases = [(15_017, "15.017s"), (60_000, "1m0s"), (70_500, "1m10.5s"), (3_600_010, "1h0m0.01s"), (7, "7ms")];
        for (millis, text) in cases {
            assert_eq!(window_text(millis * 1_000_000), text);
        }
    }

    #[test]
    fn missing_pod_metrics_are_named_with_their_namespace() {
        let (_, status) = MetricsResource::Pods.not_found(Some("ns"), "p");
        assert_eq!(status["message"], "podmetrics.metrics.k8s.io \"ns/p\" not found");
    }
}
