//! Replays recorded exchanges with upstream's API server, in order, and compares every answer: its status, and its body
//! without what may differ (identities, times, revisions, allocated addresses).

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
    sync::LazyLock,
    time::{Duration, Instant},
};

use bytes::Bytes;
use ferry_apiserver::LocalService;
use futures::future::join_all;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use regex_lite::{Captures, Regex};
use serde_json::{Map, Value, json};
use tower::ServiceExt;

/// Fields that may differ anywhere.
const VOLATILE: &[&str] = &[
    "uid",
    "creationTimestamp",
    "resourceVersion",
    "time",
    "deletionTimestamp",
    "lastTransitionTime",
    "continue",
    "remainingItemCount",
    "token",
    "expirationTimestamp",
    "serverAddressByClientCIDRs",
    "buildDate",
    "gitCommit",
    "gitTreeState",
    "goVersion",
    "compiler",
    "platform",
    "gitVersion",
    "storageVersionHash",
    "clusterIP",
    "clusterIPs",
    "nodePort",
    "healthCheckNodePort",
];
/// Lists that upstream orders by chance.
const UNORDERED: &[&str] = &["managedFields", "causes", "extra", "resourceRules", "nonResourceRules", "resources"];
/// Interval of retries of eventually consistent responses.
const AGAIN: Duration = Duration::from_millis(100);

/// Timeout of a response.
const PATIENCE: Duration = Duration::from_secs(30);

/// Maximum duration of retries: this server is as fast as its caches.
const RETRIED: f64 = 1.0;

/// One recorded request and its answer.
#[derive(serde::Deserialize)]
pub struct Exchange {
    /// A description.
    pub id: String,
    method: String,
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: Value,
    status: u16,
    response: Value,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    retry: f64,
    save: Option<String>,
    warnings: Option<Vec<String>>,
}

/// The outcome of one exchange.
pub struct Verdict {
    /// Status and body are as recorded.
    pub same: bool,
    /// A description of the difference.
    pub said: String,
}

/// The recording of a name, or `None`, said aloud, where it is not at hand.
pub fn recording(name: &str) -> Option<Vec<Exchange>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden").join(name);
    let Ok(text) = fs::read_to_string(&path) else {
        skip::skip_without_data(format!("there is no recording at {}", path.display()));
        return None;
    };
    Some(text.lines().map(|line| serde_json::from_str(line).expect("an exchange")).collect())
}

/// A server that recorded requests are sent to.
pub struct Replay {
    service: LocalService,
    saved: HashMap<String, String>,
}

struct Answer {
    status: u16,
    body: Value,
    warnings: Vec<String>,
}

impl Replay {
    /// A replay against a fresh server.
    pub async fn new(service: LocalService) -> Self {
        let replay = Self { service, saved: HashMap::new() };
        for (path, name) in [("/api/v1/namespaces", "golden"), ("/api/v1/namespaces/golden/serviceaccounts", "default")]
        {
            let headers = BTreeMap::from([("Content-Type".to_owned(), "application/json".to_owned())]);
            replay.send("POST", path, &headers, &json!({"metadata": {"name": name}}), false).await;
        }
        replay
    }

