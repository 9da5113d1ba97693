//! Tests of auditing with a server: log and webhook.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use ::audit::*;
use api::Value;
use apiserver_core::{User, attributes::Attributes, http_client::endpoint_from_kubeconfig};
use bytes::Bytes;
use http::{Request as HttpRequest, Response};
use http_body_util::{BodyExt, Full};
use serde_json::json;
use tower::ServiceExt;

use super::authn::listener::{Listener, kubeconfig};
use crate::{LocalService, ServerOptions, fixture};

const ALL: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- {level: Metadata, resources: [{group: '', resources: [secrets]}]}\n- {level: RequestResponse, omitManagedFields: true}\n";

fn batch() -> BatchConfig {
    BatchConfig { buffer: 100, size: 2, wait: Duration::from_secs(3600), throttle: None }
}

fn log(path: &Path) -> LogBackendConfig {
    LogBackendConfig {
        path: path.to_owned(),
        mode: BackendMode::Blocking,
        batch: batch(),
        truncation: TruncateConfig::default(),
        max_size: 0,
        max_backups: 0,
        max_age: Duration::ZERO,
        compress: false,
    }
}

/// A server that audits to a log.
struct World {
    local: LocalService,
    server: crate::Server,
    log: std::path::PathBuf,
    _dir: tempfile::TempDir,
}

