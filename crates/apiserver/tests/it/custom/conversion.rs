//! Versions: without conversion only names differ; a webhook makes one form of another, and what it breaks is told.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::{
    custom::world::{APPLY, BOATS, DEFINITIONS, World, boat, definition, version},
    fixture::authority::Authority,
};

const OLD: &str = "/apis/harbour.example.io/v1beta1/namespaces/default/boats";

/// Makes `length` of `size` and back.
struct Converter {
    port: u16,
    bundle: String,
    asked: Arc<AtomicUsize>,
    broken: Arc<AtomicBool>,
}

impl Converter {
    async fn start() -> Self {
        let authority = Authority::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (asked, broken) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let tls = TlsAcceptor::from(authority.server());
        let state = (asked.clone(), broken.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, state) = (tls.clone(), state.clone());
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = service_fn(move |request: Request<Incoming>| {
                        let (asked, broken) = state.clone();
                        async move {
                            asked.fetch_add(1, Ordering::Relaxed);
                            let body = request.into_body().collect().await?.to_bytes();
                            let review: Value = serde_json::from_slice(&body).unwrap();
                            let answer = answer(&review, broken.load(Ordering::Relaxed));
                            Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from(answer.to_string()))))
                        }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { port, bundle: BASE64_STANDARD.encode(authority.pem()), asked, broken }
    }

    fn definition(&self) -> Value {
        let spec = |field: &str| json!({"type": "object", "properties": {field: {"type": "integer"}}});
        let mut definition = definition(
            "boats",
            "Boat",
            json!([version("v1", true, spec("size")), version("v1beta1", false, spec("length"))]),
        );
        definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {"url": format!("https://127.0.0.1:{}/convert", self.port), "caBundle": self.bundle}}});
        definition
    }
}

fn answer(review: &Value, broken: bool) -> Value {
    let request = &review["request"];
    let wanted = request["desiredAPIVersion"].as_str().unwrap();
    let (from, to) = if wanted.ends_with("v1beta1") { ("size", "length") } else { ("length", "size") };
    let convert = |object: &Value| {
        let mut object = object.clone();
        object["apiVersion"] = wanted.into();
        object["metadata"]["labels"] = json!({"is": if object["spec"][from] == 3 { "small" } else { "large" }});
        object["spec"] = json!({to: object["spec"][from]});
        if broken {
            object["metadata"]["name"] = "other".into();
        }
        object
    };
    let objects: Vec<Value> = request["objects"].as_array().unwrap().iter().map(convert).collect();
    json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response":
        {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}})
}

fn old_boat(name: &str, length: i64) -> Value {
    let mut old = boat(name, json!({"length": length}));
    old["apiVersion"] = "harbour.example.io/v1beta1".into();
    old
}

#[tokio::test]
async fn a_webhook_converts_what_is_written_read_listed_and_watched() {
    let (world, converter) = (World::new().await, Converter::start().await);
    world.create(DEFINITIONS, converter.definition()).await;
    let mut watch = world.watch(&format!("{OLD}?watch=1")).await.into_data_stream();
    let created = world.create(OLD, old_boat("a", 3)).await;
    assert_eq!(
        (&created["apiVersion"], &created["spec"]),
        (&json!("harbour.example.io/v1beta1"), &json!({"length": 3}))
    );
    world.create(BOATS, boat("b", json!({"size": 4}))).await;
    assert_eq!(world.get(&format!("{BOATS}/a")).await.1["spec"], json!({"size": 3}));
    assert_eq!(world.get(&format!("{OLD}/b")).await.1["spec"], json!({"length": 4}));
    let before = converter.asked.load(Ordering::Relaxed);
    let (_, list) = world.get(OLD).await;
    let lengths: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|item| &item["spec"]["length"]).collect();
    assert_eq!(lengths, [&json!(3), &json!(4)]);
    assert_eq!(converter.asked.load(Ordering::Relaxed), before + 1, "a list is converted at once");
    let (code, changed) = world.patch(&format!("{OLD}/b"), &json!({"spec": {"length": 5}})).await;
    assert_eq!((code, &changed["spec"]), (200, &json!({"length": 5})), "{changed}");
    let mut seen = String::new();
    while seen.matches("\"type\":").count() < 3 {
        seen += &String::from_utf8_lossy(&watch.next().await.unwrap().unwrap());
    }
    let lengths: Vec<Value> = seen.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect();
    let lengths: Vec<&Value> = lengths.iter().map(|event| &event["object"]["spec"]).collect();
    assert_eq!(lengths, [&json!({"length": 3}), &json!({"length": 4}), &json!({"length": 5})]);
}

