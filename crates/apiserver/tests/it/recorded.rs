//! Objects as kube-apiserver 1.36.4 wrote them to etcd are served as it serves them; needs neither.
//!
//! `recorded/pairs.txt` has a line for each of our own objects that were created through a real one: the key and the value
//! (base64) that etcd had then, the path of the object, and the JSON that kube-apiserver answered for it.

use crate::fixture;
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use ferry_apiserver::LocalService;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use store::{KeyLayout, Precondition, WriteRequest};
use tower::ServiceExt;

const PAIRS: &str = include_str!("recorded/pairs.txt");

struct Pair {
    key: &'static str,
    value: Bytes,
    path: &'static str,
    answer: Value,
}

fn pairs() -> Vec<Pair> {
    let pair = |line: &'static str| {
        let [key, value, path, answer] = line.split('\t').collect::<Vec<_>>().try_into().expect("four columns");
        let value = BASE64_STANDARD.decode(value).expect("base64").into();
        Pair { key, value, path, answer: serde_json::from_str(answer).expect("JSON") }
    };
    PAIRS.lines().map(pair).collect()
}

async fn get(service: &LocalService, path: &str) -> (u16, Value) {
    let request = Request::builder().uri(path).body(Full::new(Bytes::new())).unwrap();
    let response = service.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or_default())
}

fn without_revision(mut object: Value) -> Value {
    object["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
    object
}

#[tokio::test]
async fn what_kube_apiserver_wrote_is_served() {
    let (store, _dir) = fixture::store().await;
    let layout = KeyLayout::Upstream("/registry".into());
    for pair in pairs() {
        let key = layout.to_ours(pair.key).expect("a key of ours");
        assert_eq!(layout.to_etcd(&key), pair.key);
        let write =
            WriteRequest { key: key.into(), precondition: Precondition::Absent, value: Some(pair.value), ttl: None };
        store.write(write).await.unwrap();
    }
    let service = fixture::over(store).await;
    let recorded = pairs();
    assert!(recorded.len() >= 12, "a dozen kinds");
    for pair in recorded {
        let (status, got) = get(&service, pair.path).await;
        assert_eq!((status, &without_revision(got)), (200, &without_revision(pair.answer)), "{}", pair.path);
    }
    let names = async |query: &str| {
        let (status, list) = get(&service, &format!("/api/v1/namespaces/harbour/{query}")).await;
        assert_eq!(status, 200, "{list}");
        list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names("pods?labelSelector=app%3Dquay&fieldSelector=status.phase%3DPending").await, ["ship"]);
    assert_eq!(names("pods?labelSelector=app!%3Dquay").await, [""; 0]);
    assert_eq!(names("events?fieldSelector=involvedObject.name%3Dship").await, ["docked"]);
}
