//! The objects of the workloads: those of upstream's `scheduler_perf`, by the names of its templates.

use serde_json::{Value, json};

const IMAGE: &str = "registry.k8s.io/pause:3.10.2";
/// The driver of the devices.
const DEVICE_DRIVER: &str = "test-driver.cdi.k8s.io";
/// The driver of the volumes.
const VOLUME_DRIVER: &str = "ebs.csi.aws.com";
/// Namespaces of the pods that are there before, and of those that are measured.
pub const NAMESPACES: [&str; 2] = ["sched-0", "sched-1"];

/// A kind of pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodTemplate {
    /// Requests 100m and 500Mi.
    Default,
    /// Requests nothing.
    Light,
    /// Waits behind a gate.
    Gated,
    /// Requests 900m; preemption may take it.
    LowPriority,
    /// Requests 3 cores and preempts.
    HighPriority,
    /// Requests more than any node has.
    HighPriorityLargeCpu,
    /// Must be in a zone with its like.
    Affinity,
    /// Must be on a node without its like.
    AntiAffinity,
    /// Prefers a node with its like.
    PreferredAffinity,
    /// Prefers a node without its like.
    PreferredAntiAffinity,
    /// Must be in one of two zones.
    NodeAffinity,
    /// Spreads over zones.
    Spreading,
    /// Prefers to spread over zones.
    PreferredSpreading,
    /// Has a bound volume.
    Volume,
    /// Has a claim for a device.
    Claim,
}

/// A pod by its number.
pub fn pod(template: PodTemplate, name: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container(template)]},
    });
    let terms = |color: &str, topology: &str| json!({"labelSelector": {"matchLabels": {"color": color}}, "topologyKey": topology, "namespaces": NAMESPACES});
    let (zone, host) = ("topology.kubernetes.io/zone", "kubernetes.io/hostname");
    let mut set = |color: &str, field: &str, value: Value| {
        if !color.is_empty() {
            pod["metadata"]["labels"] = json!({"color": color});
        }
        pod["spec"][field] = value;
    };
    let (required, preferred) =
        ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution");
    let spread = |when: &str| {
        json!([{"maxSkew": 5, "topologyKey": zone, "whenUnsatisfiable": when,
            "labelSelector": {"matchLabels": {"color": "blue"}}}])
    };
    match template {
        PodTemplate::Default => {}
        PodTemplate::Light | PodTemplate::LowPriority => set("", "terminationGracePeriodSeconds", json!(0)),
        PodTemplate::Gated => set("", "schedulingGates", json!([{"name": "test.k8s.io/hold"}])),
        PodTemplate::HighPriority | PodTemplate::HighPriorityLargeCpu => set("", "priority", json!(10)),
        PodTemplate::Affinity => set("blue", "affinity", json!({"podAffinity": {required: [terms("blue", zone)]}})),
        PodTemplate::AntiAffinity => {
            set("green", "affinity", json!({"podAntiAffinity": {required: [terms("green", host)]}}));
        }
        PodTemplate::PreferredAffinity => {
            let term = json!({"weight": 1, "podAffinityTerm": terms("red", host)});
            set("red", "affinity", json!({"podAffinity": {preferred: [term]}}));
        }
        PodTemplate::PreferredAntiAffinity => {
            let term = json!({"weight": 1, "podAffinityTerm": terms("yellow", host)});
            set("yellow", "affinity", json!({"podAntiAffinity": {preferred: [term]}}));
        }
        PodTemplate::NodeAffinity => {
            let zones = json!({"key": zone, "operator": "In", "values": ["zone1", "zone2"]});
            let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [zones]}]});
            set("", "affinity", json!({"nodeAffinity": {required: terms}}));
        }
        PodTemplate::Spreading => set("blue", "topologySpreadConstraints", spread("DoNotSchedule")),
        PodTemplate::PreferredSpreading => set("blue", "topologySpreadConstraints", spread("ScheduleAnyway")),
        PodTemplate::Volume => {
            set("", "volumes", json!([{"name": "vol", "persistentVolumeClaim": {"claimName": name}}]));
        }
        PodTemplate::Claim => {
            set("", "resourceClaims", json!([{"name": "resource", "resourceClaimName": name}]));
        }
    }
    pod
}

fn container(template: PodTemplate) -> Value {
    let both =
        |cpu: &str| json!({"requests": {"cpu": cpu, "memory": "500Mi"}, "limits": {"cpu": cpu, "memory": "500Mi"}});
    let resources = match template {
        PodTemplate::Light | PodTemplate::Gated => json!({}),
        PodTemplate::LowPriority => both("900m"),
        PodTemplate::HighPriority => both("3"),
        PodTemplate::HighPriorityLargeCpu => json!({"requests": {"cpu": "9", "memory": "500Mi"}}),
        PodTemplate::Claim => json!({"claims": [{"name": "resource"}]}),
        _ => both("100m"),
    };
    json!({"name": "pause", "image": IMAGE, "ports": [{"containerPort": 80}], "resources": resources})
}

/// A node by its number, in one of the zones.
pub fn node(number: usize, zones: &[&str], pods: usize) -> Value {
    let name = node_name(number);
    let mut labels = json!({"kubernetes.io/hostname": name});
    if !zones.is_empty() {
        labels["topology.kubernetes.io/zone"] = zones[number % zones.len()].into();
    }
    let capacity = json!({"pods": pods.to_string(), "cpu": "4", "memory": "32Gi"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn node_name(number: usize) -> String {
    format!("scheduler-perf-{number}")
}

/// The volumes that a node can attach.
pub fn csi_node(number: usize) -> Value {
    let name = node_name(number);
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
        "spec": {"drivers": [{"name": VOLUME_DRIVER, "nodeID": name, "allocatable": {"count": 39}}]},
    })
}

/// A volume, bound to the claim of a pod.
pub fn volume(namespace: &str, pod: &str) -> Value {
    let name = format!("{namespace}-{pod}");
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadOnlyMany"], "capacity": {"storage": "1Gi"},
            "csi": {"driver": VOLUME_DRIVER, "volumeHandle": name}, "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": pod},
        },
    })
}

/// The claim of a pod, bound to its volume.
pub fn volume_claim(namespace: &str, pod: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": pod, "annotations": {"pv.kubernetes.io/bind-completed": "true"}},
        "spec": {"accessModes": ["ReadOnlyMany"], "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": format!("{namespace}-{pod}")},
    })
}

/// The class of the devices.
pub fn device_class() -> Value {
    let expression = format!("device.driver == \"{DEVICE_DRIVER}\"");
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "test-class"},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    })
}

/// The devices of a node.
pub fn resource_slice(number: usize, devices: usize) -> Value {
    let name = node_name(number);
    let devices: Vec<Value> = (0..devices).map(|device| json!({"name": format!("instance-{device}")})).collect();
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
        "spec": {"driver": DEVICE_DRIVER, "nodeName": name, "devices": devices,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}},
    })
}

/// The device claim of a pod.
pub fn resource_claim(pod: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": pod},
        "spec": {"devices": {"requests": [{"name": "req-0", "exactly": {"deviceClassName": "test-class"}}]}},
    })
}

/// A node without room that comes and goes.
pub fn churn_node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"capacity": {"pods": "0"}, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// A service that comes and goes.
pub fn churn_service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"selector": {"app": "foo"}, "ports": [{"protocol": "TCP", "port": 8080, "targetPort": 8080}]},
    })
}
