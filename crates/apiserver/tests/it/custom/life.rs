//! Definitions come, change and go; what is served follows at once.

use futures::StreamExt;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::custom::world::{APPLY, BOATS, BOATS_DEFINITION, DEFINITIONS, World, boat, boats, definition, version};

const SIZE: fn() -> Value = || json!({"type": "object", "properties": {"size": {"type": "integer"}}});

#[tokio::test]
async fn a_definition_is_served_when_its_creation_is_answered() {
    let world = World::new().await;
    assert_eq!(world.get(BOATS).await.0, 404);
    world.create(DEFINITIONS, boats(SIZE())).await;
    world.create(BOATS, boat("b", json!({"size": 3}))).await;
    let (_, list) = world.get(BOATS).await;
    assert_eq!((&list["kind"], &list["items"][0]["spec"]["size"]), (&json!("BoatList"), &json!(3)));
    let (_, definition) = world.get(BOATS_DEFINITION).await;
    let names = definition["status"]["conditions"].as_array().unwrap();
    assert!(names.iter().all(|condition| condition["status"] == "True"), "{definition}");
    let service = "/apis/apiregistration.k8s.io/v1/apiservices/v1.harbour.example.io";
    world.until(service, |code, service| code == 200 && service["spec"]["groupPriorityMinimum"] == 1000).await;
}

#[tokio::test]
async fn a_service_that_was_registered_by_hand_outlives_the_definition() {
    let world = World::new().await;
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let by_hand = json!({"metadata": {"name": "v1.harbour.example.io"}, "spec": {"group": "harbour.example.io",
        "version": "v1", "groupPriorityMinimum": 5, "versionPriority": 5}});
    world.create(services, by_hand).await;
    let versions = json!([version("v1", true, SIZE()), version("v2", false, SIZE())]);
    world.create(DEFINITIONS, definition("boats", "Boat", versions)).await;
    let own = format!("{services}/v2.harbour.example.io");
    world.until(&own, |code, _| code == 200).await;
    assert_eq!(world.delete(BOATS_DEFINITION).await.0, 200);
    world.until(&own, |code, _| code == 404).await;
    let (code, service) = world.get(&format!("{services}/v1.harbour.example.io")).await;
    assert_eq!((code, &service["spec"]["versionPriority"]), (200, &json!(5)));
}

#[tokio::test]
async fn objects_and_definitions_outlive_the_server() {
    let world = World::new().await;
    world.create(DEFINITIONS, boats(SIZE())).await;
    world.create(BOATS, boat("b", json!({"size": 3}))).await;
    let world = world.restarted().await;
    assert_eq!(world.get(&format!("{BOATS}/b")).await.1["spec"]["size"], 3);
}

#[tokio::test]
async fn a_changed_schema_takes_effect_at_once_also_on_what_is_stored() {
    let world = World::new().await;
    world.create(DEFINITIONS, boats(SIZE())).await;
    world.create(BOATS, boat("b", json!({"size": 3}))).await;
    let mut watch = world.watch(&format!("{BOATS}?watch=1")).await.into_data_stream();
    let changed = json!([version(
        "v1",
        true,
        json!({"type": "object", "properties":
        {"size": {"type": "integer"}, "berth": {"type": "string", "default": "quay"}}})
    )]);
    let (code, answer) = world.patch(BOATS_DEFINITION, &json!({"spec": {"versions": changed}})).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(world.get(&format!("{BOATS}/b")).await.1["spec"], json!({"size": 3, "berth": "quay"}));
    assert!(watch.next().await.is_none(), "who watches begins anew");
    let (_, list) = world.get("/openapi/v3/apis/harbour.example.io/v1").await;
    let boat = &list["components"]["schemas"]["io.example.harbour.v1.Boat"];
    assert_eq!(boat["properties"]["spec"]["properties"]["berth"]["default"], "quay");
    let (_, whole) = world.get("/openapi/v2").await;
    assert!(whole["definitions"]["io.example.harbour.v1.BoatList"].is_object());
    assert!(whole["paths"]["/apis/harbour.example.io/v1/namespaces/{namespace}/boats/{name}"]["patch"].is_object());
}

