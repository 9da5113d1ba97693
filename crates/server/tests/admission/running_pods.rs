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

#[tokio::test]
async fn pods_grow_within_their_nodes() {
    let world = World::with(AdmissionSettings::new(&[], &names(&["ServiceAccount"])).unwrap()).await;
    let node = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}}});
    world.create("/api/v1/nodes", node("n", json!({}))).await;
    world.create("/api/v1/nodes", node("linux", json!({"kubernetes.io/os": "linux"}))).await;
    world.create("/api/v1/nodes", node("windows", json!({"kubernetes.io/os": "windows"}))).await;
    let resources = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "memory": memory}});
    for on in ["n", "linux", "windows", "gone", ""] {
        let container = json!({"name": "c", "image": "i", "resources": resources("1", "64Mi")});
        let mut body = pod(&format!("p-{on}-p"), json!({"containers": [container]}));
        if !on.is_empty() {
            body["spec"]["nodeName"] = on.into();
        }
        world.create("/api/v1/namespaces/default/pods", body).await;
    }
    let short = "node didn't have enough allocatable resources:";
    let cpu = format!("{short} cpu, requested: 3000, allocatable: 2000");
    let memory = format!("{short} memory, requested: 2147483648, allocatable: 1073741824");
    let both = format!("{cpu}; memory, requested: 2147483648, allocatable: 1073741824");
    let windows = "pod resize is only supported on linux nodes, node \"windows\" is \"windows\"";
    for (on, asked, why) in [
        ("n", resources("1", "64Mi"), ""),
        ("n", resources("2", "64Mi"), ""),
        ("n", resources("500m", "64Mi"), ""),
        ("n", resources("1", "1Gi"), ""),
        ("n", resources("2", "1Gi"), ""),
        ("n", resources("3", "64Mi"), cpu.as_str()),
        ("n", resources("1", "2Gi"), &memory),
        ("n", resources("3", "2Gi"), &both),
        ("linux", resources("2", "64Mi"), ""),
        ("linux", resources("3", "64Mi"), &cpu),
        ("windows", resources("2", "64Mi"), windows),
        ("windows", resources("1", "64Mi"), ""),
        ("gone", resources("2", "64Mi"), "node \"gone\" not found"),
        ("", resources("3", "64Mi"), ""),
    ] {
        let name = format!("p-{on}-p");
        let path = format!("/api/v1/namespaces/default/pods/{name}/resize?dryRun=All");
        let body = json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": asked}]}});
        let refused = format!("pods {name:?} is forbidden: {why}");
        let want = if why.is_empty() { (200, "") } else { (403, refused.as_str()) };
        world.check("PATCH", &path, body, want).await;
    }
}