impl World {
    async fn new(policy: &str, change: impl FnOnce(&mut AuditOptions)) -> Self {
        let files = tempfile::tempdir().unwrap();
        let path = files.keep().join("audit.log");
        let policy = Some(Policy::parse(policy).unwrap());
        let mut audit = AuditOptions { policy, log: Some(log(&path)), webhook: None };
        change(&mut audit);
        let (server, dir) = fixture::start_server(ServerOptions { audit, ..ServerOptions::default() }).await;
        let user = User { name: "joe".into(), groups: vec!["system:masters".into()], ..User::default() };
        Self { local: server.local_service(user), server, log: path, _dir: dir }
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> u16 {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = HttpRequest::builder().method(method).uri(path).header("user-agent", "test/1");
        let request = request.header("audit-id", "id-1").header("content-type", "application/json");
        let response = self.local.clone().oneshot(request.body(Full::new(Bytes::from(body))).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        response.into_body().collect().await.unwrap();
        status
    }

    fn events(&self) -> Vec<Value> {
        lines(&self.log)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A failed test may leave the directory.
        let _ = fs::remove_dir_all(self.log.parent().unwrap_or(&self.log));
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Removes the fields that differ between runs.
fn stable(mut event: Value) -> Value {
    let fields = event.as_object_mut().unwrap();
    for field in ["requestReceivedTimestamp", "stageTimestamp"] {
        assert!(fields.remove(field).unwrap().as_str().unwrap().len() == "2026-01-01T00:00:00.000000Z".len());
    }
    event
}

#[tokio::test]
async fn request_produces_one_event_per_stage() {
    let world = World::new(ALL, |_| {}).await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"}});
    assert_eq!(world.send("POST", "/api/v1/namespaces/default/configmaps?fieldManager=x", body.clone()).await, 201);
    let events = world.events();
    let stages: Vec<&str> = events.iter().map(|event| event["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["RequestReceived", "ResponseComplete"]);
    let mut last = stable(events[1].clone());
    let answer = last.as_object_mut().unwrap().remove("responseObject").unwrap();
    assert_eq!((&answer["data"], answer["metadata"].get("managedFields")), (&json!({"k": "v"}), None));
    if let Some(fields) = last["annotations"].as_object_mut() {
        fields.retain(|key, _| !key.starts_with("authorization.k8s.io"));
    }
    last.as_object_mut().unwrap().retain(|_, value| *value != json!({}));
    let want = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "auditID": "id-1",
        "stage": "ResponseComplete", "requestURI": "/api/v1/namespaces/default/configmaps?fieldManager=x",
        "verb": "create", "user": {"username": "joe", "groups": ["system:masters"]}, "userAgent": "test/1",
        "objectRef": {"resource": "configmaps", "namespace": "default", "name": "c", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 201}, "requestObject": body,
    });
    assert_eq!(last, want);
    assert_eq!(events[0].get("responseStatus"), None);
}

#[tokio::test]
async fn metadata_level_omits_secrets() {
    let world = World::new(ALL, |_| {}).await;
    let body = json!({"metadata": {"name": "s"}, "stringData": {"password": "hidden"}});
    assert_eq!(world.send("POST", "/api/v1/namespaces/default/secrets", body).await, 201);
    assert_eq!(world.send("GET", "/api/v1/namespaces/default/secrets/s", Value::Null).await, 200);
    let text = fs::read_to_string(&world.log).unwrap();
    assert!(!text.contains("hidden") && !text.contains("aGlkZGVu") && !text.contains("Object\""), "{text}");
    assert_eq!(world.events()[1]["objectRef"]["name"], "s");
}

#[tokio::test]
async fn failures_have_a_reason() {
    let world = World::new(ALL, |_| {}).await;
    assert_eq!(world.send("GET", "/api/v1/namespaces/default/secrets/none", Value::Null).await, 404);
    let status = &world.events()[1]["responseStatus"];
    let want = json!({
        "metadata": {}, "status": "Failure", "message": "secrets \"none\" not found", "reason": "NotFound",
        "details": {"name": "none", "kind": "secrets"}, "code": 404,
    });
    assert_eq!(*status, want);
}

#[tokio::test]
async fn unselected_requests_are_not_audited() {
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- {level: Metadata, verbs: [delete]}\n";
    let world = World::new(policy, |_| {}).await;
    assert_eq!(world.send("GET", "/api/v1/namespaces/default", Value::Null).await, 200);
    assert_eq!(world.send("GET", "/version", Value::Null).await, 200);
    assert!(world.events().is_empty());
    assert_eq!(world.send("DELETE", "/api/v1/namespaces/default/configmaps/x", Value::Null).await, 404);
    assert_eq!(world.events().len(), 2);
}

#[tokio::test]
async fn watch_has_start_and_complete_events() {
    let world = World::new(ALL, |_| {}).await;
    let path = "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1";
    assert_eq!(world.send("GET", path, Value::Null).await, 200);
    // The end is recorded by a separate task.
    while world.events().len() < 3 {
        tokio::task::yield_now().await;
    }
    let events = world.events();
    let stages: Vec<&str> = events.iter().map(|event| event["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
    assert_eq!(events[2]["verb"], "watch");
}

#[tokio::test]
async fn stages_annotate_the_event() {
    let world = World::new(ALL, |_| {}).await;
    let auditor = world.server.shared.auditor.clone().unwrap();
    let user = User::default();
    let asked = Attributes {
        user: &user,
        verb: "get",
        target: apiserver_core::attributes::AttributesTarget::NonResource("/x"),
    };
    let request =
        AuditedRequest { id: "1", uri: "/x", sources: Vec::new(), agent: "", received: apiserver_core::clock::now() };
    let trail = auditor.begin_audit(&request, &asked).unwrap();
    run_with_audit_context(trail.clone(), async {
        annotate("plugin/note", || "first".into());
        annotate("plugin/note", || "second".into());
    })
    .await;
    annotate("outside", || unreachable!("nobody keeps it"));
    trail.process_stage(Stage::ResponseComplete).await.unwrap();
    assert_eq!(world.events()[0]["annotations"], json!({"plugin/note": "first"}));
}

#[tokio::test]
async fn strict_backend_failure_rejects_the_request() {
    let nowhere = Path::new("/proc/none/audit.log");
    for (mode, want) in [(BackendMode::BlockingStrict, 500), (BackendMode::Blocking, 200)] {
        let change = |audit: &mut AuditOptions| audit.log = Some(LogBackendConfig { mode, ..log(nowhere) });
        let world = World::new(ALL, change).await;
        assert_eq!(world.send("GET", "/version", Value::Null).await, want, "{mode:?}");
    }
}

#[tokio::test]
async fn webhook_receives_batches() {
    let got: Arc<Mutex<Vec<Value>>> = Arc::default();
    let kept = got.clone();
    let listener = Listener::start(move |sent| {
        kept.lock().unwrap().push(serde_json::from_slice(&sent.body).unwrap());
        Response::new("{}".into())
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let endpoint = Arc::new(endpoint_from_kubeconfig(&kubeconfig(dir.path(), &listener, "token: t")).unwrap());
    let truncation = TruncateConfig { enabled: true, event: 900, batch: 10_000 };
    let pause = Duration::from_millis(1);
    let webhook = WebhookBackendConfig { endpoint, mode: BackendMode::Batch, batch: batch(), truncation, pause };
    let world = World::new(ALL, |audit| audit.webhook = Some(webhook)).await;
    let body = json!({"metadata": {"name": "c"}, "data": {"k": "v".repeat(2000)}});
    assert_eq!(world.send("POST", "/api/v1/namespaces/default/configmaps", body).await, 201);
    assert_eq!(world.send("GET", "/version", Value::Null).await, 200);
    world.server.shared.auditor.as_ref().unwrap().flush().await;
    let got = got.lock().unwrap();
    assert_eq!(got.iter().map(|list| list["items"].as_array().unwrap().len()).collect::<Vec<_>>(), [2, 2]);
    assert_eq!((&got[0]["kind"], &got[0]["apiVersion"]), (&json!("EventList"), &json!("audit.k8s.io/v1")));
    let large = &got[0]["items"][1];
    assert_eq!((large.get("requestObject"), &large["annotations"]["audit.k8s.io/truncated"]), (None, &json!("true")));
    assert_eq!(world.events().len(), 4, "the log is not cut");
    assert!(world.events()[1].get("requestObject").is_some());
}
