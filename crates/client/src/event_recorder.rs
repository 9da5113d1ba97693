//! Records `v1` Events about objects without blocking or failing the caller.
//!
//! One task per recorder writes them. An event equal to a former one increments that event's count; many similar ones are
//! combined, and an object has a budget of events (see [`crate::event_correlator`]). While the server cannot be reached, a
//! write is tried again for two minutes.

use std::time::Duration;

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

use crate::{
    errors::ApiErrorExt,
    event_correlator::{EventCorrelator, REMEMBERED},
    lru_map::LruMap,
};

/// Capacity of the write queue; events beyond it are dropped.
const CAPACITY: usize = 1000;
/// Number of tries of a write that does not reach the server.
const MAX_TRIES: u32 = 12;
/// Delay between tries.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Writes `v1` Events for one component, counting equal events. Cheap to clone.
#[derive(Clone)]
pub struct EventRecorder {
    sender: mpsc::Sender<EventKey>,
}

/// Identity of an event: equal keys are aggregated into one event.
#[derive(Clone, PartialEq, Eq, Hash)]
struct EventKey {
    /// API version, kind, namespace, name, uid, field path.
    regarding: [Option<String>; 6],
    type_: &'static str,
    reason: String,
    /// Empty for the combination of similar events.
    message: String,
}

impl EventRecorder {
    /// Creates a recorder for `component` (`source.component`, `reportingComponent`) on node `host`, if any.
    pub fn new(client: Client, component: &str, host: Option<&str>) -> Self {
        let (sender, keys) = mpsc::channel(CAPACITY);
        let source = EventSource { component: Some(component.into()), host: host.map(Into::into) };
        tokio::spawn(
            EventWriter { client, source, written: LruMap::new(REMEMBERED), correlator: EventCorrelator::new() }
                .run(keys),
        );
        Self { sender }
    }

    /// Records an event of type `Normal`.
    pub fn record_normal(&self, regarding: ObjectReference, reason: &str, message: impl Into<String>) {
        self.record_event("Normal", regarding, reason, message.into());
    }

    /// Records an event of type `Warning`.
    pub fn record_warning(&self, regarding: ObjectReference, reason: &str, message: impl Into<String>) {
        self.record_event("Warning", regarding, reason, message.into());
    }

    fn record_event(&self, type_: &'static str, regarding: ObjectReference, reason: &str, message: String) {
        let regarding = [
            regarding.api_version,
            regarding.kind,
            regarding.namespace,
            regarding.name,
            regarding.uid,
            regarding.field_path,
        ];
        let key = EventKey { regarding, type_, reason: reason.into(), message };
        if let Err(mpsc::error::TrySendError::Full(key)) = self.sender.try_send(key) {
            tracing::warn!(object = ?key.regarding[3], reason = key.reason, message = key.message, "event recorder: queue full, event dropped");
        }
    }
}

impl EventKey {
    fn involved_object(&self) -> ObjectReference {
        let [api_version, kind, namespace, name, uid, field_path] = self.regarding.clone();
        ObjectReference { api_version, kind, namespace, name, uid, field_path, resource_version: None }
    }

    /// The event's namespace: that of its object, or `default` for cluster-scoped objects.
    fn namespace(&self) -> &str {
        self.regarding[2].as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or("default")
    }
}

/// State of the task that writes events.
struct EventWriter {
    client: Client,
    source: EventSource,
    written: LruMap<EventKey, RecordedEvent>,
    correlator: EventCorrelator<EventKey, [Option<String>; 6]>,
}

/// The occurrences of an event so far.
#[derive(Clone)]
struct RecordedEvent {
    name: String,
    count: i32,
    first: Timestamp,
}

impl EventWriter {
    async fn run(mut self, mut keys: mpsc::Receiver<EventKey>) {
        while let Some(key) = keys.recv().await {
            if let Err(error) = self.write_event(&key).await
                && !error.is_namespace_terminating()
            {
                tracing::debug!(object = ?key.regarding[3], reason = key.reason, %error, "event recorder: event not written");
            }
        }
    }

