//! AlwaysAdmit and AlwaysDeny, and the plug-ins whose features are off.

use ferry_apiserver::{AdmissionOptions, ServerOptions};
use serde_json::{Value, json};

use crate::{
    admission::world::{World, names, pod},
    fixture,
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

fn map(data: Value) -> Value {
    json!({"metadata": {"name": "m"}, "data": data})
}

fn review() -> Value {
    json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}})
}

fn binding() -> Value {
    json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}})
}

#[tokio::test]
async fn who_always_says_yes_changes_nothing() {
    let world = World::new(&["AlwaysAdmit"]).await;
    let label = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
                 and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let no_name = format!("ConfigMap \"M_\" is invalid: metadata.name: Invalid value: \"M_\": {label}");
    let kept = "namespaces \"default\" is forbidden: this namespace may not be deleted";
    let account =
        "pods \"q\" is forbidden: error looking up service account default/none: serviceaccount \"none\" not found";
    for (method, path, body, want) in [
        ("POST", MAPS, map(json!({})), (201, "")),
        ("POST", MAPS, map(json!({})), (409, "configmaps \"m\" already exists")),
        ("PATCH", &format!("{MAPS}/m"), json!({"data": {"a": "b"}}), (200, "")),
        ("PUT", &format!("{MAPS}/m"), map(json!({"a": "c"})), (200, "")),
        ("DELETE", &format!("{MAPS}/m"), Value::Null, (200, "")),
        ("DELETE", &format!("{MAPS}/m"), Value::Null, (404, "configmaps \"m\" not found")),
        ("DELETE", MAPS, Value::Null, (200, "")),
        ("POST", REVIEWS, review(), (201, "")),
        ("POST", PODS, pod("p", json!({})), (201, "")),
        ("POST", &format!("{PODS}/p/binding"), binding(), (201, "")),
        // Others still say no: those after it, and validation.
        ("POST", "/api/v1/namespaces/none/configmaps", map(json!({})), (404, "namespaces \"none\" not found")),
        ("DELETE", "/api/v1/namespaces/default", Value::Null, (403, kept)),
        ("POST", PODS, pod("q", json!({"serviceAccountName": "none"})), (403, account)),
        ("POST", MAPS, json!({"metadata": {"name": "M_"}}), (422, &no_name)),
    ] {
        world.check(method, path, body, want).await;
    }
}

/// A server on a store that another server filled: AlwaysDeny rejects the bootstrap objects too.
async fn denying() -> (World, tempfile::TempDir) {
    let (store, dir) = fixture::store().await;
    let before = World::over(store.clone(), fixture::everything()).await;
    before.create(MAPS, map(json!({}))).await;
    before.create(PODS, pod("p", json!({}))).await;
    let admission = AdmissionOptions::new(&names(&["AlwaysDeny"]), &[]).unwrap();
    (World::over(store, ServerOptions { admission, ..fixture::everything() }).await, dir)
}

