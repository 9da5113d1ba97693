//! NodeDeclaredFeatureValidator and PodResizeValidator: what pods that run may become.

use ferry_server::AdmissionSettings;
use serde_json::{Value, json};

use crate::world::{World, names, pod};

/// A pod on a node, changed by a patch of a subresource; the node says what it supports.
async fn resized(declared: Value, pod: Value, patch: Value) -> (u16, String) {
    let world = World::with(AdmissionSettings::new(&[], &names(&["ServiceAccount"])).unwrap()).await;
    let node = json!({"metadata": {"name": "n"}, "status": {"declaredFeatures": declared,
        "allocatable": {"cpu": "8", "memory": "8Gi"}}});
    world.create("/api/v1/nodes", node).await;
    world.create("/api/v1/namespaces/default/pods", pod).await;
    let answer = world.send("PATCH", "/api/v1/namespaces/default/pods/p/resize", &patch).await;
    (answer.code, answer.body["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn nodes_must_declare_what_a_change_needs() {
    let limits =
        |cpu: &str| json!({"limits": {"cpu": cpu, "memory": "1Gi"}, "requests": {"cpu": cpu, "memory": "1Gi"}});
    let whole = |cpu: &str| json!({"nodeName": "n", "resources": limits(cpu)});
    let init = |cpu: &str, policy: Option<&str>| {
        let mut container = json!({"name": "i", "image": "i", "resources": limits(cpu)});
        if let Some(policy) = policy {
            container["restartPolicy"] = policy.into();
        }
        json!({"nodeName": "n", "initContainers": [container]})
    };
    let lacks = |feature: &str| {
        let why = format!("pod update requires features {feature} which are not available on node \"n\"");
        (403, format!("pods \"p\" is forbidden: {why}"))
    };
    let allowed = || (200, String::new());
    let pod_level = "InPlacePodLevelResourcesVerticalScaling";
    let patch = |spec: Value| json!({"spec": spec});
    let to_two = || patch(json!({"resources": limits("2")}));
    assert_eq!(resized(json!([]), pod("p", whole("1")), to_two()).await, lacks(pod_level));
    assert_eq!(resized(json!(["Other"]), pod("p", whole("1")), to_two()).await, lacks(pod_level));
    assert_eq!(resized(json!([pod_level]), pod("p", whole("1")), to_two()).await, allowed());
    assert_eq!(resized(json!([]), pod("p", whole("2")), to_two()).await, allowed(), "nothing changes");
    let sidecar = patch(
        json!({"initContainers": [{"name": "i", "image": "i", "restartPolicy": "Always", "resources": limits("2")}]}),
    );
    assert_eq!(resized(json!([]), pod("p", init("1", Some("Always"))), sidecar).await, allowed(), "it does not end");
}
