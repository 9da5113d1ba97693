//! The server in process: every resource through every verb, and the semantics that all of them share.

use crate::{fixture, minimal};
use std::sync::Arc;

use bytes::Bytes;
use ferry_apiserver::LocalService;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

struct Fixture {
    service: LocalService,
    _dir: tempfile::TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let admission = fixture::without_accounts();
        Self::with(ferry_apiserver::ServerOptions { admission, ..Default::default() }).await
    }

    async fn with(settings: ferry_apiserver::ServerOptions) -> Self {
        let (service, dir) = fixture::server_with(settings).await;
        Self { service, _dir: dir }
    }

    async fn raw(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        accept: &str,
        body: Bytes,
    ) -> http::Response<ferry_apiserver::Body> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .header("accept", accept)
            .body(Full::new(body))
            .unwrap();
        self.service.clone().oneshot(request).await.unwrap()
    }

    async fn send(&self, method: Method, path: &str, content_type: &str, body: Value) -> (u16, Value) {
        let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let response = self.raw(method, path, content_type, "application/json", bytes).await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.send(Method::GET, path, "", Value::Null).await
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.send(Method::POST, path, "application/json", body).await
    }

    async fn patch(&self, path: &str, kind: &str, body: Value) -> (u16, Value) {
        self.send(Method::PATCH, path, &format!("application/{kind}+json"), body).await
    }

    async fn delete(&self, path: &str, body: Value) -> (u16, Value) {
        self.send(Method::DELETE, path, "application/json", body).await
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}})
}

#[tokio::test]
async fn every_resource_is_created_read_changed_and_deleted() {
    let served = ferry_apiserver::served::ApiResourceConfig::from_runtime_config([("api/all", "true")]).unwrap();
    let admission = fixture::without_accounts();
    let server = Fixture::with(ferry_apiserver::ServerOptions { served, admission, ..Default::default() }).await;
    let mut seen = 0;
    let stored = |r: &&api::schema::Resource| r.verbs.contains(&"delete") && !minimal::CERTIFIED.contains(&r.kind);
    for resource in api::schema::schema().resources().iter().filter(stored) {
        let group = match resource.group {
            "" => format!("/api/{}", resource.version),
            group => format!("/apis/{group}/{}", resource.version),
        };
        let scope = if resource.is_namespaced() { "/namespaces/default" } else { "" };
        let path = format!("{group}{scope}/{}", resource.name);
        let object = minimal::object(resource.kind, &resource.api_version(), &format!("x-{}", resource.version));
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let (status, created) = server.post(&path, object.clone()).await;
        assert_eq!(status, 201, "{path}: {created}");
        let item = format!("{path}/{name}");
        let (status, read) = server.get(&item).await;
        // The server itself says in definitions whether they are served, and lets them go when their instances are gone.
        let is_followed = resource.name == "customresourcedefinitions";
        let created = if is_followed { read.clone() } else { created };
        assert_eq!((status, &read), (200, &created), "{item}");
        let (status, list) = server.get(&format!("{path}?labelSelector=!a")).await;
        assert_eq!((status, list["kind"].as_str()), (200, Some(&*format!("{}List", resource.kind))));
        let mut listed = created.clone();
        listed.as_object_mut().unwrap().retain(|name, _| name != "kind" && name != "apiVersion");
        assert!(list["items"].as_array().unwrap().contains(&listed), "{list}");
        let mut changed = created.clone();
        changed["metadata"]["labels"] = json!({"u": "1"});
        let (status, updated) = server.send(Method::PUT, &item, "application/json", changed).await;
        assert_eq!((status, &updated["metadata"]["labels"]["u"]), (200, &json!("1")), "{updated}");
        for kind in ["merge-patch", "strategic-merge-patch"] {
            let (status, patched) = server.patch(&item, kind, json!({"metadata": {"annotations": {"k": kind}}})).await;
            assert_eq!((status, &patched["metadata"]["annotations"]["k"]), (200, &json!(kind)), "{patched}");
        }
        let operation = json!([{"op": "replace", "path": "/metadata/labels/u", "value": "2"}]);
        let (status, patched) = server.patch(&item, "json-patch", operation).await;
        assert_eq!((status, &patched["metadata"]["labels"]["u"]), (200, &json!("2")), "{patched}");
        let (status, answer) = server.delete(&item, json!({"propagationPolicy": "Background"})).await;
        assert_eq!(status, 200, "{answer}");
        let waits = resource.name == "namespaces" || created["metadata"].get("finalizers").is_some();
        let gone = if waits { 200 } else { 404 };
        assert!(is_followed || server.get(&item).await.0 == gone, "{item}");
        seen += 1;
    }
    assert!(seen > 80, "only {seen} resources have been tried");
}

