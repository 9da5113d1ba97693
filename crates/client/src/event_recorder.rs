//! Records `v1` Events about objects without blocking or failing the caller.
//!
//! One task per recorder writes them. An event equal to one of the last ten minutes increments that event's count; many
//! similar ones are combined, and an object has a budget of events (see [`crate::event_correlator`]).

use std::{collections::HashMap, time::Instant};

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
    event_correlator::{AGGREGATION, EventCorrelator},
};

/// Capacity of the write queue; events beyond it are dropped.
const CAPACITY: usize = 1000;
/// Number of remembered events above which those past [`AGGREGATION`] are dropped.
const REMEMBERED: usize = 4096;

/// Writes `v1` Events for one component, counting equal events within ten minutes. Cheap to clone.
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
            EventWriter { client, source, written: HashMap::new(), correlator: EventCorrelator::new() }.run(keys),
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
    written: HashMap<EventKey, RecordedEvent>,
    correlator: EventCorrelator<EventKey, [Option<String>; 6]>,
}

/// An event that this recorder has written.
struct RecordedEvent {
    name: String,
    count: i32,
    at: Instant,
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
        if !self.correlator.take_budget(key.regarding.clone()) {
            return Ok(());
        }
        let api: Api<Event> = Api::namespaced(self.client.clone(), key.namespace());
        if let Some(written) = self.written.get_mut(key).filter(|written| written.at.elapsed() < AGGREGATION) {
            (written.count, written.at) = (written.count + 1, Instant::now());
            let patch = json!({"count": written.count, "lastTimestamp": Time(Timestamp::now()), "message": message});
            match api.patch(&written.name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Err(error) if error.is_not_found() => {}
                result => return result.map(drop),
            }
        }
        let event = new_event(key, message, &self.source, Timestamp::now());
        api.create(&PostParams::default(), &event).await?;
        self.remember_event(key.clone(), event.metadata.name.unwrap_or_default());
        Ok(())
    }

    fn remember_event(&mut self, key: EventKey, name: String) {
        if self.written.len() >= REMEMBERED {
            self.written.retain(|_, written| written.at.elapsed() < AGGREGATION);
        }
        if self.written.len() < REMEMBERED {
            self.written.insert(key, RecordedEvent { name, count: 1, at: Instant::now() });
        }
    }
}

/// Builds the first event of a series, named after its object and the time as client-go does.
fn new_event(key: &EventKey, message: String, source: &EventSource, now: Timestamp) -> Event {
    let involved_object = key.involved_object();
    let name = format!("{}.{:016x}", involved_object.name.as_deref().unwrap_or("unknown"), now.as_nanosecond());
    Event {
        metadata: ObjectMeta { name: Some(name), namespace: Some(key.namespace().into()), ..Default::default() },
        involved_object,
        type_: Some(key.type_.into()),
        reason: Some(key.reason.clone()),
        message: Some(message),
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
