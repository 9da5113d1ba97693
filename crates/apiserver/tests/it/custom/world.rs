//! A server, and requests to it.

use bytes::Bytes;
use ferry_apiserver::{LocalService, ServerOptions};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::fixture;

/// Timeout on a busy machine.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);

pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub const MERGE: &str = "application/merge-patch+json";
pub const APPLY: &str = "application/apply-patch+yaml";

/// A server of its own for one test.
#[derive(Clone)]
pub struct World {
    service: LocalService,
    _dir: std::sync::Arc<tempfile::TempDir>,
}

impl World {
    pub async fn new() -> Self {
        let settings = ServerOptions { admission: fixture::without_accounts(), ..ServerOptions::default() };
        let (service, dir) = fixture::server_with(settings).await;
        Self { service, _dir: dir.into() }
    }

    /// The same objects after a restart.
    pub async fn restarted(self) -> Self {
        let Self { service, _dir } = self;
        drop(service);
        let settings = ServerOptions { admission: fixture::without_accounts(), ..ServerOptions::default() };
        let server = fixture::start(_dir.path(), settings).await;
        Self { service: server.local_service(fixture::admin()), _dir }
    }

    /// Sends a request; a body of text is sent as it is.
    pub async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let bytes: Bytes = match body {
            Value::Null => Bytes::new(),
            Value::String(text) => text.clone().into(),
            body => body.to_string().into(),
        };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let response = self.service.clone().oneshot(request.body(Full::new(bytes)).unwrap()).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into()))
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.send("GET", path, "", &Value::Null).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send("POST", path, "application/json", body).await
    }

    pub async fn patch(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send("PATCH", path, MERGE, body).await
    }

    pub async fn delete(&self, path: &str) -> (u16, Value) {
        self.send("DELETE", path, "", &Value::Null).await
    }

    /// Creates what must be created.
    pub async fn create(&self, path: &str, body: Value) -> Value {
        let (code, answer) = self.post(path, &body).await;
        assert_eq!(code, 201, "{path}: {answer}");
        answer
    }

    /// Asks until the answer is as wanted.
    pub async fn until(&self, path: &str, wanted: impl Fn(u16, &Value) -> bool) {
        let asking = async {
            loop {
                let (code, body) = self.get(path).await;
                if wanted(code, &body) {
                    return;
                }
                // The clients of a busy test need the processor more.
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, asking).await.expect(path);
    }

    /// A watch from now on, as a stream of pieces.
    pub async fn watch(&self, path: &str) -> ferry_apiserver::Body {
        let request = Request::builder().uri(path).body(Full::new(Bytes::new())).unwrap();
        self.service.clone().oneshot(request).await.unwrap().into_body()
    }
}

/// A definition of namespaced boats with some schema for `spec`.
pub fn boats(spec: Value) -> Value {
    definition("boats", "Boat", json!([version("v1", true, spec)]))
}

/// A definition with some versions.
pub fn definition(plural: &str, kind: &str, versions: Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.harbour.example.io")},
        "spec": {"group": "harbour.example.io", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": versions}})
}

/// A served version.
pub fn version(name: &str, storage: bool, spec: Value) -> Value {
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema":
        {"type": "object", "properties": {"spec": spec}}}})
}

/// A boat.
pub fn boat(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "harbour.example.io/v1", "kind": "Boat", "metadata": {"name": name}, "spec": spec})
}

pub const BOATS: &str = "/apis/harbour.example.io/v1/namespaces/default/boats";
pub const BOATS_DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/boats.harbour.example.io";