#[tokio::test]
async fn writes_conflict_as_upstream_says() {
    let server = Fixture::new().await;
    let map = json!({"metadata": {"name": "a"}, "data": {"x": "1"}});
    let (_, created) = server.post(MAPS, map.clone()).await;
    let (status, error) = server.post(MAPS, map).await;
    assert_eq!((status, error["reason"].as_str()), (409, Some("AlreadyExists")));
    assert_eq!(error["message"], "configmaps \"a\" already exists");
    let path = format!("{MAPS}/a");
    let (_, first) = server.patch(&path, "merge-patch", json!({"data": {"x": "2"}})).await;
    let (status, error) = server.send(Method::PUT, &path, "application/json", created).await;
    assert_eq!((status, error["reason"].as_str()), (409, Some("Conflict")));
    let (_, same) = server.patch(&path, "merge-patch", json!({"data": {"x": "2"}})).await;
    assert_eq!(first, same, "a change that changes nothing writes nothing");
    let (status, _) = server.delete(&path, json!({"preconditions": {"uid": "other"}})).await;
    assert_eq!(status, 409);
    let (status, error) = server.get(&format!("{MAPS}/none")).await;
    assert_eq!((status, error["message"].as_str()), (404, Some("configmaps \"none\" not found")));
}

#[tokio::test]
async fn many_clients_change_one_object_without_losing_a_change() {
    let server = Arc::new(Fixture::new().await);
    server.post(MAPS, json!({"metadata": {"name": "n"}, "data": {}})).await;
    let clients: Vec<_> = (0..16)
        .map(|client| {
            let server = server.clone();
            tokio::spawn(async move {
                loop {
                    let patch = json!({"data": {format!("k{client}"): "1"}});
                    let (status, answer) = server.patch(&format!("{MAPS}/n"), "merge-patch", patch).await;
                    match status {
                        200 => break,
                        409 => continue,
                        _ => panic!("{answer}"),
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    let (_, map) = server.get(&format!("{MAPS}/n")).await;
    assert_eq!(map["data"].as_object().unwrap().len(), 16);
}

#[tokio::test]
async fn bad_input_is_refused_and_changes_nothing() {
    let server = Fixture::new().await;
    let cases = [
        (MAPS, json!({"metadata": {"name": "Bad_Name"}}), 422),
        (MAPS, json!({"metadata": {"name": "a", "labels": "x"}}), 400),
        (MAPS, json!({"kind": "Nope", "metadata": {"name": "a"}}), 400),
        (MAPS, json!([]), 400),
        ("/api/v1/namespaces/none/configmaps", json!({"metadata": {"name": "a"}}), 404),
        (DEPLOYMENTS, json!({"metadata": {"name": "a"}, "spec": {}}), 422),
        ("/api/v1/nope", json!({}), 404),
    ];
    for (path, body, want) in cases {
        let (status, answer) = server.post(path, body.clone()).await;
        assert_eq!((status, answer["kind"].as_str()), (want, Some("Status")), "{path} {body}: {answer}");
    }
    let strict =
        server.post(&format!("{MAPS}?fieldValidation=Strict"), json!({"metadata": {"name": "a"}, "zzz": 1})).await;
    let message =
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"zzz\"";
    assert_eq!((strict.0, strict.1["message"].as_str()), (400, Some(message)));
    let apply = server.send(Method::PATCH, &format!("{MAPS}/a"), "application/apply-patch+cbor", json!({})).await;
    assert_eq!(apply.0, 415);
    let big = server.raw(Method::POST, MAPS, "application/json", "", vec![b' '; 4 << 20].into()).await;
    assert_eq!(big.status().as_u16(), 413);
    assert_eq!(server.get(MAPS).await.1["items"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn configurations_are_applied() {
    let server = Fixture::new().await;
    let kind = "application/apply-patch+yaml";
    let apply = async |path: &str, text: &str| {
        let response = server.raw(Method::PATCH, path, kind, "application/json", text.to_owned().into()).await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice::<Value>(&bytes).unwrap())
    };
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata: {k: v}\n";
    let (path, mine) = (format!("{MAPS}/a"), format!("{MAPS}/a?fieldManager=me"));
    let (status, answer) = apply(&path, yaml).await;
    let message =
        r#"PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch"#;
    assert_eq!((status, answer["message"].as_str()), (422, Some(message)));
    let (status, created) = apply(&mine, yaml).await;
    assert_eq!((status, &created["data"]["k"]), (201, &json!("v")), "{created}");
    let (status, again) = apply(&mine, yaml).await;
    assert_eq!((status, &again), (200, &created), "nothing is written when nothing changes");
    let (status, answer) = apply(&format!("{MAPS}/a?fieldManager=you"), &yaml.replace("k: v", "k: w")).await;
    let message = "Apply failed with 1 conflict: conflict with \"me\": .data.k";
    assert_eq!((status, answer["message"].as_str()), (409, Some(message)));
    let (status, forced) = apply(&format!("{MAPS}/a?fieldManager=you&force=true"), &yaml.replace("k: v", "k: w")).await;
    assert_eq!((status, &forced["data"]["k"]), (200, &json!("w")));
    let (status, left) = apply(&mine, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n").await;
    assert_eq!((status, left["metadata"]["managedFields"].as_array().unwrap().len()), (200, 1), "{left}");
    assert_eq!(apply(&mine, "[1, 2]").await.0, 400);
    assert_eq!(apply(&mine, &yaml.replace("data", "dta")).await.0, 500);
    let other = apply(&format!("{MAPS}/b?fieldManager=me"), yaml).await;
    assert_eq!((other.0, other.1["reason"].as_str()), (400, Some("BadRequest")));

    server.post(DEPLOYMENTS, deployment("d")).await;
    let scale = "apiVersion: autoscaling/v1\nkind: Scale\nmetadata: {name: d}\nspec: {replicas: 3}\n";
    let (status, scaled) = apply(&format!("{DEPLOYMENTS}/d/scale?fieldManager=me&force=true"), scale).await;
    assert_eq!((status, &scaled["spec"]["replicas"]), (200, &json!(3)), "{scaled}");
    let owner = server.get(&format!("{DEPLOYMENTS}/d")).await.1["metadata"]["managedFields"][0].clone();
    assert_eq!((&owner["manager"], &owner["subresource"]), (&json!("me"), &json!("scale")));
    assert_eq!(owner["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    let status = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nstatus: {replicas: 2}\n";
    let (code, answer) = apply(&format!("{DEPLOYMENTS}/d/status?fieldManager=me"), status).await;
    assert_eq!((code, &answer["status"]["replicas"]), (200, &json!(2)), "{answer}");
    assert_eq!(apply(&format!("{DEPLOYMENTS}/none/status?fieldManager=me"), status).await.0, 404);
}

#[tokio::test]
async fn status_scale_and_generation_are_separate() {
    let server = Fixture::new().await;
    let (_, created) = server.post(DEPLOYMENTS, deployment("d")).await;
    assert_eq!(created["metadata"]["generation"], 1);
    let path = format!("{DEPLOYMENTS}/d");
    let change = json!({"spec": {"replicas": 7}, "status": {"replicas": 5}});
    let (_, status) = server.patch(&format!("{path}/status"), "merge-patch", change).await;
    assert_eq!((&status["spec"]["replicas"], &status["status"]["replicas"]), (&json!(1), &json!(5)));
    assert_eq!(status["metadata"]["generation"], 1);
    let (_, scale) = server.get(&format!("{path}/scale")).await;
    assert_eq!((&scale["kind"], &scale["status"]["selector"]), (&json!("Scale"), &json!("app=d")));
    let (code, scale) = server.patch(&format!("{path}/scale"), "merge-patch", json!({"spec": {"replicas": 3}})).await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(3)), "{scale}");
    let (_, read) = server.get(&path).await;
    assert_eq!((&read["spec"]["replicas"], &read["metadata"]["generation"]), (&json!(3), &json!(2)));
    assert_eq!(read["status"]["replicas"], 5);
}

#[tokio::test]
async fn a_pod_is_bound_once() {
    let server = Fixture::new().await;
    let pods = "/api/v1/namespaces/default/pods";
    server.post(pods, minimal::object("Pod", "v1", "p")).await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    let (status, answer) = server.post(&format!("{pods}/p/binding"), binding.clone()).await;
    assert_eq!((status, answer["status"].as_str()), (201, Some("Success")), "{answer}");
    let (_, pod) = server.get(&format!("{pods}/p")).await;
    assert_eq!(
        (&pod["spec"]["nodeName"], &pod["status"]["conditions"][0]["type"]),
        (&json!("n1"), &json!("PodScheduled"))
    );
    assert_eq!(server.post(&format!("{pods}/p/binding"), binding).await.0, 409);
    let (status, pod) = server.delete(&format!("{pods}/p"), Value::Null).await;
    assert_eq!((status, &pod["metadata"]["deletionGracePeriodSeconds"]), (200, &json!(30)));
    assert_eq!(server.get(&format!("{pods}/p")).await.0, 200, "it waits for its node");
    server.delete(&format!("{pods}/p"), json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(server.get(&format!("{pods}/p")).await.0, 404);
}

#[tokio::test]
async fn finalizers_and_namespaces_hold_deletion() {
    let server = Fixture::new().await;
    server.post(MAPS, json!({"metadata": {"name": "f", "finalizers": ["e.com/f"]}})).await;
    let path = format!("{MAPS}/f");
    let (_, waiting) = server.delete(&path, Value::Null).await;
    assert!(waiting["metadata"]["deletionTimestamp"].is_string());
    server.patch(&path, "merge-patch", json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(server.get(&path).await.0, 404);

    server.post("/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    let (_, namespace) = server.delete("/api/v1/namespaces/n", Value::Null).await;
    assert_eq!(namespace["status"]["phase"], "Terminating");
    let (status, _) = server.post("/api/v1/namespaces/n/configmaps", json!({"metadata": {"name": "a"}})).await;
    assert_eq!(status, 403);
    let mut finalized = namespace.clone();
    finalized["spec"]["finalizers"] = json!([]);
    server.send(Method::PUT, "/api/v1/namespaces/n/finalize", "application/json", finalized).await;
    assert_eq!(server.get("/api/v1/namespaces/n").await.0, 404);
    assert_eq!(server.delete("/api/v1/namespaces/default", Value::Null).await.0, 403);
}

#[tokio::test]
async fn lists_are_paged_consistently() {
    let server = Fixture::new().await;
    for at in 0..10 {
        server
            .post(MAPS, json!({"metadata": {"name": format!("m{at}"), "labels": {"even": (at % 2 == 0).to_string()}}}))
            .await;
    }
    let (_, first) = server.get(&format!("{MAPS}?limit=4")).await;
    assert_eq!((first["items"].as_array().unwrap().len(), &first["metadata"]["remainingItemCount"]), (4, &json!(6)));
    server.delete(&format!("{MAPS}/m5"), Value::Null).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = server.get(&format!("{MAPS}?continue={token}")).await;
    let names: Vec<&str> =
        rest["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["m4", "m5", "m6", "m7", "m8", "m9"], "as of the first page");
    let (_, even) = server.get(&format!("{MAPS}?labelSelector=even%3Dtrue&limit=3")).await;
    assert_eq!(even["items"].as_array().unwrap().len(), 3);
    assert!(even["metadata"]["continue"].is_string());
    assert_eq!(server.get(&format!("{MAPS}?continue=nonsense")).await.0, 400);
}

/// Reads watch events until the stream has given `count` of them.
async fn events(response: http::Response<ferry_apiserver::Body>, count: usize) -> Vec<(String, String)> {
    let mut body = response.into_body();
    let (mut text, mut out) = (String::new(), Vec::new());
    while out.len() < count {
        let frame = body.frame().await.expect("the watch goes on").unwrap();
        text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        while let Some((line, rest)) = text.split_once('\n') {
            let event: Value = serde_json::from_str(line).unwrap();
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
            out.push((event["type"].as_str().unwrap().to_owned(), name.to_owned()));
            text = rest.to_owned();
        }
    }
    out
}

#[tokio::test]
async fn watches_show_what_a_selector_sees() {
    let server = Fixture::new().await;
    server.post(MAPS, json!({"metadata": {"name": "old", "labels": {"on": "1"}}})).await;
    let query =
        "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&labelSelector=on";
    let watch = server.raw(Method::GET, &format!("{MAPS}?{query}"), "", "application/json", Bytes::new()).await;
    server.post(MAPS, json!({"metadata": {"name": "off"}})).await;
    server.patch(&format!("{MAPS}/off"), "merge-patch", json!({"metadata": {"labels": {"on": "1"}}})).await;
    server.patch(&format!("{MAPS}/off"), "merge-patch", json!({"data": {"x": "1"}})).await;
    server.patch(&format!("{MAPS}/off"), "merge-patch", json!({"metadata": {"labels": null}})).await;
    server.delete(&format!("{MAPS}/old"), Value::Null).await;
    let want = [
        ("ADDED", "old"),
        ("BOOKMARK", ""),
        ("ADDED", "off"),
        ("MODIFIED", "off"),
        ("DELETED", "off"),
        ("DELETED", "old"),
    ];
    let got = events(watch, want.len()).await;
    assert_eq!(got.iter().map(|(kind, name)| (kind.as_str(), name.as_str())).collect::<Vec<_>>(), want);
    // What exists cannot be shown as of a revision that is not there yet; what comes after it can be waited for.
    let future = format!("{MAPS}?watch=1&timeoutSeconds=1&resourceVersion=99999");
    let initial = format!("{future}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    let refused = server.raw(Method::GET, &initial, "", "", Bytes::new()).await;
    assert_eq!(events(refused, 1).await[0].0, "ERROR");
    let quiet = server.raw(Method::GET, &future, "", "", Bytes::new()).await;
    assert_eq!(quiet.into_body().collect().await.unwrap().to_bytes(), "");
}

#[tokio::test]
async fn tables_and_metadata_are_served_on_request() {
    let server = Fixture::new().await;
    server.post(DEPLOYMENTS, deployment("d")).await;
    let read = |accept: &'static str| async {
        let response = server.raw(Method::GET, DEPLOYMENTS, "", accept, Bytes::new()).await;
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice::<Value>(&bytes).unwrap()
    };
    let table = read("application/json;as=Table;v=v1;g=meta.k8s.io,application/json").await;
    assert_eq!((&table["kind"], &table["rows"][0]["cells"][1]), (&json!("Table"), &json!("0/1")));
    let partial = read("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").await;
    assert_eq!(partial["items"][0]["kind"], "PartialObjectMetadata");
    assert_eq!(partial["items"][0].get("spec"), None);
    assert_eq!(read("application/cbor").await["code"], 406);
    let yaml = server.raw(Method::GET, DEPLOYMENTS, "", "application/yaml", Bytes::new()).await;
    assert_eq!(yaml.headers()["content-type"], "application/yaml");
    let bytes = yaml.into_body().collect().await.unwrap().to_bytes();
    assert!(bytes.starts_with(b"apiVersion: apps/v1\nitems:\n- metadata:\n"), "{}", String::from_utf8_lossy(&bytes));
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[tokio::test]
async fn protobuf_goes_in_and_comes_out() {
    let server = Fixture::new().await;
    let resource = api::schema::schema().resource("apps", "v1", "deployments").unwrap();
    let sent = api::protobuf::encode_object(resource, &deployment("d"));
    let accept = format!("{PROTOBUF},application/json");
    let response = server.raw(Method::POST, DEPLOYMENTS, PROTOBUF, &accept, sent.into()).await;
    assert_eq!(response.status().as_u16(), 201);
    assert_eq!(response.headers()["content-type"], PROTOBUF);
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let created = api::protobuf::decode_object(&bytes).unwrap();
    let (_, read) = server.get(&format!("{DEPLOYMENTS}/d")).await;
    assert_eq!(created["metadata"]["uid"], read["metadata"]["uid"]);
    assert_eq!((&created["spec"], &created["kind"]), (&read["spec"], &read["kind"]));

    let list = server.raw(Method::GET, DEPLOYMENTS, "", &accept, Bytes::new()).await;
    let list = api::protobuf::decode_object(&list.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!((&list["kind"], list["items"].as_array().map(Vec::len)), (&json!("DeploymentList"), Some(1)));

    let watch = server.raw(Method::GET, &format!("{DEPLOYMENTS}?watch=1"), "", &accept, Bytes::new()).await;
    let frame = watch.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
    let (kind, object) = api::protobuf::decode_watch_event(&frame[4..]).unwrap();
    assert_eq!((kind.as_str(), &object["metadata"]["name"]), ("ADDED", &json!("d")));

    let garbage = server.raw(Method::POST, DEPLOYMENTS, PROTOBUF, "", "k8s\0garbage".into()).await;
    assert_eq!(garbage.status().as_u16(), 400);
    let options = server.raw(Method::DELETE, &format!("{DEPLOYMENTS}/d"), PROTOBUF, "", delete_options().into()).await;
    assert_eq!(options.status().as_u16(), 200);
    let (_, waiting) = server.get(&format!("{DEPLOYMENTS}/d")).await;
    assert_eq!(waiting["metadata"]["finalizers"], json!(["foregroundDeletion"]));
}

/// Typed clients send options in the version of the group that they delete from.
fn delete_options() -> Vec<u8> {
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"});
    let message = api::protobuf::encode_declared(&options).unwrap_or_else(|| {
        let ty = api::schema::schema().type_named("meta/v1.DeleteOptions").unwrap();
        api::protobuf::encode_as(ty, &options.take())
    });
    assert!(message.starts_with(b"k8s\0"), "options travel in an envelope");
    message
}

#[tokio::test]
async fn malformed_patches_have_upstreams_errors() {
    let server = Fixture::new().await;
    server.post(MAPS, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    let path = format!("{MAPS}/a");
    let list = "json: cannot unmarshal array into Go value of type map[string]interface {}";
    let (code, status) = server.patch(&path, "strategic-merge-patch", json!([])).await;
    assert_eq!((code, status["message"].as_str()), (400, Some(list)));
    let (code, status) = server.patch(&path, "merge-patch", json!([])).await;
    assert_eq!((code, status["message"].as_str()), (400, Some(&*format!("error decoding patch: {list}"))));
    let wrong = json!({"metadata": {"labels": "x"}});
    let (code, status) = server.patch(&path, "strategic-merge-patch", wrong.clone()).await;
    let message =
        " \"\" is invalid: patch: Invalid value: \"map[metadata:map[labels:x]]\": cannot restore map from string";
    assert_eq!((code, status["message"].as_str()), (422, Some(message)));
    let (code, status) = server.patch(&path, "merge-patch", wrong).await;
    let message = status["message"].as_str().unwrap();
    assert_eq!(code, 422);
    assert!(message.starts_with(" \"\" is invalid: patch: Invalid value: \"{"), "{message}");
    assert!(message.contains("json: cannot unmarshal string into Go struct field "), "{message}");
}

#[tokio::test]
async fn scale_as_table_has_scale_columns() {
    let server = Fixture::new().await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    server.post(DEPLOYMENTS, json!({"metadata": {"name": "d"}, "spec": spec})).await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let path = format!("{DEPLOYMENTS}/d/scale");
    let response = server.raw(Method::GET, &path, "", accept, Default::default()).await;
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let table: Value = serde_json::from_slice(&bytes).unwrap();
    let columns = table["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap());
    assert_eq!(columns.collect::<Vec<_>>(), ["Name", "Desired", "Available", "Age"], "{table}");
    assert_eq!(table["rows"][0]["cells"][0], "d");
    assert_eq!(table["rows"][0]["cells"][1], 2);
}
