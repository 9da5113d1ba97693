//! Recorded answers of upstream's API server, replayed in order: who owns which fields after every kind of write, and what
//! an apply comes to. Skipped where the recording is not at hand.

use crate::fixture;
use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
};

use bytes::Bytes;
use ferry_apiserver::LocalService;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

const RECORDING: &str = "../../../shared/golden/exchanges.jsonl";
/// Fields that the server generates.
const VOLATILE: &[&str] = &[
    "uid",
    "creationTimestamp",
    "resourceVersion",
    "time",
    "deletionTimestamp",
    "lastTransitionTime",
    "clusterIP",
    "clusterIPs",
    "nodePort",
    "managedFields",
];

/// The result of one exchange.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// Owners and status are as recorded.
    Same,
    /// Owners or status differ though nothing else does.
    Differs,
    /// The object differs, or differed before, in something else: a default or an admission plug-in that is not there yet.
    OtherObject,
    /// One of the two refuses the object for a reason that is not about apply: validation or admission.
    OtherRules,
    /// The path is not served: custom resources, and what is answered with 501.
    NotServed,
    /// Without managed fields.
    Unrelated,
}

struct Replay {
    service: LocalService,
    /// Paths of objects that are not, or once were not, as recorded.
    strange: HashSet<String>,
    _dir: tempfile::TempDir,
}

impl Replay {
    async fn new() -> Self {
        let (service, dir) = fixture::default_server().await;
        let replay = Self { service, strange: HashSet::new(), _dir: dir };
        let json = json!({"Content-Type": "application/json"});
        replay.send("POST", "/api/v1/namespaces", &json, &json!({"metadata": {"name": "golden"}})).await;
        let account = json!({"metadata": {"name": "default"}});
        replay.send("POST", "/api/v1/namespaces/golden/serviceaccounts", &json, &account).await;
        replay
    }

    async fn send(&self, method: &str, path: &str, headers: &Value, body: &Value) -> (u16, Value) {
        let body: Bytes = match body {
            Value::Null => Bytes::new(),
            Value::String(text) => text.clone().into(),
            other => other.to_string().into(),
        };
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers.as_object().into_iter().flatten() {
            request = request.header(name, value.as_str().unwrap_or_default());
        }
        let response = self.service.clone().oneshot(request.body(Full::new(body)).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// The body of an exchange, with what identifies the object here.
    async fn body(&self, exchange: &Value) -> Value {
        let (id, path) = (exchange["id"].as_str().unwrap_or_default(), exchange["path"].as_str().unwrap_or_default());
        let mut body = exchange["body"].clone();
        if exchange["method"] != "PUT" || !body.is_object() || !id.contains(" update") {
            return body;
        }
        let (status, current) = self.send("GET", path, &json!({"Accept": "application/json"}), &Value::Null).await;
        if status != 200 {
            return body;
        }
        let keep: &[&str] = match id.splitn(3, ' ').nth(2).unwrap_or_default() {
            "update" | "update other name" => &["uid", "resourceVersion", "creationTimestamp"],
            "update stale" => &["uid", "creationTimestamp"],
            _ => &[],
        };
        for field in keep {
            body["metadata"][field] = current["metadata"][field].clone();
        }
        for field in ["clusterIP", "clusterIPs"] {
            if body["spec"].get(field).is_some() && current["spec"].get(field).is_some() {
                body["spec"][field] = current["spec"][field].clone();
            }
        }
        body
    }

    async fn exchange(&mut self, exchange: &Value) -> (Outcome, String) {
        let path = exchange["path"].as_str().unwrap_or_default();
        let body = self.body(exchange).await;
        let method = exchange["method"].as_str().unwrap_or_default();
        let (status, answer) = self.send(method, path, &exchange["headers"], &body).await;
        let (want_status, want) = (exchange["status"].as_u64().unwrap_or_default(), &exchange["response"]);
        let said = format!("{} {path}\n  want {want_status} {want}\n  got  {status} {answer}", exchange["id"]);
        if owners(want).is_some() && steady(want) != steady(&answer) {
            self.strange.insert(object_path(path, want));
        }
        let strange = self.strange.contains(&object_path(path, want));
        let outcome = match (want_status == u64::from(status), status) {
            _ if !is_apply(exchange) && owners(want).is_none() => Outcome::Unrelated,
            (_, 501) => Outcome::NotServed,
            _ if !is_served(path) => Outcome::NotServed,
            (true, 200..400) if owners(want) == owners(&answer) => Outcome::Same,
            (true, 400..) if want == &answer => Outcome::Same,
            (false, _) if is_about_object(want) || is_about_object(&answer) => Outcome::OtherRules,
            (true, 200..400) if strange => Outcome::OtherObject,
            _ => Outcome::Differs,
        };
        (outcome, said)
    }
}

/// The path of the object that an exchange is about.
fn object_path(path: &str, object: &Value) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if path.ends_with(name) { path.to_owned() } else { format!("{path}/{name}") }
}

fn is_apply(exchange: &Value) -> bool {
    exchange["headers"]["Content-Type"] == "application/apply-patch+yaml"
}

/// Whether a refusal is about an object, and not about the request.
fn is_about_object(status: &Value) -> bool {
    matches!(status["reason"].as_str(), Some("Invalid" | "Forbidden")) && status["details"]["group"] != "meta.k8s.io"
}

fn is_served(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let (group, version) = match parts.as_slice() {
        ["", "api", version, ..] => ("", *version),
        ["", "apis", group, version, ..] => (*group, *version),
        _ => return false,
    };
    api::schema::schema().resources().iter().any(|r| r.group == group && r.version == version)
}

/// The owners of an object, times aside, in no order.
fn owners(object: &Value) -> Option<Vec<String>> {
    let entries = object["metadata"]["managedFields"].as_array()?;
    let text = |entry: &Value| {
        let mut entry = entry.clone();
        entry.as_object_mut()?.remove("time");
        Some(anonymous(&entry.to_string()))
    };
    let mut texts: Vec<String> = entries.iter().filter_map(text).collect();
    texts.sort();
    Some(texts)
}

/// Names that are made up begin with `kube-api-access-`.
fn anonymous(text: &str) -> String {
    let mut parts = text.split("kube-api-access-");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| out + "kube-api-access-" + part.get(5..).unwrap_or_default())
}

/// An object without what the server makes up.
fn steady(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(name, _)| !VOLATILE.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), steady(value)))
            .collect(),
        Value::Array(items) => items.iter().map(steady).collect(),
        Value::String(text) => anonymous(text).into(),
        other => other.clone(),
    }
}

#[tokio::test]
async fn owners_are_those_that_upstream_has() {
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORDING);
    let Ok(text) = std::fs::read_to_string(&recording) else {
        skip::skip_without_data(format!("there is no recording at {}", recording.display()));
        return;
    };
    let mut replay = Replay::new().await;
    let mut counts: BTreeMap<Outcome, usize> = BTreeMap::new();
    for line in text.lines() {
        let exchange: Value = serde_json::from_str(line).unwrap();
        let (outcome, said) = replay.exchange(&exchange).await;
        if !matches!(outcome, Outcome::Same | Outcome::Unrelated) {
            println!("{outcome:?}: {said}");
        }
        *counts.entry(outcome).or_default() += 1;
    }
    println!("{counts:?}");
    assert_eq!(counts.get(&Outcome::Differs), None, "exchanges differ where the object itself is as recorded");
    assert!(counts.get(&Outcome::Same).copied().unwrap_or_default() > 400, "{counts:?}");
}