#[tokio::test]
async fn who_always_says_no_lets_only_reads_through() {
    let (world, _dir) = denying().await;
    let no = |what: &str, name: &str| {
        (403, format!("{what} {name:?} is forbidden: admission control is denying all modifications"))
    };
    let yes = || (200, String::new());
    let missing = || (404, "configmaps \"none\" not found".to_owned());
    let role = json!({"metadata": {"name": "r"}, "rules": []});
    for (method, path, body, (code, message)) in [
        ("POST", MAPS, json!({"metadata": {"name": "new"}}), no("configmaps", "new")),
        ("POST", MAPS, json!({"metadata": {"generateName": "new-"}}), no("configmaps", "new-")),
        ("POST", &format!("{MAPS}?dryRun=All"), json!({"metadata": {"name": "new"}}), no("configmaps", "new")),
        ("PATCH", &format!("{MAPS}/m"), json!({"data": {"a": "b"}}), no("configmaps", "m")),
        ("PUT", &format!("{MAPS}/m"), map(json!({"a": "b"})), no("configmaps", "m")),
        ("DELETE", &format!("{MAPS}/m"), Value::Null, no("configmaps", "m")),
        ("DELETE", MAPS, Value::Null, no("configmaps", "Unknown")),
        ("POST", "/api/v1/namespaces", json!({"metadata": {"name": "n"}}), no("namespaces", "n")),
        (
            "POST",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            role,
            no("clusterroles.rbac.authorization.k8s.io", "r"),
        ),
        ("POST", &format!("{PODS}/p/binding"), binding(), no("pods", "p")),
        ("PATCH", &format!("{PODS}/p/status"), json!({"status": {"phase": "Running"}}), no("pods", "p")),
        ("GET", &format!("{PODS}/p/exec?command=ls"), Value::Null, no("pods", "p")),
        ("POST", REVIEWS, review(), no("selfsubjectaccessreviews.authorization.k8s.io", "Unknown")),
        ("GET", &format!("{MAPS}/m"), Value::Null, yes()),
        ("GET", MAPS, Value::Null, yes()),
        ("GET", "/apis", Value::Null, yes()),
        // What is not there cannot be changed anyway.
        ("PATCH", &format!("{MAPS}/none"), json!({"data": {}}), missing()),
        ("DELETE", &format!("{MAPS}/none"), Value::Null, missing()),
    ] {
        world.check(method, path, body, (code, &message)).await;
    }
}

/// A job of some pods at a time that belong to a group.
fn job(name: &str, parallelism: i64) -> Value {
    let mut template = pod("", json!({"restartPolicy": "Never", "schedulingGroup": {"podGroupName": "g"}}));
    template["metadata"] = json!({});
    json!({"metadata": {"name": name}, "spec": {"parallelism": parallelism, "template": template}})
}

#[tokio::test]
async fn plugins_of_features_that_are_off_refuse_nothing() {
    let on = names(&["PodGroupProtection", "PodGroupWorkloadExists", "JobValidation"]);
    let world = World::of(ServerOptions {
        admission: AdmissionOptions::new(&on, &names(&["ServiceAccount"])).unwrap(),
        ..ServerOptions::default()
    })
    .await;
    let groups = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups";
    let group = json!({"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"basic": {}},
        "podGroupTemplateRef": {"workload": {"workloadName": "none", "podGroupTemplateName": "t"}}}});
    let negative =
        "Job.batch \"j\" is invalid: spec.parallelism: Invalid value: -1: must be greater than or equal to 0";
    let one = format!("{JOBS}/j");
    for (method, path, body, want) in [
        ("POST", JOBS, job("j", 1), (201, "")),
        ("POST", JOBS, job("j", 1), (409, "jobs.batch \"j\" already exists")),
        ("PATCH", &one, json!({"spec": {"parallelism": 2}}), (200, "")),
        ("PATCH", &one, json!({"spec": {"parallelism": 0}}), (200, "")),
        ("PATCH", &one, json!({"spec": {"parallelism": -1}}), (422, negative)),
        ("PATCH", &one, json!({"spec": {"suspend": true}}), (200, "")),
        ("PATCH", &format!("{one}/status"), json!({"status": {"active": 1}}), (200, "")),
        ("PATCH", &one, json!({"metadata": {"labels": {"a": "b"}}}), (200, "")),
        ("POST", PODS, pod("p", json!({"schedulingGroup": {"podGroupName": "none"}})), (201, "")),
        ("DELETE", &format!("{PODS}/p?gracePeriodSeconds=0"), Value::Null, (200, "")),
        // There are no groups at all: such paths lead nowhere.
        ("POST", groups, group, (404, "")),
        ("GET", groups, Value::Null, (404, "")),
        ("DELETE", &format!("{groups}/g"), Value::Null, (404, "")),
        ("DELETE", &format!("{one}?propagationPolicy=Background"), Value::Null, (200, "")),
    ] {
        let answer = world.check(method, path, body, want).await;
        assert!(answer.body["metadata"]["finalizers"].is_null(), "{method} {path}: {}", answer.body);
    }
}
