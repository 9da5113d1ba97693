//! The answers of an API server with a few objects, some of them broken.

use fastrand::Rng;
use serde_json::{Value, json};

use super::{HostileRequest, mutation::break_document};

/// The status and body of an answer; `old_discovery` has a document per group and version.
pub fn answer(request: &HostileRequest, random: &mut Rng, old_discovery: bool) -> (u16, Vec<u8>) {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    if path.ends_with("/log") {
        return (200, log(random));
    }
    if query.contains("watch=true") {
        return (200, watch_events(path, random));
    }
    let (status, document) = document(request, path, old_discovery);
    // Discovery is mostly whole, or nothing else would be asked for.
    let whole = if path.starts_with("/api") && path.matches('/').count() < 4 { 9 } else { 3 };
    let body =
        if random.u8(..10) < whole { document.to_string().into_bytes() } else { break_document(&document, random) };
    (status, body)
}

fn document(request: &HostileRequest, path: &str, old_discovery: bool) -> (u16, Value) {
    let aggregated = request.accept.contains("apidiscovery") && !old_discovery;
    let document = match path {
        "/version" => json!({"major": "1", "minor": "36", "gitVersion": "v1.36.4"}),
        "/api" if aggregated => discovery(&[("", CORE)]),
        "/apis" if aggregated => discovery(&[("apps", APPS), ("metrics.k8s.io", METRICS)]),
        "/api" => json!({"kind": "APIVersions", "versions": ["v1"]}),
        "/apis" => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [plain_group("apps", "v1"),
            plain_group("metrics.k8s.io", "v1beta1")]}),
        "/api/v1" => plain_resources("v1", CORE),
        "/apis/apps/v1" => plain_resources("apps/v1", APPS),
        "/apis/metrics.k8s.io/v1beta1" => plain_resources("metrics.k8s.io/v1beta1", METRICS),
        "/openapi/v3" => json!({"paths": {"api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=1"},
            "apis/apps/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=2"}}}),
        "/openapi/v3/api/v1" => {
            json!({"openapi": "3.0.0", "paths": {}, "components": {"schemas": schemas("#/components/schemas/")}})
        }
        "/openapi/v2" => json!({"swagger": "2.0", "paths": {}, "definitions": schemas("#/definitions/")}),
        _ if path.contains("selfsubject") => json!({"kind": "SelfSubjectRulesReview", "status": {"incomplete": true,
            "resourceRules": [{"verbs": ["get"], "resources": ["pods"], "apiGroups": [""], "resourceNames": ["a"]}],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/api"]}]}}),
        _ => return resource_document(request, path),
    };
    (200, document)
}

fn resource_document(request: &HostileRequest, path: &str) -> (u16, Value) {
    let last = path.rsplit('/').next().unwrap_or_default();
    let names = ["p", "d", "n", "s", "r", "default"];
    let is_list = !names.contains(&last) && !last.is_empty() && request.method == "GET";
    let object = object_of(path);
    if is_list && request.accept.contains("as=table") {
        return (200, table(&object));
    }
    if is_list {
        let kind = format!("{}List", object["kind"].as_str().unwrap_or_default());
        return (
            200,
            json!({"kind": kind, "apiVersion": object["apiVersion"], "metadata": {"resourceVersion": "7",
            "continue": if request.target.contains("limit=1&") { "x" } else { "" }}, "items": [object, object]}),
        );
    }
    match request.method.as_str() {
        "POST" => (201, object),
        "DELETE" => (200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})),
        "GET" if request.accept.contains("as=table") => (200, table(&object)),
        _ => (200, object),
    }
}

type ResourceNames = &'static [(&'static str, &'static str, &'static str)];

const CORE: ResourceNames = &[
    ("pods", "Pod", "po"),
    ("nodes", "Node", "no"),
    ("services", "Service", "svc"),
    ("events", "Event", "ev"),
    ("namespaces", "Namespace", "ns"),
    ("configmaps", "ConfigMap", "cm"),
];
const APPS: ResourceNames = &[("deployments", "Deployment", "deploy"), ("replicasets", "ReplicaSet", "rs")];
const METRICS: ResourceNames = &[("pods", "PodMetrics", ""), ("nodes", "NodeMetrics", "")];