#[tokio::test]
async fn a_definition_that_goes_takes_its_instances_along_and_waits_for_them() {
    let world = World::new().await;
    world.create(DEFINITIONS, boats(SIZE())).await;
    let mut held = boat("held", json!({"size": 1}));
    held["metadata"]["finalizers"] = json!(["example.io/hold"]);
    world.create(BOATS, held).await;
    world.create(BOATS, boat("free", json!({"size": 1}))).await;
    let (code, deleted) = world.delete(BOATS_DEFINITION).await;
    assert_eq!((code, &deleted["status"]["conditions"][2]["reason"]), (200, &json!("InstanceDeletionPending")));
    world.until(&format!("{BOATS}/free"), |code, _| code == 404).await;
    let (code, refused) = world.post(BOATS, &boat("late", json!({"size": 1}))).await;
    let why = "boats.harbour.example.io \"late\" is forbidden: create not allowed while custom resource definition is terminating";
    assert_eq!((code, refused["message"].as_str()), (403, Some(why)));
    assert_eq!(world.get(BOATS_DEFINITION).await.0, 200);
    world.patch(&format!("{BOATS}/held"), &json!({"metadata": {"finalizers": null}})).await;
    world.until(BOATS_DEFINITION, |code, _| code == 404).await;
    world.until(BOATS, |code, _| code == 404).await;
    world.create(DEFINITIONS, boats(SIZE())).await;
    assert_eq!(world.get(BOATS).await.1["items"], json!([]), "nothing of before is left");
}

#[tokio::test]
async fn names_that_become_free_are_given_to_who_waits_for_them() {
    let world = World::new().await;
    world.create(DEFINITIONS, boats(SIZE())).await;
    let other = definition("ships", "Boat", json!([version("v1", true, SIZE())]));
    world.create(DEFINITIONS, other).await;
    let ships = format!("{DEFINITIONS}/ships.harbour.example.io");
    let (_, waiting) = world.get(&ships).await;
    assert_eq!(waiting["status"]["conditions"][0]["status"], "False", "{waiting}");
    assert_eq!(world.get("/apis/harbour.example.io/v1/ships").await.0, 404);
    world.delete(BOATS_DEFINITION).await;
    world.until("/apis/harbour.example.io/v1/ships", |code, _| code == 200).await;
}

#[tokio::test]
async fn apply_and_tables_know_the_schema() {
    let world = World::new().await;
    let mut definition = boats(json!({"type": "object", "properties": {"sails": {"type": "array",
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object",
            "required": ["name"], "properties": {"name": {"type": "string"}, "area": {"type": "integer"}}}}}}));
    definition["spec"]["versions"][0]["additionalPrinterColumns"] =
        json!([{"name": "First", "type": "string", "jsonPath": ".spec.sails[0].name"}]);
    world.create(DEFINITIONS, definition).await;
    let sail = |name: &str, area: i64| boat("b", json!({"sails": [{"name": name, "area": area}]}));
    let path = |manager: &str| format!("{BOATS}/b?fieldManager={manager}");
    assert_eq!(world.send("PATCH", &path("a"), APPLY, &sail("jib", 1)).await.0, 201);
    assert_eq!(world.send("PATCH", &path("b"), APPLY, &sail("main", 2)).await.0, 200);
    let (code, refused) = world.send("PATCH", &path("b"), APPLY, &sail("jib", 3)).await;
    let why = "Apply failed with 1 conflict: conflict with \"a\": .spec.sails[name=\"jib\"].area";
    assert_eq!((code, refused["message"].as_str()), (409, Some(why)));
    let (_, both) = world.get(&format!("{BOATS}/b")).await;
    assert_eq!(both["spec"]["sails"].as_array().unwrap().len(), 2);
}