#[tokio::test]
async fn selectors_see_what_the_webhook_made() {
    let (world, converter) = (World::new().await, Converter::start().await);
    let mut definition = converter.definition();
    for (at, field) in [".spec.size", ".spec.length"].iter().enumerate() {
        definition["spec"]["versions"][at]["selectableFields"] = json!([{"jsonPath": field}]);
    }
    world.create(DEFINITIONS, definition).await;
    let selected = "fieldSelector=spec.length%3D4&labelSelector=is%3Dlarge";
    let mut watch = world.watch(&format!("{OLD}?watch=1&{selected}")).await.into_data_stream();
    for (name, size) in [("a", 3), ("b", 4), ("c", 4), ("d", 4)] {
        world.create(BOATS, boat(name, json!({"size": size}))).await;
    }
    let names = |list: &Value| -> Vec<String> {
        let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
        list["items"].as_array().unwrap().iter().map(name).collect()
    };
    let (_, list) = world.get(&format!("{OLD}?{selected}")).await;
    assert_eq!(names(&list), ["b", "c", "d"]);
    assert_eq!(names(&world.get(&format!("{OLD}?labelSelector=is%3Dsmall")).await.1), ["a"]);
    let (_, first) = world.get(&format!("{OLD}?{selected}&limit=2")).await;
    let next = first["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = world.get(&format!("{OLD}?{selected}&limit=2&continue={next}")).await;
    assert_eq!((names(&first), names(&rest)), (vec!["b".to_owned(), "c".to_owned()], vec!["d".to_owned()]));
    assert_eq!(rest["metadata"]["continue"], "");

    world.patch(&format!("{BOATS}/b"), &json!({"spec": {"size": 3}})).await;
    let mut seen = String::new();
    while seen.matches("\"type\":").count() < 4 {
        seen += &String::from_utf8_lossy(&watch.next().await.unwrap().unwrap());
    }
    let event = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        format!("{} {}", event["type"], event["object"]["metadata"]["name"]).replace('"', "")
    };
    assert_eq!(seen.lines().map(event).collect::<Vec<_>>(), ["ADDED b", "ADDED c", "ADDED d", "DELETED b"]);
}

#[tokio::test]
async fn what_a_webhook_breaks_is_told_and_the_stored_version_needs_none() {
    let (world, converter) = (World::new().await, Converter::start().await);
    world.create(DEFINITIONS, converter.definition()).await;
    world.create(BOATS, boat("a", json!({"size": 1}))).await;
    converter.broken.store(true, Ordering::Relaxed);
    let (code, answer) = world.get(&format!("{OLD}/a")).await;
    let why = "conversion webhook for harbour.example.io/v1, Kind=Boat returned invalid object: must have the same name: \
        a != other";
    assert_eq!((code, answer["message"].as_str(), answer.get("reason")), (500, Some(why), None));
    let (code, answer) = world.send("POST", OLD, "application/json", &old_boat("b", 1)).await;
    let why = "conversion webhook for harbour.example.io/v1beta1, Kind=Boat returned invalid object: must have the same \
        name: b != other";
    assert_eq!((code, answer["message"].as_str(), answer.get("reason")), (500, Some(why), None));
    assert_eq!(world.get(&format!("{BOATS}/a")).await.0, 200);
}

/// Applies to a boat; `what` is its path and who applies.
async fn applied(world: &World, what: &str, boat: &Value) -> (u16, Value) {
    world.send("PATCH", what, APPLY, boat).await
}