fn discovery(groups: &[(&str, ResourceNames)]) -> Value {
    let verbs = json!(["create", "delete", "get", "list", "patch", "update", "watch"]);
    let items = groups.iter().map(|(group, resources)| {
        let version = if *group == "metrics.k8s.io" { "v1beta1" } else { "v1" };
        let resources = resources.iter().map(|(plural, kind, short)| {
            let scope = if ["nodes", "namespaces"].contains(plural) { "Cluster" } else { "Namespaced" };
            json!({"resource": plural, "responseKind": {"group": group, "version": version, "kind": kind}, "scope": scope,
                "singularResource": kind.to_lowercase(), "verbs": verbs, "shortNames": [short], "categories": ["all"],
                "subresources": [{"subresource": "status", "responseKind": {"kind": kind}, "verbs": ["get"]}]})
        });
        json!({"metadata": {"name": group}, "versions": [
            {"version": version, "freshness": "Current", "resources": resources.collect::<Vec<_>>()}]})
    });
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": items.collect::<Vec<_>>()})
}

fn plain_group(name: &str, version: &str) -> Value {
    let version = json!({"groupVersion": format!("{name}/{version}"), "version": version});
    json!({"name": name, "versions": [version], "preferredVersion": version})
}

fn plain_resources(group_version: &str, resources: ResourceNames) -> Value {
    let entries = resources.iter().map(|(plural, kind, short)| {
        json!({"name": plural, "singularName": kind.to_lowercase(), "kind": kind, "shortNames": [short],
            "namespaced": !["nodes", "namespaces"].contains(plural), "verbs": ["get", "list", "watch"]})
    });
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
        "resources": entries.collect::<Vec<_>>()})
}

fn schemas(prefix: &str) -> Value {
    let reference = |name: &str| json!({"$ref": format!("{prefix}{name}")});
    let gvk = |group: &str, kind: &str| json!([{"group": group, "version": "v1", "kind": kind}]);
    json!({
        "io.k8s.api.core.v1.Pod": {"description": "A pod.", "type": "object", "x-kubernetes-group-version-kind": gvk("", "Pod"),
            "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string", "enum": ["a", "b"]},
                "metadata": {"allOf": [reference("Meta")], "default": {}}, "spec": {"allOf": [reference("Spec")]}}},
        "io.k8s.api.apps.v1.Deployment": {"type": "object", "x-kubernetes-group-version-kind": gvk("apps", "Deployment")},
        "Meta": {"type": "object", "properties": {"labels": {"type": "object", "additionalProperties": {"type": "string"}}}},
        "Spec": {"type": "object", "required": ["containers"], "properties": {
            "containers": {"type": "array", "items": reference("Container")}, "self": reference("Spec")}},
        "Container": {"description": "One\n\ntwo", "type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "description": "text ".repeat(40)}, "image": {"type": "string"}}}
    })
}

