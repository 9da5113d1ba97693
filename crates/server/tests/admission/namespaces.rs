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

const MAP: &str = "{\"metadata\": {\"name\": \"m\"}}";

#[tokio::test]
async fn namespaces_must_exist() {
    let disabled = crate::world::names(&["NamespaceLifecycle", "ServiceAccount"]);
    let enabled = crate::world::names(&["NamespaceExists"]);
    let world = World::with(ferry_server::AdmissionSettings::new(&enabled, &disabled).unwrap()).await;
    world.namespace("a", json!({})).await;
    let map = || serde_json::from_str::<serde_json::Value>(MAP).unwrap();
    let missing = "namespaces \"none\" not found";
    let pod = || crate::world::pod("p", json!({}));
    for (method, path, body, want) in [
        ("POST", "/api/v1/namespaces/a/configmaps", map(), (201, "")),
        ("PATCH", "/api/v1/namespaces/a/configmaps/m", json!({"data": {"k": "v"}}), (200, "")),
        ("POST", "/api/v1/namespaces/default/configmaps", map(), (201, "")),
        ("POST", "/api/v1/namespaces/a/pods", pod(), (201, "")),
        ("POST", "/api/v1/namespaces/none/configmaps", map(), (404, missing)),
        ("POST", "/api/v1/namespaces/none/secrets", map(), (404, missing)),
        ("POST", "/api/v1/namespaces/none/pods", pod(), (404, missing)),
        ("POST", "/api/v1/namespaces/none/configmaps?dryRun=All", map(), (404, missing)),
        ("POST", "/api/v1/namespaces/a/configmaps?dryRun=All", json!({"metadata": {"name": "n"}}), (201, "")),
        // What is in no namespace needs none.
        ("POST", "/api/v1/namespaces", json!({"metadata": {"name": "b"}}), (201, "")),
        ("POST", "/api/v1/nodes", json!({"metadata": {"name": "n"}}), (201, "")),
        ("DELETE", "/api/v1/namespaces/a/configmaps/m", json!(null), (200, "")),
        ("DELETE", "/api/v1/nodes/n", json!(null), (200, "")),
    ] {
        world.check(method, path, body, want).await;
    }
}

#[tokio::test]
async fn namespaces_are_made() {
    let world = World::new(&["NamespaceAutoProvision"]).await;
    let map = || serde_json::from_str::<serde_json::Value>(MAP).unwrap();
    let exists =
        async |name: &str| world.send("GET", &format!("/api/v1/namespaces/{name}"), &json!(null)).await.code == 200;
    for (name, resource, code, made) in [
        ("a", "configmaps", 201, true),
        ("a", "secrets", 201, true),
        ("b", "secrets", 201, true),
        ("default", "configmaps", 201, true),
        ("d", "configmaps?dryRun=All", 404, false),
        ("Not_A_Name", "configmaps", 403, false),
    ] {
        let answer = world.send("POST", &format!("/api/v1/namespaces/{name}/{resource}"), &map()).await;
        assert_eq!((answer.code, exists(name).await), (code, made), "{name} {resource}: {}", answer.body);
    }
    world
        .check("PATCH", "/api/v1/namespaces/z/configmaps/m", json!({"data": {}}), (404, "configmaps \"m\" not found"))
        .await;
    assert!(!exists("z").await, "only new objects make one");
    world.check("DELETE", "/api/v1/namespaces/y/configmaps/m", json!(null), (404, "configmaps \"m\" not found")).await;
    assert!(!exists("y").await);
    world.check("POST", "/api/v1/nodes", json!({"metadata": {"name": "n"}}), (201, "")).await;
    world.check("POST", "/api/v1/namespaces", json!({"metadata": {"name": "x"}}), (201, "")).await;
}