    /// Sends the requests in order and compares the answers. Watches that follow each other change nothing: they last at
    /// the same time.
    pub async fn run(&mut self, exchanges: &[Exchange]) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for run in exchanges.chunk_by(|a, b| a.stream && b.stream) {
            let answered = join_all(run.iter().map(|exchange| self.exchange(exchange))).await;
            for (exchange, (verdict, answer)) in run.iter().zip(answered) {
                self.save(exchange, &answer.body);
                verdicts.push(verdict);
            }
        }
        verdicts
    }

    async fn exchange(&self, exchange: &Exchange) -> (Verdict, Answer) {
        let body = self.body(exchange).await;
        let want = steady(&exchange.response, "");
        let deadline = Instant::now() + Duration::from_secs_f64(exchange.retry.min(RETRIED));
        let (answer, got) = loop {
            let answer = self.send(&exchange.method, &exchange.path, &exchange.headers, &body, exchange.stream).await;
            let got = steady(&answer.body, "");
            if answer.status == exchange.status && got == want || Instant::now() > deadline {
                break (answer, got);
            }
            tokio::time::sleep(AGAIN).await;
        };
        let mut differences = Vec::new();
        differ(&want, &got, "", &mut differences);
        if let Some(mut warnings) = exchange.warnings.clone() {
            warnings.sort();
            if warnings != answer.warnings {
                differences.push(format!("warnings: want {warnings:?}, got {:?}", answer.warnings));
            }
        }
        let said = format!(
            "{}\n  {} {}\n  status: want {}, got {}\n    {}",
            exchange.id,
            exchange.method,
            exchange.path,
            exchange.status,
            answer.status,
            differences.iter().take(8).cloned().collect::<Vec<_>>().join("\n    ")
        );
        (Verdict { same: answer.status == exchange.status && differences.is_empty(), said }, answer)
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &BTreeMap<String, String>,
        body: &Value,
        stream: bool,
    ) -> Answer {
        let path = SAVED.replace_all(path, |found: &Captures<'_>| {
            self.saved.get(&found[0]).cloned().unwrap_or_else(|| "unknown".to_owned())
        });
        let mut request = Request::builder().method(method).uri(path.as_ref());
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let body: Bytes = match body {
            Value::Null => Bytes::new(),
            Value::String(text) => text.clone().into(),
            other => as_recorded(other).into(),
        };
        let request = request.body(Full::new(body)).expect("a request");
        let answered = async {
            let response = self.service.clone().oneshot(request).await.expect("an answer");
            read(response, stream).await
        };
        // What should have been refused may be a watch that does not end.
        let late = || Answer { status: 0, body: "no answer".into(), warnings: Vec::new() };
        tokio::time::timeout(PATIENCE, answered).await.unwrap_or_else(|_| late())
    }

    /// The body of an exchange, with what identifies the object here.
    async fn body(&self, exchange: &Exchange) -> Value {
        let body = exchange.body.clone();
        if exchange.method != "PUT" || !body.is_object() || !exchange.id.contains(" update") {
            return body;
        }
        let accept = BTreeMap::from([("Accept".to_owned(), "application/json".to_owned())]);
        let current = self.send("GET", &exchange.path, &accept, &Value::Null, false).await;
        if current.status == 200 { identified(exchange, body, &current.body) } else { body }
    }

    fn save(&mut self, exchange: &Exchange, answer: &Value) {
        let Some(name) = &exchange.save else { return };
        for (kind, field) in [("rv", "resourceVersion"), ("continue", "continue")] {
            let value = answer["metadata"][field].as_str().unwrap_or_default();
            self.saved.insert(format!("{{{kind}:{name}}}"), value.to_owned());
        }
    }
}

async fn read(response: Response<ferry_apiserver::Body>, stream: bool) -> Answer {
    let status = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let mut warnings: Vec<String> = warnings
        .filter_map(|warning| warning.to_str().ok())
        .map(|warning| warning.split_once(" - ").map_or(warning, |(_, text)| text).to_owned())
        .collect();
    warnings.sort();
    let bytes = response.into_body().collect().await.expect("a whole body").to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let parsed = if stream {
        text.lines().filter(|line| !line.trim().is_empty()).map(serde_json::from_str::<Value>).collect()
    } else {
        serde_json::from_str(&text)
    };
    Answer { status, body: parsed.unwrap_or(Value::String(text)), warnings }
}

/// An update of the object that is here, where the recording has the one that was there.
fn identified(exchange: &Exchange, body: Value, current: &Value) -> Value {
    let mut text = body.to_string();
    let (theirs, ours) = (body["metadata"]["uid"].as_str(), current["metadata"]["uid"].as_str());
    if let (Some(theirs), false) = (theirs.filter(|uid| !uid.is_empty()), exchange.id.ends_with("wrong uid")) {
        text = text.replace(theirs, ours.unwrap_or_default());
    }
    let current_text = current.to_string();
    let volume = TOKEN_VOLUME.find(&current_text).map_or("x", |found| found.as_str());
    text = TOKEN_VOLUME.replace_all(&text, volume).into_owned();
    let mut body: Value = serde_json::from_str(&text).expect("still an object");
    let keep: &[&str] = match exchange.id.splitn(3, ' ').nth(2).unwrap_or_default() {
        "update" | "update other name" => &["uid", "resourceVersion", "creationTimestamp"],
        "update stale" => &["uid", "creationTimestamp"],
        _ => &[],
    };
    for field in keep {
        body["metadata"][field] = current["metadata"][field].clone();
    }
    if exchange.id.starts_with("v1 services") || body["spec"].to_string().contains("clusterIP") {
        for field in ["clusterIP", "clusterIPs"] {
            if let Some(value) = current["spec"].get(field) {
                body["spec"][field] = value.clone();
            }
        }
    }
    body
}