fn object_of(path: &str) -> Value {
    let metadata = |name: &str| {
        json!({"name": name, "namespace": "default", "uid": "u", "resourceVersion": "5", "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "a"},
            "annotations": {"deployment.kubernetes.io/revision": "1", "a": "b"}, "managedFields": [{"manager": "m",
                "operation": "Update", "apiVersion": "v1", "fieldsV1": {"f:metadata": {}}}]})
    };
    let spec = json!({"containers": [{"name": "c", "image": "i:1", "ports": [{"containerPort": 80}], "env": [{"name": "A",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}], "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
        "volumeMounts": [{"name": "v", "mountPath": "/v"}], "livenessProbe": {"httpGet": {"path": "/", "port": 80}}}],
        "volumes": [{"name": "v", "emptyDir": {}}], "nodeName": "n", "tolerations": [{"key": "k", "operator": "Exists",
        "tolerationSeconds": 3}]});
    let (kind, version, name) = kind_of(path);
    let mut object = json!({"kind": kind, "apiVersion": version, "metadata": metadata(name)});
    let (spec, status) = match kind {
        "Pod" => (
            spec,
            json!({"phase": "Running", "podIP": "10.0.0.1", "startTime": "2026-01-01T00:00:00Z", "conditions": [
            {"type": "Ready", "status": "True"}], "containerStatuses": [{"name": "c", "ready": true, "restartCount": 3,
            "image": "i", "imageID": "x", "containerID": "y://z", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}),
        ),
        "Node" => (
            json!({"podCIDR": "10.0.0.0/24", "taints": [{"key": "k", "effect": "NoSchedule"}]}),
            json!({"capacity":
            {"cpu": "2", "memory": "1Gi"}, "allocatable": {"cpu": "2", "memory": "1Gi"}, "nodeInfo": {"kernelVersion": "6"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "conditions": [{"type": "Ready", "status": "True"}]}),
        ),
        "Service" => (
            json!({"selector": {"app": "a"}, "ports": [{"port": 80, "targetPort": "http", "nodePort": 30000}],
            "type": "NodePort", "clusterIP": "10.0.0.1"}),
            json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}),
        ),
        "Deployment" | "ReplicaSet" => (
            json!({"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "strategy":
            {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}}, "template":
            {"metadata": {"labels": {"app": "a"}}, "spec": spec}}),
            json!({"replicas": 2, "updatedReplicas": 1,
            "observedGeneration": 2, "conditions": [{"type": "Available", "status": "True", "reason": "r"}]}),
        ),
        "Event" => {
            for (field, value) in [
                ("involvedObject", json!({"kind": "Pod", "name": "p"})),
                ("reason", json!("Started")),
                ("message", json!("text")),
                ("type", json!("Normal")),
                ("count", json!(3)),
                ("source", json!({"component": "k"})),
                ("lastTimestamp", json!("2026-01-01T00:00:00Z")),
                ("firstTimestamp", json!("2026-01-01T00:00:00Z")),
            ] {
                object[field] = value;
            }
            return object;
        }
        "PodMetrics" | "NodeMetrics" => {
            object["usage"] = json!({"cpu": "5m", "memory": "10Mi"});
            object["containers"] = json!([{"name": "c", "usage": {"cpu": "5m", "memory": "10Mi"}}]);
            return object;
        }
        _ => (json!({}), json!({"phase": "Active"})),
    };
    object["spec"] = spec;
    object["status"] = status;
    if kind == "ReplicaSet" {
        object["metadata"]["ownerReferences"] =
            json!([{"kind": "Deployment", "name": "d", "uid": "u", "controller": true}]);
    }
    object
}

fn kind_of(path: &str) -> (&'static str, &'static str, &'static str) {
    let metrics = path.contains("metrics.k8s.io");
    match path {
        _ if path.contains("/events") => ("Event", "v1", "e"),
        _ if metrics && path.contains("/nodes") => ("NodeMetrics", "metrics.k8s.io/v1beta1", "n"),
        _ if metrics => ("PodMetrics", "metrics.k8s.io/v1beta1", "p"),
        _ if path.contains("/replicasets") => ("ReplicaSet", "apps/v1", "r"),
        _ if path.contains("/deployments") => ("Deployment", "apps/v1", "d"),
        _ if path.contains("/nodes") => ("Node", "v1", "n"),
        _ if path.contains("/services") => ("Service", "v1", "s"),
        _ if path.contains("/pods") => ("Pod", "v1", "p"),
        _ => ("Namespace", "v1", "default"),
    }
}

fn table(object: &Value) -> Value {
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "7"},
        "columnDefinitions": [{"name": "Name", "type": "string", "format": "name", "priority": 0},
            {"name": "Age", "type": "string", "priority": 0}, {"name": "More", "type": "integer", "priority": 1}],
        "rows": [{"cells": ["a", "5d", 7], "object": object}, {"cells": ["b\u{1b}[2J", null, 1.5], "object": object}]})
}

fn watch_events(path: &str, random: &mut Rng) -> Vec<u8> {
    let mut body = Vec::new();
    for _ in 0..random.usize(..6) {
        let kind = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "NONSENSE"][random.usize(..6)];
        let object = if random.bool() { table(&object_of(path)) } else { object_of(path) };
        let event = json!({"type": kind, "object": object});
        if random.bool() {
            body.extend_from_slice(event.to_string().as_bytes());
        } else {
            body.extend(break_document(&event, random));
        }
        body.push(b'\n');
    }
    body
}

fn log(random: &mut Rng) -> Vec<u8> {
    match random.u8(..4) {
        0 => vec![b'a'; 1 << random.u32(..22)],
        1 => b"\x1b]0;x\x07\xff\0\n".repeat(1 << random.u32(..14)),
        2 => Vec::new(),
        _ => b"one\ntwo".to_vec(),
    }
}
