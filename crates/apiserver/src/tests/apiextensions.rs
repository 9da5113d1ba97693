//! Deleted CRDs leave no state behind.

use std::sync::{Arc, Weak};

use ::apiextensions::{CrdInfo, structural_schema::Structural};
use admission::AdmissionOptions;
use apiserver_core::User;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::{LocalService, Server, ServerOptions, fixture};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const OWN: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/boats.example.io";
const BOATS: &str = "/apis/example.io/v1/namespaces/default/boats";

struct World {
    server: Server,
    local: LocalService,
    definitions: Vec<Weak<CrdInfo>>,
    schemas: Vec<Weak<Structural>>,
    _dir: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let admission = AdmissionOptions::new(&[], &["ServiceAccount".into()]).unwrap();
        let (server, _dir) = fixture::start_server(ServerOptions { admission, ..ServerOptions::default() }).await;
        let admin = User { name: "admin".into(), groups: vec!["system:masters".into()], ..User::default() };
        let local = server.local_service(admin);
        Self { server, local, definitions: Vec::new(), schemas: Vec::new(), _dir }
    }

    async fn ask(&self, method: &str, path: &str, body: Value) -> u16 {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body: Bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let response = self.local.clone().oneshot(request.body(Full::new(body)).unwrap()).await.unwrap();
        let code = response.status().as_u16();
        // Who watches begins, and leaves.
        if !path.contains("watch") {
            response.into_body().collect().await.unwrap();
        }
        code
    }

    /// Uses what is served, and notes it.
    async fn used(&mut self) {
        let boat =
            json!({"apiVersion": "example.io/v1", "kind": "Boat", "metadata": {"name": "b"}, "spec": {"size": 1}});
        assert!(matches!(self.ask("POST", BOATS, boat).await, 201 | 409));
        for path in [BOATS, "/apis", "/apis/example.io/v1", "/openapi/v3/apis/example.io/v1", "/openapi/v2"] {
            assert_eq!(self.ask("GET", path, Value::Null).await, 200, "{path}");
        }
        assert_eq!(self.ask("GET", &format!("{BOATS}?watch=true"), Value::Null).await, 200);
        let rows = self.server.registry().crds().served_resources();
        let definition = rows.crd("boats.example.io").unwrap();
        self.definitions.push(Arc::downgrade(definition));
        self.schemas.push(Arc::downgrade(definition.schema(0)));
    }

    async fn life(&mut self, round: usize) {
        assert_eq!(self.ask("POST", DEFINITIONS, definition(round)).await, 201);
        self.used().await;
        let changed = json!({"spec": {"versions": definition(round + 1)["spec"]["versions"]}});
        assert_eq!(self.ask("PATCH", OWN, changed).await, 200);
        self.used().await;
        assert_eq!(self.ask("DELETE", OWN, Value::Null).await, 200);
        while self.ask("GET", BOATS, Value::Null).await != 404 {
            tokio::task::yield_now().await;
        }
    }
}

fn definition(round: usize) -> Value {
    let size = json!({"type": "integer", "default": round, "x-kubernetes-validations": [{"rule": "self >= 0"}]});
    let spec = json!({"type": "object", "properties": {"size": size}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.example.io"}, "spec": {"group": "example.io", "scope": "Namespaced",
        "names": {"plural": "boats", "kind": "Boat"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}})
}

#[tokio::test]
async fn nothing_is_left_of_definitions_that_went() {
    let mut world = World::new().await;
    for round in 0..5 {
        world.life(round).await;
    }
    // Who looked after the last one lets go of it when it has seen that it is gone.
    let alive = |world: &World| {
        let definitions = world.definitions.iter().filter(|one| one.strong_count() > 0).count();
        (definitions, world.schemas.iter().filter(|one| one.strong_count() > 0).count())
    };
    let waiting = async {
        while alive(&world) != (0, 0) {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    let waited = tokio::time::timeout(std::time::Duration::from_secs(60), waiting).await;
    assert!(waited.is_ok(), "of {} states {:?} are left", world.definitions.len(), alive(&world));
    world.server.registry().crds().is_empty().then_some(()).expect("nothing is kept");
}