    async fn write_event(&mut self, event: &EventKey) -> Result<(), kube::Error> {
        let similar = EventKey { message: String::new(), ..event.clone() };
        let combined = self.correlator.combine_event(similar.clone(), &event.message);
        let (key, message) = match combined {
            Some(message) => (&similar, message),
            None => (event, event.message.clone()),
        };
        let (recorded, is_known) = self.count_event(key);
        // Events beyond the budget are counted, too.
        if !self.correlator.take_budget(key.regarding.clone()) {
            return Ok(());
        }
        let event = new_event(key, message, &self.source, recorded);
        let mut failures = 0;
        while let Err(error) = self.send_event(&event, is_known).await {
            failures += 1;
            // What the server has refused it will refuse again.
            let is_refused = matches!(&error, kube::Error::Api(_));
            if is_refused || error.is_not_leader() || failures >= MAX_TRIES {
                return Err(error);
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
        Ok(())
    }

    /// Counts an event; returns its first occurrence with the count, and whether it was written before.
    fn count_event(&mut self, key: &EventKey) -> (RecordedEvent, bool) {
        let is_known = self.written.get_mut(key).is_some();
        let recorded = self.written.get_or_insert_with(key.clone(), || {
            let first = Timestamp::now();
            let object = key.regarding[3].as_deref().unwrap_or("unknown");
            RecordedEvent { name: format!("{object}.{:016x}", first.as_nanosecond()), count: 0, first }
        });
        recorded.count += 1;
        (recorded.clone(), is_known)
    }

    /// Writes an event, or the count of one that exists. One that was deleted meanwhile is created again, with its count.
    async fn send_event(&self, event: &Event, is_known: bool) -> Result<(), kube::Error> {
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if is_known {
            let patch = json!({"count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message});
            let name = event.metadata.name.as_deref().unwrap_or_default();
            match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Err(error) if error.is_not_found() => {}
                result => return result.map(drop),
            }
        }
        api.create(&PostParams::default(), event).await.map(drop)
    }
}

/// Builds an event that happened now, and its count so far; it is named after its object and the first time, as client-go does.
fn new_event(key: &EventKey, message: String, source: &EventSource, recorded: RecordedEvent) -> Event {
    Event {
        metadata: ObjectMeta {
            name: Some(recorded.name),
            namespace: Some(key.namespace().into()),
            ..Default::default()
        },
        involved_object: key.involved_object(),
        type_: Some(key.type_.into()),
        reason: Some(key.reason.clone()),
        message: Some(message),
        count: Some(recorded.count),
        first_timestamp: Some(Time(recorded.first)),
        last_timestamp: Some(Time(Timestamp::now())),
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

    /// Returns a client whose server answers with these statuses in turn, 0 breaking the connection, and records methods
    /// and counts.
    fn scripted(statuses: Vec<u16>, seen: Arc<Mutex<Vec<(String, i64)>>>) -> Client {
        let statuses = Arc::new(Mutex::new(statuses.into_iter()));
        crate::transport::in_process_client(
            tower::service_fn(move |request: Request<Body>| {
                let (statuses, seen) = (statuses.clone(), seen.clone());
                async move {
                    let (head, body) = request.into_parts();
                    let body: serde_json::Value = serde_json::from_slice(&body.collect().await?.to_bytes())?;
                    seen.lock().unwrap().push((head.method.to_string(), body["count"].as_i64().unwrap()));
                    let code = statuses.lock().unwrap().next().unwrap_or(201);
                    let answer = match code {
                        0 => return Err("the connection broke".into()),
                        404 => json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
                            "code": 404, "message": "gone"}),
                        _ => json!({"metadata": {}, "involvedObject": {}}),
                    };
                    let response = Response::builder().status(code).body(Body::from(serde_json::to_vec(&answer)?));
                    Ok::<_, tower::BoxError>(response?)
                }
            }),
            "test",
        )
    }

    async fn check(statuses: Vec<u16>, events: usize, expected: &[(&str, i64)]) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let recorder = EventRecorder::new(scripted(statuses, seen.clone()), "tester", None);
        let node = ObjectReference { kind: Some("Node".into()), name: Some("n1".into()), ..Default::default() };
        for _ in 0..events {
            recorder.record_warning(node.clone(), "Odd", "something is odd");
            // Longer than similar events are remembered.
            tokio::time::sleep(Duration::from_secs(900)).await;
        }
        let seen = seen.lock().unwrap().clone();
        let seen: Vec<_> = seen.iter().map(|(method, count)| (method.as_str(), *count)).collect();
        assert_eq!(seen, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn deleted_event_is_created_again_with_its_count() {
        check(vec![201, 200, 404, 201, 200], 4, &[("POST", 1), ("PATCH", 2), ("PATCH", 3), ("POST", 3), ("PATCH", 4)])
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn write_that_does_not_reach_the_server_is_tried_again() {
        check(vec![0, 0, 201, 200], 2, &[("POST", 1), ("POST", 1), ("POST", 1), ("PATCH", 2)]).await;
        let tries: Vec<_> = (0..MAX_TRIES).map(|_| ("POST", 1)).collect();
        check(vec![0; MAX_TRIES as usize], 1, &tries).await;
    }

    /// Returns a client whose server echoes and records every request.
    fn echo(seen: Seen, done: Arc<tokio::sync::Semaphore>) -> Client {
        crate::transport::in_process_client(
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
    async fn equal_events_increment_the_count() {
        let (seen, done) = (Seen::default(), Arc::new(tokio::sync::Semaphore::new(0)));
        let recorder = EventRecorder::new(echo(seen.clone(), done.clone()), "tester", None);
        let node = ObjectReference { kind: Some("Node".into()), name: Some("n1".into()), ..Default::default() };
        recorder.record_warning(node.clone(), "Odd", "something is odd");
        recorder.record_warning(node.clone(), "Odd", "something is odd");
        recorder.record_normal(node, "Fine", "all is well");
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
