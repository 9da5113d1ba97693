//! Records events about objects, as `kubectl describe` shows them; never blocks and never fails its caller.
//!
//! One task per recorder writes them. An event equal to one of the last ten minutes raises that one's count instead of
//! making another.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::mpsc;

use crate::errors::ApiErrorExt;

/// Events that may wait to be written; more are dropped.
const CAPACITY: usize = 1000;
/// How long an equal event is counted instead of written again.
const AGGREGATION: Duration = Duration::from_secs(10 * 60);
/// Above this number of remembered events, those too old to be counted are forgotten.
const REMEMBERED: usize = 4096;

/// Writes `v1` Events for one component. Equal events within ten minutes are counted, not repeated. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    sender: mpsc::Sender<Fact>,
}

/// What happened, to what. Equal facts are one event.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Fact {
    /// API version, kind, namespace, name, uid, field path.
    about: [Option<String>; 6],
    type_: &'static str,
    reason: String,
    message: String,
}

impl Recorder {
    /// A recorder for `component` (`source.component`, `reportingComponent`), on node `host` if it is a node's.
    pub fn new(client: Client, component: &str, host: Option<&str>) -> Self {
        let (sender, facts) = mpsc::channel(CAPACITY);
        let source = EventSource { component: Some(component.into()), host: host.map(Into::into) };
        tokio::spawn(Writer { client, source, written: HashMap::new() }.run(facts));
        Self { sender }
    }

    /// Something expected happened.
    pub fn normal(&self, about: ObjectReference, reason: &str, message: impl Into<String>) {
        self.record("Normal", about, reason, message.into());
    }

    /// Something a user should know about happened.
    pub fn warning(&self, about: ObjectReference, reason: &str, message: impl Into<String>) {
        self.record("Warning", about, reason, message.into());
    }

    fn record(&self, type_: &'static str, about: ObjectReference, reason: &str, message: String) {
        let about = [about.api_version, about.kind, about.namespace, about.name, about.uid, about.field_path];
        let fact = Fact { about, type_, reason: reason.into(), message };
        if let Err(mpsc::error::TrySendError::Full(fact)) = self.sender.try_send(fact) {
            tracing::warn!(object = ?fact.about[3], reason = fact.reason, message = fact.message, "event dropped");
        }
    }
}

impl Fact {
    fn involved_object(&self) -> ObjectReference {
        let [api_version, kind, namespace, name, uid, field_path] = self.about.clone();
        ObjectReference { api_version, kind, namespace, name, uid, field_path, resource_version: None }
    }

    /// Where the event lives: beside its object, or in `default` for an object of the whole cluster.
    fn namespace(&self) -> &str {
        self.about[2].as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or("default")
    }
}

/// The background task's state.
struct Writer {
    client: Client,
    source: EventSource,
    written: HashMap<Fact, Written>,
}

/// An event that exists, as far as this recorder knows.
struct Written {
    name: String,
    count: i32,
    at: Instant,
}

impl Writer {
    async fn run(mut self, mut facts: mpsc::Receiver<Fact>) {
        while let Some(fact) = facts.recv().await {
            if let Err(error) = self.write(&fact).await
                && !error.is_namespace_terminating()
            {
                tracing::debug!(object = ?fact.about[3], reason = fact.reason, %error, "event not written");
            }
        }
    }

    async fn write(&mut self, fact: &Fact) -> Result<(), kube::Error> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), fact.namespace());
        if let Some(written) = self.written.get_mut(fact).filter(|written| written.at.elapsed() < AGGREGATION) {
            (written.count, written.at) = (written.count + 1, Instant::now());
            let patch = json!({"count": written.count, "lastTimestamp": Time(Timestamp::now())});
            match api.patch(&written.name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Err(error) if error.is_not_found() => {}
                result => return result.map(drop),
            }
        }
        let event = new_event(fact, &self.source, Timestamp::now());
        api.create(&PostParams::default(), &event).await?;
        self.remember(fact.clone(), event.metadata.name.unwrap_or_default());
        Ok(())
    }

    fn remember(&mut self, fact: Fact, name: String) {
        if self.written.len() >= REMEMBERED {
            self.written.retain(|_, written| written.at.elapsed() < AGGREGATION);
        }
        if self.written.len() < REMEMBERED {
            self.written.insert(fact, Written { name, count: 1, at: Instant::now() });
        }
    }
}

/// A first event, named after its object and the time, as client-go names them.
fn new_event(fact: &Fact, source: &EventSource, now: Timestamp) -> Event {
    let involved_object = fact.involved_object();
    let name = format!("{}.{:016x}", involved_object.name.as_deref().unwrap_or("unknown"), now.as_nanosecond());
    Event {
        metadata: ObjectMeta { name: Some(name), namespace: Some(fact.namespace().into()), ..Default::default() },
        involved_object,
        type_: Some(fact.type_.into()),
        reason: Some(fact.reason.clone()),
        message: Some(fact.message.clone()),
        count: Some(1),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        reporting_component: source.component.clone(),
        reporting_instance: Some(source.host.clone().unwrap_or_default()),
        source: Some(source.clone()),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use http_body_util::BodyExt;
    use kube::client::Body;

    use super::*;

    type Seen = Arc<Mutex<Vec<(String, String, serde_json::Value)>>>;

    /// A client whose server answers every request with the object that was sent, and remembers it.
    fn echo(seen: Seen, done: Arc<tokio::sync::Semaphore>) -> Client {
        crate::transport::in_process(
            tower::service_fn(move |request: Request<Body>| {
                let (seen, done) = (seen.clone(), done.clone());
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await?.to_bytes();
                    let sent = (head.method.to_string(), head.uri.path().to_owned(), serde_json::from_slice(&body)?);
                    seen.lock().unwrap().push(sent);
                    done.add_permits(1);
                    let event = Event::default();
                    Ok::<_, tower::BoxError>(Response::new(Body::from(serde_json::to_vec(&event)?)))
                }
            }),
            "test",
        )
    }

    #[tokio::test]
    async fn equal_events_are_counted() {
        let (seen, done) = (Seen::default(), Arc::new(tokio::sync::Semaphore::new(0)));
        let recorder = Recorder::new(echo(seen.clone(), done.clone()), "tester", None);
        let node = ObjectReference { kind: Some("Node".into()), name: Some("n1".into()), ..Default::default() };
        recorder.warning(node.clone(), "Odd", "something is odd");
        recorder.warning(node.clone(), "Odd", "something is odd");
        recorder.normal(node, "Fine", "all is well");
        done.acquire_many(3).await.unwrap().forget();

        let seen = seen.lock().unwrap();
        let methods: Vec<_> = seen.iter().map(|(method, ..)| method.as_str()).collect();
        assert_eq!(methods, ["POST", "PATCH", "POST"]);
        assert_eq!(seen[0].1, "/api/v1/namespaces/default/events");
        let name = seen[0].2["metadata"]["name"].as_str().unwrap();
        assert!(name.starts_with("n1.") && name.len() == "n1.".len() + 16, "{name}");
        assert_eq!(seen[1].1, format!("/api/v1/namespaces/default/events/{name}"));
        assert_eq!(seen[1].2["count"], 2);
        assert_eq!((&seen[2].2["type"], &seen[2].2["reason"]), (&json!("Normal"), &json!("Fine")));
    }
}
