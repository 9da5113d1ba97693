//! NamespaceLifecycle.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn what_lives_in_a_namespace_needs_one() {
    let world = World::new(&[]).await;
    let map = json!({"metadata": {"name": "m"}});
    world.namespace("a", json!({})).await;
    world.check("POST", "/api/v1/namespaces/a/configmaps", map.clone(), (201, "")).await;
    let missing = "namespaces \"none\" not found";
    world.check("POST", "/api/v1/namespaces/none/configmaps", map.clone(), (404, missing)).await;
    world.check("PUT", "/api/v1/namespaces/none/configmaps/m", map.clone(), (404, "configmaps \"m\" not found")).await;
    let review = json!({"metadata": {"namespace": "none"}, "spec": {"user": "u",
        "resourceAttributes": {"namespace": "none", "verb": "get", "resource": "pods"}}});
    let reviews = "/apis/authorization.k8s.io/v1/namespaces/none/localsubjectaccessreviews";
    world.check("POST", reviews, review, (201, "")).await;
    for name in ["default", "kube-system", "kube-public"] {
        let refused = format!("namespaces {name:?} is forbidden: this namespace may not be deleted");
        world.check("DELETE", &format!("/api/v1/namespaces/{name}"), json!(null), (403, &refused)).await;
    }
    world.check("DELETE", "/api/v1/namespaces/kube-node-lease", json!(null), (200, "")).await;
    world.check("DELETE", "/api/v1/namespaces/a", json!(null), (200, "")).await;
    let why = "because it is being terminated";
    let late = format!("configmaps \"late\" is forbidden: unable to create new content in namespace a {why}");
    let answer = world
        .check("POST", "/api/v1/namespaces/a/configmaps", json!({"metadata": {"name": "late"}}), (403, &late))
        .await;
    assert_eq!(answer.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let late = format!("configmaps \"late-\" is forbidden: unable to create new content in namespace a {why}");
    let generated = json!({"metadata": {"generateName": "late-"}});
    world.check("POST", "/api/v1/namespaces/a/configmaps", generated, (403, &late)).await;
    world.check("PATCH", "/api/v1/namespaces/a/configmaps/m", json!({"data": {"k": "v"}}), (200, "")).await;
    world.check("DELETE", "/api/v1/namespaces/a/configmaps/m", json!(null), (200, "")).await;
}
