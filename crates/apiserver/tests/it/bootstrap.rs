//! A fresh server has the objects that a fresh kube-apiserver has, and leaves what administrators changed.

use crate::fixture;
use std::{collections::BTreeMap, path::Path};

use bytes::Bytes;
use ferry_apiserver::LocalService;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::ServiceExt;

async fn send(server: &LocalService, method: &str, path: &str, body: Value) -> (u16, Value) {
    let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let request = Request::builder().method(method).uri(path).header("Content-Type", "application/json");
    let response = server.clone().oneshot(request.body(Full::new(bytes)).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

async fn list(server: &LocalService, path: &str) -> BTreeMap<String, Value> {
    let (_, list) = send(server, "GET", path, Value::Null).await;
    let key = |item: &Value| {
        let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", text("namespace"), text("name"))
    };
    list["items"].as_array().unwrap().iter().map(|item| (key(item), item.clone())).collect()
}

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

#[tokio::test]
async fn the_policy_is_upstreams() {
    let folder = Path::new("../../../shared/fixtures/rbac");
    if !folder.exists() {
        skip::skip_without_data(format!("there is no {}", folder.display()));
        return;
    }
    let (server, _dir) = fixture::server().await;
    let files = [
        ("cluster-roles.yaml", "clusterroles"),
        ("controller-roles.yaml", "clusterroles"),
        ("cluster-role-bindings.yaml", "clusterrolebindings"),
        ("controller-role-bindings.yaml", "clusterrolebindings"),
        ("namespace-roles.yaml", "roles"),
        ("namespace-role-bindings.yaml", "rolebindings"),
    ];
    let mut compared = 0;
    for (file, resource) in files {
        let found = list(&server, &format!("{RBAC}/{resource}")).await;
        let text = std::fs::read(folder.join(file)).unwrap();
        for wanted in api::yaml::parse(&text).unwrap().value["items"].as_array().unwrap() {
            let metadata = &wanted["metadata"];
            let name = metadata["name"].as_str().unwrap();
            let key = format!("{}/{name}", metadata["namespace"].as_str().unwrap_or_default());
            let got = found.get(&key).unwrap_or_else(|| panic!("{resource} {key} is missing"));
            for field in ["rules", "subjects", "roleRef", "aggregationRule"] {
                assert_eq!(
                    got.get(field),
                    wanted.get(field).filter(|value| got.get(field).is_some() || !value.is_null()),
                    "{key} {field}"
                );
            }
            for field in ["labels", "annotations"] {
                assert_eq!(got["metadata"].get(field), metadata.get(field), "{key} {field}");
            }
            compared += 1;
        }
    }
    assert!(compared > 120, "{compared}");
}

#[tokio::test]
async fn everything_is_there_before_the_first_request() {
    let (server, _dir) = fixture::server().await;
    let counts = [
        ("/api/v1/namespaces", 4),
        ("/api/v1/services", 1),
        ("/apis/networking.k8s.io/v1/servicecidrs", 1),
        ("/apis/networking.k8s.io/v1/ipaddresses", 1),
        ("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", 11),
        ("/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", 8),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", 2),
        ("/apis/apiregistration.k8s.io/v1/apiservices", 21),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", 69),
        ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", 50),
    ];
    for (path, want) in counts {
        assert_eq!(list(&server, path).await.len(), want, "{path}");
    }
}

#[tokio::test]
async fn a_restart_adds_what_is_missing_and_leaves_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let server = fixture::server_in(dir.path()).await;
    let edit = |server: LocalService, name: &'static str, change: fn(&mut Value)| async move {
        let path = format!("{RBAC}/clusterroles/{name}");
        let (_, mut role) = send(&server, "GET", &path, Value::Null).await;
        change(&mut role);
        let (code, role) = send(&server, "PUT", &path, role).await;
        assert_eq!(code, 200, "{role}");
    };
    edit(server.clone(), "system:kube-scheduler", |role| role["rules"] = serde_json::json!([])).await;
    edit(server.clone(), "system:node", |role| {
        role["rules"] = serde_json::json!([]);
        role["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"] = "false".into();
    })
    .await;
    drop(server);
    let server = fixture::server_in(dir.path()).await;
    let roles = list(&server, &format!("{RBAC}/clusterroles")).await;
    assert!(!roles["/system:kube-scheduler"]["rules"].as_array().unwrap().is_empty());
    assert!(roles["/system:node"]["rules"].as_array().is_none_or(Vec::is_empty), "an administrator took it over");
}