static SAVED: LazyLock<Regex> = LazyLock::new(|| regex(r"\{(rv|continue):(\w+)\}"));
static TOKEN_VOLUME: LazyLock<Regex> = LazyLock::new(|| regex(r"kube-api-access-\w{5}"));
static AGE: LazyLock<Regex> = LazyLock::new(|| regex(r"^(<unknown>|\d+[smhd](\d+[smh])?)$"));
static SEVERAL: LazyLock<Regex> = LazyLock::new(|| regex(r"(?s)^(.*is invalid: )\[(.*)\]$"));
/// Parts of texts that may differ, and what stands for them.
static TEXTS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let texts = [
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
        (r"^10\.96\.\d+\.\d+$", "<ip>"),
        (r"(kube-api-access-)[a-z0-9]{5}\b", "${1}<rand>"),
        (r"(gen-)[a-z0-9]{5}\b", "${1}<rand>"),
        (r"(current: |in record \()\d+", "${1}<rv>"),
        (r"X509SHA256=[0-9a-f]{64}", "X509SHA256=<cert>"),
        (r"(?s)compilation failed:.*", "compilation failed"),
        (r#"in scheme "[^"]*""#, r#"in scheme "<scheme>""#),
    ];
    texts.into_iter().map(|(pattern, stand_in)| (regex(pattern), stand_in)).collect()
});

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern")
}

/// A value without what may differ.
fn steady(value: &Value, name: &str) -> Value {
    match value {
        Value::Object(map) => Value::Object(steady_map(map)),
        Value::Array(items) => steady_list(items, name),
        Value::String(text) => steady_text(text).into(),
        other => other.clone(),
    }
}

fn steady_map(map: &Map<String, Value>) -> Map<String, Value> {
    let fixed = |name: &str, value: &Value| match name {
        "clusterIP" => matches!(value.as_str(), Some("None" | "")),
        "nodePort" => value == 30080,
        _ => false,
    };
    map.iter()
        .filter(|(name, value)| {
            let volatile = VOLATILE.contains(&name.as_str()) && !fixed(name, value);
            !volatile || matches!(value, Value::Object(_) | Value::Bool(_))
        })
        .map(|(name, value)| (name.clone(), steady(value, name)))
        .collect()
}

fn steady_list(items: &[Value], name: &str) -> Value {
    let mut items: Vec<Value> = items.iter().map(|item| steady(item, name)).collect();
    match name {
        _ if UNORDERED.contains(&name) => items.sort_by_key(Value::to_string),
        "columnDefinitions" => {
            for column in items.iter_mut().filter_map(Value::as_object_mut) {
                column.remove("description");
            }
        }
        "cells" => {
            for cell in &mut items {
                if cell.as_str().is_some_and(|text| AGE.is_match(text)) {
                    *cell = "<age>".into();
                }
            }
        }
        _ => {}
    }
    Value::Array(items)
}

fn steady_text(text: &str) -> String {
    let mut text = text.to_owned();
    for (pattern, stand_in) in TEXTS.iter() {
        if pattern.is_match(&text) {
            text = pattern.replace_all(&text, *stand_in).into_owned();
        }
    }
    if let Some(found) = SEVERAL.captures(&text) {
        let mut errors: Vec<&str> = found[2].split(", ").collect();
        errors.sort_unstable();
        text = found[1].to_owned() + &errors.join(", ");
    }
    text
}

/// Names the places where two values differ.
fn differ(want: &Value, got: &Value, path: &str, out: &mut Vec<String>) {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            for (name, value) in want {
                match got.get(name) {
                    None => out.push(format!("{path}.{name}: missing, want {}", short(value))),
                    Some(other) => differ(value, other, &format!("{path}.{name}"), out),
                }
            }
            for (name, value) in got.iter().filter(|(name, _)| !want.contains_key(*name)) {
                out.push(format!("{path}.{name}: extra {}", short(value)));
            }
        }
        (Value::Array(want), Value::Array(got)) => {
            if want.len() != got.len() {
                out.push(format!("{path}: want {} items, got {}", want.len(), got.len()));
            }
            for (index, (want, got)) in want.iter().zip(got).enumerate() {
                differ(want, got, &format!("{path}[{index}]"), out);
            }
        }
        _ if want != got => out.push(format!("{path}: want {}, got {}", short(want), short(got))),
        _ => {}
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(300).collect()
}

/// JSON with a space after commas and colons, as the recorded requests had it: some answers show it.
fn as_recorded(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let field = |(name, value): (&String, &Value)| format!("{}: {}", json!(name), as_recorded(value));
            format!("{{{}}}", map.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(as_recorded).collect::<Vec<_>>().join(", ")),
        scalar => scalar.to_string(),
    }
}
