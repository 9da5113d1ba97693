//! NodeDeclaredFeatureValidator and PodResizeValidator: what pods that run may become.

use ferry_apiserver::AdmissionOptions;
use serde_json::{Value, json};

use crate::admission::world::{World, names, pod};

const WHOLE: &str = "InPlacePodLevelResourcesVerticalScaling";
const INIT: &str = "InPlacePodVerticalScalingInitContainers";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// The resources of the pod, of a container that runs first, of one that runs beside, and of the usual one; "" is none.
fn sized([whole, init, sidecar, usual]: [&str; 4]) -> Value {
    let resources = |cpu: &str| match cpu {
        "" => json!({}),
        cpu => json!({"limits": {"cpu": cpu, "memory": "1Gi"}, "requests": {"cpu": cpu, "memory": "1Gi"}}),
    };
    let container = |name: &str, cpu: &str| json!({"name": name, "image": "i", "resources": resources(cpu)});
    let mut beside = container("sidecar", sidecar);
    beside["restartPolicy"] = "Always".into();
    let mut spec = json!({"initContainers": [container("init", init), beside], "containers": [container("c", usual)]});
    if !whole.is_empty() {
        spec["resources"] = resources(whole);
    }
    json!({"spec": spec})
}

#[tokio::test]
async fn nodes_must_declare_what_a_change_needs() {
    let world = World::with(AdmissionOptions::new(&[], &names(&["ServiceAccount"])).unwrap()).await;
    for (name, declared) in [
        ("none", vec![]),
        ("other", vec!["Other"]),
        ("whole", vec![WHOLE]),
        ("init", vec![INIT]),
        ("both", vec![WHOLE, INIT]),
    ] {
        let status = json!({"declaredFeatures": declared, "allocatable": {"cpu": "8", "memory": "8Gi"}});
        world.create("/api/v1/nodes", json!({"metadata": {"name": name}, "status": status})).await;
    }
    let all = format!("{WHOLE}, {INIT}");
    let (whole, init) = ([["4", "", "", ""], ["5", "", "", ""]], [["", "1", "", ""], ["", "2", "", ""]]);
    let either = [["4", "1", "", ""], ["5", "2", "", ""]];
    for (number, (on, [from, to], lacks)) in [
        ("none", whole, WHOLE),
        ("other", whole, WHOLE),
        ("init", whole, WHOLE),
        ("whole", whole, ""),
        ("both", whole, ""),
        ("none", init, INIT),
        ("other", init, INIT),
        ("whole", init, INIT),
        ("init", init, ""),
        ("both", init, ""),
        ("none", either, &all),
        ("init", either, WHOLE),
        ("whole", either, INIT),
        ("both", either, ""),
        // Nothing changes, or nothing that not every node can do.
        ("none", [whole[0], whole[0]], ""),
        ("none", [["", "", "1", ""], ["", "", "2", ""]], ""),
        ("none", [["", "", "", "1"], ["", "", "", "2"]], ""),
        // A pod that is nowhere yet, and one whose node is gone.
        ("", either, ""),
        ("gone", whole, "gone"),
        ("gone", init, "gone"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("p{number}");
        let mut body = pod(&name, sized(from)["spec"].clone());
        if !on.is_empty() {
            body["spec"]["nodeName"] = on.into();
        }
        world.create(PODS, body).await;
        let refused = match lacks {
            "" => String::new(),
            "gone" => format!("pods {name:?} is forbidden: node \"gone\" not found"),
            lacks => format!(
                "pods {name:?} is forbidden: pod update requires features {lacks} which are not available on node {on:?}"
            ),
        };
        let want = (if lacks.is_empty() { 200 } else { 403 }, refused.as_str());
        world.check("PATCH", &format!("{PODS}/{name}/resize"), sized(to), want).await;
        // What is no change of sizes is no matter of the node's.
        let labelled = json!({"metadata": {"labels": {"a": "b"}}});
        world.check("PATCH", &format!("{PODS}/{name}"), labelled, (200, "")).await;
    }
}

#[tokio::test]
async fn pods_grow_within_their_nodes() {
    let world = World::with(AdmissionOptions::new(&[], &names(&["ServiceAccount"])).unwrap()).await;
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
