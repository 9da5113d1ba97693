//! ResourceQuota.

use std::sync::Arc;

use ferry_apiserver::AdmissionOptions;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::admission::world::{World, pod, pod_with};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

/// A quota that was counted.
async fn quota(world: &World, name: &str, spec: Value, used: Value) {
    world.create(QUOTAS, json!({"metadata": {"name": name}, "spec": spec})).await;
    let status = json!({"status": {"hard": spec["hard"], "used": used}});
    world.check("PATCH", &format!("{QUOTAS}/{name}/status"), status, (200, "")).await;
    world.settle(QUOTAS).await;
}

async fn used(world: &World, name: &str) -> Value {
    world.send("GET", &format!("{QUOTAS}/{name}"), &Value::Null).await.body["status"]["used"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_clients_create_exactly_ten() {
    let world = Arc::new(World::new(&[]).await);
    quota(&world, "q", json!({"hard": {"configmaps": "10"}}), json!({"configmaps": "0"})).await;
    quota(&world, "all", json!({"hard": {"count/configmaps": "100"}}), json!({"count/configmaps": "0"})).await;
    let tasks = (0..64).map(|index| {
        let world = world.clone();
        tokio::spawn(
            async move { world.send("POST", MAPS, &json!({"metadata": {"name": format!("m{index}")}})).await.code },
        )
    });
    let codes: Vec<u16> = join_all(tasks).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 10, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 403).count(), 54, "{codes:?}");
    assert_eq!(used(&world, "q").await, json!({"configmaps": "10"}));
    assert_eq!(used(&world, "all").await, json!({"count/configmaps": "10"}));
    let list = world.send("GET", MAPS, &Value::Null).await;
    assert_eq!(list.body["items"].as_array().unwrap().len(), 10);
}

#[tokio::test]
async fn what_is_used_is_charged_and_what_is_left_is_told() {
    let world = World::new(&[]).await;
    let map = |name: &str| json!({"metadata": {"name": name}});
    world.create(QUOTAS, json!({"metadata": {"name": "new"}, "spec": {"hard": {"configmaps": "0"}}})).await;
    world.settle(QUOTAS).await;
    world.check("POST", MAPS, map("uncounted"), (201, "")).await;
    let half = json!({"status": {"hard": {"configmaps": "1"}}});
    world.check("PATCH", &format!("{QUOTAS}/new/status"), half, (200, "")).await;
    let unknown = "configmaps \"a\" is forbidden: status unknown for quota: new, resources: configmaps";
    world.check("POST", MAPS, map("a"), (403, unknown)).await;
    world
        .check("PATCH", &format!("{QUOTAS}/new/status"), json!({"status": {"used": {"configmaps": "0"}}}), (200, ""))
        .await;
    world.check("POST", &format!("{MAPS}?dryRun=All"), map("a"), (201, "")).await;
    assert_eq!(used(&world, "new").await, json!({"configmaps": "0"}));
    world.check("POST", MAPS, map("a"), (201, "")).await;
    let full = |name: &str| {
        format!(
            "configmaps {name:?} is forbidden: exceeded quota: new, requested: configmaps=1, used: configmaps=1, limited: configmaps=1"
        )
    };
    world.check("POST", MAPS, map("b"), (403, &full("b"))).await;
    world.check("POST", &format!("{MAPS}?dryRun=All"), map("b"), (403, &full("b"))).await;
    let generated = world.send("POST", MAPS, &json!({"metadata": {"generateName": "g-"}})).await;
    let message = generated.body["message"].as_str().unwrap();
    assert!(message.starts_with("configmaps \"g-") && !message.contains("\"g-\""), "{message}");
    world.check("PATCH", &format!("{MAPS}/a"), json!({"data": {"k": "v"}}), (200, "")).await;
    world.check("POST", "/api/v1/namespaces/default/secrets", map("s"), (201, "")).await;
    let status = world.send("GET", &format!("{QUOTAS}/new"), &Value::Null).await;
    let managers = status.body["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().any(|entry| entry["manager"] == "kube-apiserver" && entry["subresource"] == "status"));
}

#[tokio::test]
async fn pods_are_charged_for_what_they_ask_for() {
    let world = World::new(&[]).await;
    let hard = json!({"requests.cpu": "1", "limits.cpu": "2", "pods": "2"});
    quota(&world, "q", json!({"hard": hard}), json!({"requests.cpu": "0", "limits.cpu": "0", "pods": "0"})).await;
    let pods = "/api/v1/namespaces/default/pods";
    let silent = "pods \"p\" is forbidden: failed quota: q: must specify limits.cpu for: c; requests.cpu for: c";
    world.check("POST", pods, pod("p", json!({})), (403, silent)).await;
    let asks = |name: &str, requests: &str, limits: &str| {
        pod_with(name, json!({"resources": {"requests": {"cpu": requests}, "limits": {"cpu": limits}}}))
    };
    world.check("POST", pods, asks("a", "600m", "1"), (201, "")).await;
    let both = "pods \"b\" is forbidden: exceeded quota: q, requested: limits.cpu=1500m,requests.cpu=500m, used: \
                limits.cpu=1,requests.cpu=600m, limited: limits.cpu=2,requests.cpu=1";
    world.check("POST", pods, asks("b", "500m", "1500m"), (403, both)).await;
    world.check("POST", pods, asks("b", "400m", "1"), (201, "")).await;
    assert_eq!(used(&world, "q").await, json!({"limits.cpu": "2", "pods": "2", "requests.cpu": "1"}));
    world.check("PATCH", &format!("{pods}/a"), json!({"metadata": {"labels": {"a": "b"}}}), (200, "")).await;
}

#[tokio::test]
async fn scopes_choose_what_counts() {
    let world = World::new(&[]).await;
    let class = json!({"metadata": {"name": "high"}, "value": 5});
    world.create("/apis/scheduling.k8s.io/v1/priorityclasses", class).await;
    let scoped = |operator: &str| json!({"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": ["high"]}]});
    quota(&world, "high", json!({"hard": {"pods": "0"}, "scopeSelector": scoped("In")}), json!({"pods": "0"})).await;
    quota(&world, "short", json!({"hard": {"pods": "0"}, "scopes": ["Terminating"]}), json!({"pods": "0"})).await;
    let pods = "/api/v1/namespaces/default/pods";
    let full = |quota: &str| {
        format!("pods \"p\" is forbidden: exceeded quota: {quota}, requested: pods=1, used: pods=0, limited: pods=0")
    };
    world.check("POST", pods, pod("p", json!({"priorityClassName": "high"})), (403, &full("high"))).await;
    world.check("POST", pods, pod("p", json!({"activeDeadlineSeconds": 9})), (403, &full("short"))).await;
    world.check("POST", pods, pod("p", json!({})), (201, "")).await;
    let ends = json!({"spec": {"activeDeadlineSeconds": 9}});
    world.check("PATCH", &format!("{pods}/p"), ends, (403, &full("short"))).await;
}

