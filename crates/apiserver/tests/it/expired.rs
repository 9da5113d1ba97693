//! Expired revisions of lists and watches, and how a client continues.

use crate::fixture;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use ferry_apiserver::LocalService;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use store::{Precondition, WriteRequest};
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server over a store that has forgotten everything before its newest revision; three objects are in it.
async fn server() -> (LocalService, tempfile::TempDir) {
    let (store, dir) = fixture::store().await;
    let mut newest = 0;
    for name in ["a", "b", "c"] {
        let object =
            json!({"metadata": {"name": name, "namespace": "default"}, "apiVersion": "v1", "kind": "ConfigMap"});
        let key = format!("/registry/configmaps/default/{name}");
        let write = WriteRequest {
            key: key.into(),
            precondition: Precondition::Absent,
            value: Some(object.to_string().into()),
            ttl: None,
        };
        newest = store.write(write).await.unwrap();
    }
    store.compact(newest).await.unwrap();
    (fixture::over(store).await, dir)
}

async fn get(service: &LocalService, query: &str) -> (u16, Value) {
    let request = Request::builder().uri(format!("{MAPS}?{query}")).body(Full::new(Bytes::new())).unwrap();
    let response = service.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or_default())
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().into_iter().flatten().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

#[tokio::test]
async fn a_list_that_broke_off_can_be_taken_up() {
    let (service, _dir) = server().await;
    let token = json!({"v": "meta.k8s.io/v1", "rv": 1, "start": "/a\0"}).to_string();
    let (status, refused) = get(&service, &format!("limit=1&continue={}", BASE64_URL_SAFE_NO_PAD.encode(token))).await;
    assert_eq!((status, &refused["reason"]), (410, &json!("Expired")));
    let next = refused["metadata"]["continue"].as_str().expect("a token to go on with");
    let (status, rest) = get(&service, &format!("limit=1&continue={next}")).await;
    assert_eq!((status, names(&rest)), (200, vec!["b"]));
    // From here on the pages are consistent again.
    let next = rest["metadata"]["continue"].as_str().expect("there is more");
    let (_, last) = get(&service, &format!("limit=1&continue={next}")).await;
    assert_eq!((names(&last), &last["metadata"]["resourceVersion"]), (vec!["c"], &rest["metadata"]["resourceVersion"]));
    assert_eq!(last["metadata"].get("continue"), None);
}

#[tokio::test]
async fn what_is_gone_is_expired() {
    let (service, _dir) = server().await;
    let (status, list) = get(&service, "resourceVersion=1&resourceVersionMatch=Exact").await;
    assert_eq!((status, &list["reason"]), (410, &json!("Expired")));
    let (status, event) = get(&service, "watch=1&resourceVersion=1&timeoutSeconds=5").await;
    assert_eq!((status, &event["type"], &event["object"]["code"]), (200, &json!("ERROR"), &json!(410)));
}