#[tokio::test]
async fn who_owns_a_field_owns_it_in_every_version() {
    let (world, converter) = (World::new().await, Converter::start().await);
    world.create(DEFINITIONS, converter.definition()).await;
    let alice = format!("{OLD}/a?fieldManager=alice");
    let bob = format!("{BOATS}/a?fieldManager=bob");
    assert_eq!(applied(&world, &alice, &old_boat("a", 3)).await.0, 201);
    assert_eq!(applied(&world, &bob, &boat("a", json!({"size": 3}))).await.0, 200, "both may want the same");

    let (code, refused) = applied(&world, &bob, &boat("a", json!({"size": 4}))).await;
    let why = "Apply failed with 1 conflict: conflict with \"alice\": .spec.length";
    assert_eq!((code, refused["message"].as_str()), (409, Some(why)));
    let (code, taken) = applied(&world, &format!("{bob}&force=true"), &boat("a", json!({"size": 4}))).await;
    assert_eq!((code, owners(&taken)), (200, vec!["bob v1 size".to_owned()]));

    let (code, changed) = world.patch(&format!("{OLD}/a?fieldManager=carol"), &json!({"spec": {"length": 5}})).await;
    assert_eq!((code, owners(&changed)), (200, vec!["carol v1beta1 length".to_owned()]));
    let (code, refused) = applied(&world, &bob, &boat("a", json!({"size": 4}))).await;
    let why = "Apply failed with 1 conflict: conflict with \"carol\" using harbour.example.io/v1beta1: .spec.length";
    assert_eq!((code, refused["message"].as_str()), (409, Some(why)));
}

#[tokio::test]
async fn what_nobody_applies_any_more_goes_in_every_version() {
    let (world, converter) = (World::new().await, Converter::start().await);
    world.create(DEFINITIONS, converter.definition()).await;
    let (alice, bob) = (format!("{BOATS}/a?fieldManager=alice"), format!("{OLD}/a?fieldManager=bob"));
    let without =
        |object: Value| json!({"apiVersion": object["apiVersion"], "kind": "Boat", "metadata": {"name": "a"}});
    applied(&world, &alice, &boat("a", json!({"size": 3}))).await;
    applied(&world, &bob, &old_boat("a", 3)).await;
    let (_, kept) = applied(&world, &alice, &without(boat("a", Value::Null))).await;
    assert_eq!(kept["spec"], json!({"size": 3}), "bob wants its length");
    let (_, gone) = applied(&world, &bob, &without(old_boat("a", 0))).await;
    assert_eq!(gone["spec"].get("length").unwrap_or(&Value::Null), &Value::Null, "{gone}");
}

/// The owned fields of a spec, as `manager version field`.
fn owners(boat: &Value) -> Vec<String> {
    let entries = boat["metadata"]["managedFields"].as_array().into_iter().flatten();
    let owned = entries.flat_map(|entry| {
        let (manager, version) = (entry["manager"].as_str().unwrap(), entry["apiVersion"].as_str().unwrap());
        let fields = entry["fieldsV1"]["f:spec"].as_object().into_iter().flat_map(|fields| fields.keys());
        let fields = fields.filter_map(|field| field.strip_prefix("f:"));
        let version = version.rsplit('/').next().unwrap_or_default();
        fields.map(|field| format!("{manager} {version} {field}")).collect::<Vec<_>>()
    });
    owned.collect()
}

#[tokio::test]
async fn a_new_stored_version_is_remembered_and_old_objects_are_read() {
    let world = World::new().await;
    let spec = || json!({"type": "object", "properties": {"size": {"type": "integer"}}});
    let versions = |first: bool| json!([version("v1", first, spec()), version("v1beta1", !first, spec())]);
    world.create(DEFINITIONS, definition("boats", "Boat", versions(false))).await;
    world.create(BOATS, boat("a", json!({"size": 1}))).await;
    let path = format!("{DEFINITIONS}/boats.harbour.example.io");
    let (code, changed) = world.patch(&path, &json!({"spec": {"versions": versions(true)}})).await;
    assert_eq!((code, &changed["status"]["storedVersions"]), (200, &json!(["v1beta1", "v1"])));
    assert_eq!(world.get(&format!("{BOATS}/a")).await.1["spec"], json!({"size": 1}));
    assert_eq!(world.get(&format!("{OLD}/a")).await.1["apiVersion"], "harbour.example.io/v1beta1");
    let gone = json!([version("v1", true, spec())]);
    let (code, refused) = world.patch(&path, &json!({"spec": {"versions": gone}})).await;
    assert!(code == 422 && refused["message"].as_str().unwrap().contains("missing from spec.versions"), "{refused}");
}

#[tokio::test]
async fn the_port_of_a_webhooks_service_is_443_unless_it_is_said() {
    let world = World::new().await;
    let versions = json!([version("v1", true, json!({"type": "object"}))]);
    let mut definition = definition("boats", "Boat", versions);
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": "harbour", "name": "converter"}}}});
    let created = world.create(DEFINITIONS, definition).await;
    let service = &created["spec"]["conversion"]["webhook"]["clientConfig"]["service"];
    assert_eq!(service, &json!({"namespace": "harbour", "name": "converter", "port": 443}));
}