#[tokio::test]
async fn what_grows_is_charged_for_its_growth() {
    let world = World::new(&[]).await;
    let zero = json!({"services.nodeports": "0", "services": "0"});
    quota(&world, "q", json!({"hard": {"services": "2", "services.nodeports": "2"}}), zero).await;
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, kind: &str, ports: &[u16]| {
        let ports: Vec<Value> = ports.iter().map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
        json!({"metadata": {"name": name}, "spec": {"type": kind, "ports": ports}})
    };
    world.check("POST", services, service("a", "NodePort", &[1, 2]), (201, "")).await;
    world.check("POST", services, service("b", "ClusterIP", &[1]), (201, "")).await;
    assert_eq!(used(&world, "q").await, json!({"services": "2", "services.nodeports": "2"}));
    let more = "services \"b\" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=2, \
                limited: services.nodeports=2";
    world.check("PATCH", &format!("{services}/b"), json!({"spec": {"type": "NodePort"}}), (403, more)).await;
    world.check("PATCH", &format!("{services}/a"), json!({"metadata": {"labels": {"a": "b"}}}), (200, "")).await;
}

#[tokio::test]
async fn some_things_need_a_quota() {
    let limited = json!([{"resource": "pods", "matchContains": ["pods"]},
        {"resource": "pods", "matchScopes": [{"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}]}]);
    let settings =
        AdmissionOptions::default().with_plugin_config("ResourceQuota", json!({"limitedResources": limited}));
    let world = World::with(settings).await;
    let pods = "/api/v1/namespaces/default/pods";
    let uncovered = "pods \"p\" is forbidden: insufficient quota to consume: count/pods,pods";
    world.check("POST", pods, pod("p", json!({})), (403, uncovered)).await;
    quota(&world, "q", json!({"hard": {"pods": "9", "count/pods": "9"}}), json!({"pods": "0", "count/pods": "0"}))
        .await;
    world.check("POST", pods, pod("p", json!({})), (201, "")).await;
    let scope = "insufficient quota to match these scopes: [{PriorityClass In [system-node-critical]}]";
    let critical = json!({"priorityClassName": "system-node-critical"});
    world.check("POST", pods, pod("q", critical), (500, scope)).await;
    world.check("POST", MAPS, json!({"metadata": {"name": "m"}}), (201, "")).await;
}
