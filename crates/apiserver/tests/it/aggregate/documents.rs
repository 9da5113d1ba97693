//! Discovery and OpenAPI documents of the whole API.

use std::time::Duration;

use http::{Method, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::{
    aggregate::{
        remote::{DOCUMENT, GROUP, VERSION},
        world::{APIS, NAME, World},
    },
    wire::{Call, JSON},
};

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

async fn page(world: &World, path: &str, accept: &str) -> (String, bytes::Bytes) {
    let call = Call { method: Method::GET, path, content_type: JSON, accept, body: "".into() };
    let answer = world.admin.open(call).await.unwrap();
    assert_eq!(answer.status(), 200, "{path}");
    let tag = answer.headers().get(header::ETAG).map(|tag| tag.to_str().unwrap().to_owned()).unwrap_or_default();
    (tag, answer.into_body().collect().await.unwrap().to_bytes())
}

/// The names of the groups of a document, and what it says of the remote one.
async fn aggregated(world: &World) -> (String, Vec<String>, Value) {
    let (tag, bytes) = page(world, "/apis", V2).await;
    let list: Value = serde_json::from_slice(&bytes).unwrap();
    let items = list["items"].as_array().unwrap();
    let names = items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    let ours = items.iter().find(|item| item["metadata"]["name"] == GROUP).cloned().unwrap_or_default();
    (tag, names, ours["versions"].clone())
}

async fn groups(world: &World) -> Vec<String> {
    let list = world.admin.get("/apis").await.1;
    list["groups"].as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn discovery_tells_of_everybody() {
    let world = World::new().await;
    let (first, names, none) = aggregated(&world).await;
    let plain = groups(&world).await;
    assert_eq!((&none, plain.contains(&GROUP.to_owned())), (&Value::Null, false));
    world.service().await;
    world.slice().await;
    world.api(json!({"groupPriorityMinimum": 17350})).await;
    world.until("Passed", "all checks passed").await;

    let (tag, merged, versions) = aggregated(&world).await;
    assert_ne!(first, tag, "who has the old document is told");
    assert_eq!((&versions[0]["version"], &versions[0]["freshness"]), (&json!("v1"), &json!("Current")));
    assert_eq!(versions[0]["resources"][0]["resource"], "things");
    let with_ours = |before: &[String]| {
        let mut names = before.to_vec();
        names.insert(before.iter().position(|name| name == "certificates.k8s.io").unwrap(), GROUP.to_owned());
        names
    };
    assert_eq!(merged, with_ours(&names), "its priority says where it is; the others stay where they were");
    assert_eq!(groups(&world).await, with_ours(&plain));
    let group = world.admin.get(&format!("/apis/{GROUP}")).await.1;
    let version = json!({"groupVersion": "remote.example.com/v1", "version": "v1"});
    let want = json!({"kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": [version], "preferredVersion": version});
    assert_eq!(group, want);
    let root = world.admin.get("/").await.1;
    assert!(root["paths"].as_array().unwrap().contains(&json!(VERSION)));

    world.remote.stop();
    let patch = json!({"metadata": {"labels": {"look": "again"}}});
    world.admin.send(Method::PATCH, &format!("{APIS}/{NAME}"), "application/merge-patch+json", &patch).await;
    world.until("FailedDiscoveryCheck", "").await;
    let (_, merged, versions) = aggregated(&world).await;
    assert_eq!((merged, versions), (with_ours(&names), json!([{"version": "v1", "freshness": "Stale"}])));
    world.admin.delete(&format!("{APIS}/{NAME}")).await;
    assert_eq!((aggregated(&world).await.0, groups(&world).await), (first, plain));
}

#[tokio::test]
async fn descriptions_are_one() {
    let world = World::new().await;
    let (first, _) = page(&world, "/openapi/v2", JSON).await;
    world.service().await;
    world.slice().await;
    world.api(json!({})).await;
    world.until("Passed", "all checks passed").await;
    let (tag, bytes) = loop {
        let (tag, bytes) = page(&world, "/openapi/v2", JSON).await;
        if tag != first {
            break (tag, bytes);
        }
        // It is asked for once the server is known to be there.
        tokio::task::yield_now().await;
    };
    let document: Value = serde_json::from_slice(&bytes).unwrap();
    let renamed = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta_v2";
    let thing = &document["definitions"]["com.example.Thing"];
    assert_eq!(thing["properties"]["metadata"]["$ref"], format!("#/definitions/{renamed}"));
    assert_eq!(document["definitions"][renamed]["description"], "something else");
    assert!(document["paths"].get("/apis/remote.example.com/v1/things").is_some());
    assert!(document["paths"].get("/apis/apps/v1/things").is_none(), "nobody describes what is not theirs");
    assert!(document["definitions"].get("com.example.Lost").is_none());
    assert!(document["paths"].get("/api/v1/pods").is_some());
    let (_, protobuf) = page(&world, "/openapi/v2", PROTOBUF).await;
    let has = |text: &[u8]| protobuf.windows(text.len()).any(|part| part == text);
    assert!(has(renamed.as_bytes()) && has(b"/api/v1/pods"));
    assert_eq!(page(&world, "/openapi/v2", JSON).await.0, tag);

    let index = loop {
        let index = world.admin.get("/openapi/v3").await.1;
        if index["paths"].get(DOCUMENT).is_some() {
            break index;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(index["paths"][DOCUMENT]["serverRelativeURL"], "/openapi/v3/apis/remote.example.com/v1?hash=1");
    assert_ne!(index["paths"]["version"]["serverRelativeURL"], "/openapi/v3/version?hash=0", "each for its own");
    assert_eq!(
        world.admin.get(&format!("/openapi/v3/{DOCUMENT}")).await,
        (200, json!({"openapi": "3.0.0", "from": "remote"}))
    );
    let group = "apis/remote.example.com";
    assert_eq!(index["paths"][group]["serverRelativeURL"], "/openapi/v3/apis/remote.example.com?hash=2");
    assert_eq!(world.admin.get(&format!("/openapi/v3/{group}")).await.0, 404, "it is asked, and has none");
    world.remote.last(&format!("/openapi/v3/{group}"));
    assert_eq!(world.admin.get("/openapi/v3/apis/apps/v1").await.0, 200);
}

#[tokio::test]
async fn custom_groups_register_themselves() {
    let world = World::new().await;
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let version =
        |name: &str, served: bool| json!({"name": name, "served": served, "storage": name == "v1", "schema": schema});
    let names = json!({"plural": "crons", "singular": "cron", "kind": "Cron"});
    let definition = json!({"metadata": {"name": "crons.custom.example.com"}, "spec": {"group": "custom.example.com",
        "scope": "Namespaced", "names": names, "versions": [version("v1", true), version("v2", false)]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    world.post(definitions, definition).await;
    let path = format!("{APIS}/v1.custom.example.com");
    let there = async |want: u16| {
        let waited = tokio::time::timeout(Duration::from_secs(10), async {
            loop {
                let (code, object) = world.admin.get(&path).await;
                if code == want {
                    return object;
                }
                tokio::task::yield_now().await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("{path} does not become {want}"))
    };
    let object = there(200).await;
    let spec =
        json!({"group": "custom.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100});
    assert_eq!(object["spec"], spec);
    assert_eq!(object["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "true");
    assert_eq!(object["status"]["conditions"][0]["reason"], "Local");
    assert_eq!(world.admin.get(&format!("{APIS}/v2.custom.example.com")).await.0, 404);
    world.admin.delete(&format!("{definitions}/crons.custom.example.com")).await;
    there(404).await;
}
