//! NamespaceLifecycle.

use serde_json::json;

use crate::admission::world::World;

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
    let disabled = crate::admission::world::names(&["NamespaceLifecycle", "ServiceAccount"]);
    let enabled = crate::admission::world::names(&["NamespaceExists"]);
    let world = World::with(ferry_apiserver::AdmissionOptions::new(&enabled, &disabled).unwrap()).await;
    world.namespace("a", json!({})).await;
    let map = || serde_json::from_str::<serde_json::Value>(MAP).unwrap();
    let missing = "namespaces \"none\" not found";
    let pod = || crate::admission::world::pod("p", json!({}));
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
    world.namespace("ends", json!({})).await;
    world.create("/api/v1/namespaces/ends/pods", crate::admission::world::pod("p", json!({}))).await;
    world.check("DELETE", "/api/v1/namespaces/ends", json!(null), (200, "")).await;
    let review = json!({"metadata": {"namespace": "reviewed"}, "spec": {"user": "u",
        "resourceAttributes": {"namespace": "reviewed", "verb": "get", "resource": "pods"}}});
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
                 end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    let no_label = format!(
        "configmaps \"m\" is forbidden: Namespace \"Not_A_Name\" is invalid: metadata.name: Invalid value: \"Not_A_Name\": {label}"
    );
    let late =
        "configmaps \"m\" is forbidden: unable to create new content in namespace ends because it is being terminated";
    let missing = "configmaps \"m\" not found";
    let no_data = "Secret \"m\" is invalid: data[a/b]: Invalid value: \"a/b\": a valid config key must consist of \
                   alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for \
                   validation is '[-._a-zA-Z0-9]+')";
    for (method, name, rest, body, want, made) in [
        ("POST", "a", "configmaps", map(), (201, ""), true),
        ("POST", "a", "configmaps", map(), (409, "configmaps \"m\" already exists"), true),
        ("POST", "a", "secrets", map(), (201, ""), true),
        ("POST", "b", "serviceaccounts", map(), (201, ""), true),
        ("POST", "generated", "configmaps", json!({"metadata": {"generateName": "g-"}}), (201, ""), true),
        ("POST", "default", "configmaps", map(), (201, ""), true),
        // Objects are looked at closely only after that.
        ("POST", "bad", "secrets", json!({"metadata": {"name": "m"}, "data": {"a/b": ""}}), (422, no_data), true),
        ("POST", "bound", "pods/p/binding", binding, (404, "pods \"p\" not found"), true),
        // Only new objects make one, and only if they are to be kept.
        ("POST", "d", "configmaps?dryRun=All", map(), (404, "namespaces \"d\" not found"), false),
        ("PATCH", "z", "configmaps/m", json!({"data": {}}), (404, missing), false),
        ("PUT", "z", "configmaps/m", map(), (404, missing), false),
        ("DELETE", "y", "configmaps/m", json!(null), (404, missing), false),
        ("GET", "x", "configmaps/m", json!(null), (404, missing), false),
        ("GET", "x", "configmaps", json!(null), (200, ""), false),
        ("POST", "Not_A_Name", "configmaps", map(), (403, no_label.as_str()), false),
        // One that ends is there still.
        ("POST", "ends", "configmaps", map(), (403, late), true),
    ] {
        world.check(method, &format!("/api/v1/namespaces/{name}/{rest}"), body, want).await;
        let answer = world.send("GET", &format!("/api/v1/namespaces/{name}"), &json!(null)).await;
        assert_eq!(answer.code == 200, made, "{method} {name} {rest}: {}", answer.body);
    }
    let reviews = "/apis/authorization.k8s.io/v1/namespaces/reviewed/localsubjectaccessreviews";
    world.check("POST", reviews, review, (201, "")).await;
    world.check("GET", "/api/v1/namespaces/reviewed", json!(null), (200, "")).await;
    world.check("POST", "/api/v1/nodes", json!({"metadata": {"name": "n"}}), (201, "")).await;
    world.check("POST", "/api/v1/namespaces", json!({"metadata": {"name": "x"}}), (201, "")).await;
}
