//! LimitRanger.

use serde_json::{Value, json};

use crate::admission::world::{World, pod, pod_with};

const PODS: &str = "/api/v1/namespaces/default/pods?dryRun=All";

async fn world(limits: Value) -> World {
    let world = World::new(&[]).await;
    let range = json!({"metadata": {"name": "l"}, "spec": {"limits": limits}});
    world.create("/api/v1/namespaces/default/limitranges", range).await;
    world.settle("/api/v1/namespaces/default/limitranges").await;
    world
}

fn asks(requests: Value, limits: Value) -> Value {
    json!({"resources": {"requests": requests, "limits": limits}})
}

#[tokio::test]
async fn containers_stay_within_bounds() {
    let world = world(json!([
        {"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "4"},
            "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}},
        {"type": "Pod", "max": {"cpu": "3"}},
    ]))
    .await;
    let check = async |container: Value, why: &str| {
        let refused = format!("pods \"p\" is forbidden: {why}");
        let want = if why.is_empty() { (201, "") } else { (403, refused.as_str()) };
        world.check("POST", PODS, pod_with("p", container), want).await
    };
    let made = check(json!({}), "").await;
    let got = &made.body["spec"]["containers"][0]["resources"];
    assert_eq!(*got, json!({"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}}));
    let said = "LimitRanger plugin set: cpu request for container c; cpu limit for container c";
    assert_eq!(made.body["metadata"]["annotations"]["kubernetes.io/limit-ranger"], said);
    check(asks(json!({"cpu": "100m"}), json!({"cpu": "400m"})), "").await;
    let c = |requests: &str, limits: &str| asks(json!({"cpu": requests}), json!({"cpu": limits}));
    check(c("50m", "150m"), "minimum cpu usage per Container is 100m, but request is 50m").await;
    let both = "[minimum cpu usage per Container is 100m, but request is 50m, cpu max limit to request ratio per Container is 4, \
                but provided ratio is 8.000000]";
    check(c("50m", "400m"), both).await;
    let both = "[minimum cpu usage per Container is 100m, but request is 50m, maximum cpu usage per Container is 2, but limit \
                is 3, cpu max limit to request ratio per Container is 4, but provided ratio is 60.000000]";
    check(c("50m", "3"), both).await;
    check(c("1", "3"), "maximum cpu usage per Container is 2, but limit is 3").await;
    check(c("300m", "1600m"), "cpu max limit to request ratio per Container is 4, but provided ratio is 5.333333")
        .await;
    let none = "[minimum cpu usage per Container is 100m, but request is 0, cpu max limit to request ratio per Container is 4, but \
                no request is specified or request is 0]";
    check(c("0", "1"), none).await;
    let two = json!([{"name": "a", "image": "i", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}},
        {"name": "b", "image": "i", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]);
    let whole = "pods \"p\" is forbidden: maximum cpu usage per Pod is 3, but limit is 4";
    world.check("POST", PODS, pod("p", json!({"containers": two})), (403, whole)).await;
}

#[tokio::test]
async fn what_has_no_default_must_be_said() {
    let world = world(json!([
        {"type": "Pod", "min": {"memory": "1Mi"}, "max": {"memory": "1Gi"}, "maxLimitRequestRatio": {"memory": "2"}},
        {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "10Gi"}},
    ]))
    .await;
    let all = "pods \"p\" is forbidden: [minimum memory usage per Pod is 1Mi.  No request is specified, maximum memory usage per Pod \
               is 1Gi.  No limit is specified, memory max limit to request ratio per Pod is 2, but no request is specified or \
               request is 0]";
    world.check("POST", PODS, pod("p", json!({})), (403, all)).await;
    world.check("POST", PODS, pod_with("p", asks(json!({"memory": "1Gi"}), json!({"memory": "1Gi"}))), (201, "")).await;
    let most = "pods \"p\" is forbidden: maximum memory usage per Pod is 1Gi, but limit is 2Gi";
    world
        .check("POST", PODS, pod_with("p", asks(json!({"memory": "1Gi"}), json!({"memory": "2Gi"}))), (403, most))
        .await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims?dryRun=All";
    for (size, why) in [
        ("1Gi", ""),
        ("10Gi", ""),
        ("1Mi", "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"),
        ("11Gi", "maximum storage usage per PersistentVolumeClaim is 10Gi, but request is 11Gi"),
    ] {
        let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}}}});
        let refused = format!("persistentvolumeclaims \"c\" is forbidden: {why}");
        let want = if why.is_empty() { (201, "") } else { (403, refused.as_str()) };
        world.check("POST", claims, claim, want).await;
    }
}
