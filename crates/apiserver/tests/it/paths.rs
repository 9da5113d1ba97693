//! Non-resource paths: health, metrics, component statuses and shutdown.

use crate::fixture;
use std::{sync::Arc, time::Duration};

use crate::wire::Wire;
use bytes::Bytes;
use ferry_apiserver::{ComponentEndpoint, LocalService, ServerOptions, ShutdownOptions};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tower::ServiceExt;

async fn ask(service: &LocalService, method: &str, path: &str, accept: &str) -> (u16, String) {
    let request = Request::builder().method(method).uri(path).header("accept", accept);
    let response = service.clone().oneshot(request.body(Full::new(Bytes::new())).unwrap()).await.unwrap();
    text(response).await
}

async fn text(response: Response<ferry_apiserver::Body>) -> (u16, String) {
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8_lossy(&bytes).into_owned())
}

fn message(text: &str) -> String {
    let status: Value = serde_json::from_str(text).unwrap_or_default();
    status["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn unknown_types_are_not_acceptable() {
    let (service, _dir) = fixture::default_server().await;
    let types = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    let router = format!("406: Not Acceptable\n\nAvailable representations: {types}");
    let handler = format!("only the following media types are accepted: {types}");
    for (path, want) in [
        ("/api", router.as_str()),
        ("/api/v1", &router),
        ("/apis/apps/v1", &router),
        ("/apis", &handler),
        ("/apis/apps", &handler),
        ("/version", "406: Not Acceptable\n\nAvailable representations: application/json"),
        ("/openapi/v2", ""),
        ("/openapi/v3/api/v1", ""),
    ] {
        for accept in ["text/html", "application/cbor"] {
            let (code, body) = ask(&service, "GET", path, accept).await;
            assert_eq!((code, message(&body).as_str()), (406, want), "{path} {accept}");
        }
        for accept in ["", "*/*", "application/json", "text/html, application/json;q=0.5"] {
            assert_eq!(ask(&service, "GET", path, accept).await.0, 200, "{path} {accept:?}");
        }
    }
    assert_eq!(ask(&service, "GET", "/openapi/v3", "text/html").await.0, 200, "the index is for all");
}

#[tokio::test]
async fn resources_have_no_heads() {
    let (service, _dir) = fixture::default_server().await;
    for path in ["/api/v1/namespaces", "/api/v1/namespaces/default", "/apis/apps/v1/deployments"] {
        assert_eq!(ask(&service, "HEAD", path, "*/*").await.0, 405, "{path}");
    }
    for path in ["/readyz", "/version", "/metrics"] {
        assert_eq!(ask(&service, "HEAD", path, "*/*").await.0, 200, "{path}");
    }
}

#[tokio::test]
async fn components_are_asked() {
    let components = vec![ComponentEndpoint { name: "scheduler", url: "https://127.0.0.1:1/healthz".into() }];
    let (service, _dir) = fixture::server_with(ServerOptions { components, ..ServerOptions::default() }).await;
    let path = "/api/v1/componentstatuses";
    let (code, list) = ask(&service, "GET", path, "*/*").await;
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!((code, &list["kind"], &list["metadata"]), (200, &json!("ComponentStatusList"), &json!({})));
    let store =
        json!({"metadata": {"name": "etcd-0"}, "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]});
    assert_eq!(list["items"][1], store);
    let condition = &list["items"][0]["conditions"][0];
    assert_eq!(condition["status"], "False");
    assert!(condition["message"].as_str().unwrap().starts_with("Get \"https://127.0.0.1:1/healthz\": "), "{condition}");
    let one = ask(&service, "GET", &format!("{path}?fieldSelector=metadata.name%3Detcd-0"), "*/*").await.1;
    assert_eq!(serde_json::from_str::<Value>(&one).unwrap()["items"].as_array().map(Vec::len), Some(1));
    let (code, body) = ask(&service, "GET", &format!("{path}/nope"), "*/*").await;
    assert_eq!((code, message(&body).as_str()), (404, "componentstatus \"nope\" not found"));
    let table = ask(&service, "GET", path, "application/json;as=Table;v=v1;g=meta.k8s.io").await.1;
    let table: Value = serde_json::from_str(&table).unwrap();
    assert_eq!(table["rows"][1]["cells"], json!(["etcd-0", "Healthy", "ok", ""]));
    assert_eq!(ask(&service, "DELETE", &format!("{path}/etcd-0"), "*/*").await.0, 405);
}

#[tokio::test]
async fn health_is_told_in_upstreams_order() {
    let (service, _dir) = fixture::default_server().await;
    let names = async |root: &str| -> Vec<String> {
        let (_, text) = ask(&service, "GET", &format!("/{root}?verbose"), "*/*").await;
        let name = |line: &str| Some(line.strip_prefix("[+]")?.strip_suffix(" ok")?.to_owned());
        text.lines().filter_map(name).collect()
    };
    let (live, ready) = (names("livez").await, names("readyz").await);
    assert_eq!(live[..4], ["ping", "log", "loopback-serving-certificate", "etcd"]);
    assert_eq!(ready[..5], ["ping", "log", "etcd", "etcd-readiness", "informer-sync"]);
    assert_eq!(ready.last().map(String::as_str), Some("shutdown"));
    assert_eq!(names("healthz").await, live);
    assert_eq!(live[4..], ready[5..ready.len() - 1], "hooks are the same");
}

#[tokio::test]
async fn admission_is_timed() {
    let (service, _dir) = fixture::default_server().await;
    let body = json!({"metadata": {"name": "m"}}).to_string();
    for (path, code) in [("default", 201), ("none", 404)] {
        let request =
            Request::post(format!("/api/v1/namespaces/{path}/configmaps")).header("content-type", "application/json");
        let response = service.clone().oneshot(request.body(Full::new(Bytes::from(body.clone()))).unwrap()).await;
        assert_eq!(response.unwrap().status().as_u16(), code);
    }
    let page = ask(&service, "GET", "/metrics", "*/*").await.1;
    let prefix = "apiserver_admission";
    for line in [
        "step_admission_duration_seconds_bucket{operation=\"CREATE\",rejected=\"true\",type=\"admit\",le=\"2.5\"} 1",
        "controller_admission_duration_seconds_count{name=\"NamespaceLifecycle\",operation=\"CREATE\",rejected=\"true\",type=\"admit\"} 1",
    ] {
        assert!(page.contains(&format!("{prefix}_{line}\n")), "{line}");
    }
    let webhooks = "# TYPE apiserver_admission_webhook_admission_duration_seconds histogram\n";
    assert!(page.contains(webhooks));
}

/// A connection of HTTP/1.1 on which bytes are written by hand.
async fn connect(wire: &Wire) -> TlsStream<tokio::net::TcpStream> {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", wire.port)).await.unwrap();
    let tls: Arc<rustls::ClientConfig> = wire.tls(&["http/1.1"]);
    TlsConnector::from(tls).connect("127.0.0.1".try_into().unwrap(), stream).await.unwrap()
}

async fn get(wire: &Wire, path: &str) -> String {
    let mut stream = connect(wire).await;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A server that goes away does not always say good-bye.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).to_ascii_lowercase()
}

#[tokio::test]
async fn a_server_that_ends_tells_others_to_try_again() {
    let shutdown = ShutdownOptions { drain: Duration::from_secs(20), retry_after: true, ..ShutdownOptions::default() };
    let wire = Wire::start_with(ServerOptions { shutdown, ..ServerOptions::default() }).await;
    let mut busy = connect(&wire).await;
    let body = json!({"metadata": {"name": "late"}}).to_string();
    let head = format!(
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    busy.write_all(head.as_bytes()).await.unwrap();
    busy.flush().await.unwrap();
    // Once this is answered the server has seen what came before.
    assert!(get(&wire, "/readyz").await.starts_with("http/1.1 200"));
    wire.end();
    let refused = loop {
        let answer = get(&wire, "/api").await;
        if !answer.starts_with("http/1.1 200") {
            break answer;
        }
    };
    assert!(refused.starts_with("http/1.1 429"), "{refused}");
    assert!(refused.contains("retry-after: 5\r\n"), "{refused}");
    assert!(refused.ends_with("the apiserver is shutting down, please try again later.\n"), "{refused}");
    assert!(get(&wire, "/readyz").await.starts_with("http/1.1 500"), "health is told until the end");
    busy.write_all(body.as_bytes()).await.unwrap();
    let mut answer = vec![0; 12];
    busy.read_exact(&mut answer).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 201", "what was begun is finished");
}
