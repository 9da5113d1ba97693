//! Records `events.k8s.io/v1` Events without blocking or failing the caller, as upstream's scheduler does.
//!
//! Events are isomorphic if they differ in note and time only. The second of them within [`SERIES_LIFETIME`] makes the first
//! a series; further ones are counted and written every [`REFRESH_PERIOD`].

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};

use crate::errors::ApiErrorExt;

/// Capacity of the write queue; events beyond it are dropped.
const CAPACITY: usize = 1000;
/// Number of requests at a time.
const WRITERS: usize = 8;
/// Time after which an event that did not happen again is forgotten.
pub const SERIES_LIFETIME: Duration = Duration::from_secs(6 * 60);
/// Interval between writes of the counts of series.
const REFRESH_PERIOD: Duration = Duration::from_secs(30 * 60);
/// Number of tries of a write.
const MAX_TRIES: u32 = 12;
/// Delay between tries.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// An event to record.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// `Normal` or `Warning`.
    pub type_: &'static str,
    /// The object that the event is about.
    pub regarding: ObjectReference,
    /// Another object that is involved.
    pub related: Option<ObjectReference>,
    /// Why the action was taken.
    pub reason: &'static str,
    /// The action that was taken or tried.
    pub action: &'static str,
    /// The message.
    pub note: String,
}

/// Writes `events.k8s.io/v1` Events for one component. Cheap to clone.
#[derive(Clone)]
pub struct EventSeriesRecorder {
    sender: mpsc::Sender<Event>,
    component: Arc<str>,
    instance: Arc<str>,
}

impl EventSeriesRecorder {
    /// Creates a recorder for `component` on this host; it writes until all its clones are dropped.
    pub fn new(client: Client, component: &str, host: &str) -> Self {
        let (sender, events) = mpsc::channel(CAPACITY);
        let writer = Arc::new(SeriesWriter { client, known: Mutex::default(), slots: Semaphore::new(WRITERS) });
        tokio::spawn(writer.run(events));
        Self { sender, component: component.into(), instance: format!("{component}-{host}").into() }
    }

    /// Records an event.
    pub fn record(&self, event: NewEvent) {
        let now = Timestamp::now();
        let namespace = event.regarding.namespace.clone().filter(|namespace| !namespace.is_empty());
        let name = format!("{}.{:016x}", event.regarding.name.as_deref().unwrap_or(""), now.as_nanosecond());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace.unwrap_or_else(|| "default".into())),
                ..Default::default()
            },
            event_time: Some(MicroTime(now)),
            reporting_controller: Some(self.component.to_string()),
            reporting_instance: Some(self.instance.to_string()),
            action: Some(event.action.into()),
            reason: Some(event.reason.into()),
            regarding: Some(event.regarding),
            related: event.related,
            note: Some(event.note),
            type_: Some(event.type_.into()),
            ..Default::default()
        };
        if let Err(mpsc::error::TrySendError::Full(event)) = self.sender.try_send(event) {
            tracing::warn!(event = ?event.metadata.name, "event recorder: queue full, event dropped");
        }
    }
}

/// Key by which events are isomorphic: type, action, reason, reporter, and the two references.
#[derive(Clone, PartialEq, Eq, Hash)]
struct SeriesKey([Option<String>; 4], [Option<String>; 12]);

impl SeriesKey {
    fn from_event(event: &Event) -> Self {
        let parts = |reference: Option<&ObjectReference>| {
            let reference = reference.cloned().unwrap_or_default();
            [
                reference.api_version,
                reference.kind,
                reference.namespace,
                reference.name,
                reference.uid,
                reference.resource_version,
            ]
        };
        let mut references: [Option<String>; 12] = Default::default();
        let both = parts(event.regarding.as_ref()).into_iter().chain(parts(event.related.as_ref()));
        references.iter_mut().zip(both).for_each(|(place, part)| *place = part);
        let own = [&event.type_, &event.action, &event.reason, &event.reporting_controller];
        Self(own.map(Clone::clone), references)
    }
}

/// State of the task that writes events.
struct SeriesWriter {
    client: Client,
    known: Mutex<HashMap<SeriesKey, Event>>,
    slots: Semaphore,
}

impl SeriesWriter {
    async fn run(self: Arc<Self>, mut events: mpsc::Receiver<Event>) {
        let start = tokio::time::Instant::now();
        let mut forget = tokio::time::interval_at(start + SERIES_LIFETIME, SERIES_LIFETIME);
        let mut refresh = tokio::time::interval_at(start + REFRESH_PERIOD, REFRESH_PERIOD);
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.clone().write_in_background(self.correlate(event)).await,
                    None => return,
                },
                _ = forget.tick() => {
                    for event in self.take_finished() {
                        self.clone().write_in_background(Some(event)).await;
                    }
                }
                _ = refresh.tick() => {
                    let series: Vec<Event> =
                        self.lock_known().values().filter(|event| event.series.is_some()).cloned().collect();
                    for event in series {
                        self.clone().write_in_background(Some(event)).await;
                    }
                }
            }
        }
    }

    /// Returns what is to be written about an event: itself, or the beginning of a series.
    fn correlate(&self, event: Event) -> Option<Event> {
        let mut known = self.lock_known();
        let now = MicroTime(Timestamp::now());
        match known.get_mut(&SeriesKey::from_event(&event)) {
            Some(Event { series: Some(series), .. }) => {
                series.count += 1;
                series.last_observed_time = now;
                None
            }
            Some(first) => {
                first.series = Some(EventSeries { count: 2, last_observed_time: now });
                Some(first.clone())
            }
            None => {
                known.insert(SeriesKey::from_event(&event), event.clone());
                Some(event)
            }
        }
    }

    /// Forgets events that did not happen again, and returns the series among them for a last write.
    fn take_finished(&self) -> Vec<Event> {
        let now = Timestamp::now();
        let mut finished = Vec::new();
        self.lock_known().retain(|_, event| {
            let last = event.series.as_ref().map(|series| &series.last_observed_time).or(event.event_time.as_ref());
            let age = last.map_or(0, |last| now.as_second() - last.0.as_second());
            let keep = u64::try_from(age).unwrap_or(0) < SERIES_LIFETIME.as_secs();
            if !keep && event.series.is_some() {
                finished.push(event.clone());
            }
            keep
        });
        finished
    }

    async fn write_in_background(self: Arc<Self>, event: Option<Event>) {
        let Some(event) = event else { return };
        // The semaphore is never closed.
        let Ok(slot) = self.slots.acquire().await else { return };
        slot.forget();
        tokio::spawn(async move {
            self.write_with_retries(&event).await;
            self.slots.add_permits(1);
        });
    }

    async fn write_with_retries(&self, event: &Event) {
        for _ in 0..MAX_TRIES {
            match self.write_event(event).await {
                Ok(()) => return,
                Err(kube::Error::Api(status)) => {
                    tracing::debug!(event = ?event.metadata.name, %status, "event recorder: event rejected");
                    return;
                }
                Err(error) => {
                    tracing::debug!(event = ?event.metadata.name, %error, "event recorder: write failed, retrying");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    async fn write_event(&self, event: &Event) -> Result<(), kube::Error> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), event.metadata.namespace.as_deref().unwrap_or(""));
        if let (Some(series), Some(name)) = (&event.series, &event.metadata.name) {
            let patch = json!({"series": series});
            match api.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await {
                Err(error) if error.is_not_found() => {}
                result => return result.map(drop),
            }
        }
        api.create(&PostParams::default(), event).await.map(drop)
    }

    fn lock_known(&self) -> MutexGuard<'_, HashMap<SeriesKey, Event>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use http_body_util::BodyExt;
    use kube::client::Body;

    use super::*;

    type Seen = Arc<Mutex<Vec<(String, serde_json::Value)>>>;

    fn echo(seen: Seen, done: Arc<Semaphore>) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let (seen, done) = (seen.clone(), done.clone());
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                seen.lock().unwrap().push((head.method.to_string(), serde_json::from_slice(&body)?));
                done.add_permits(1);
                Ok::<_, tower::BoxError>(Response::new(Body::from(serde_json::to_vec(&Event::default())?)))
            }
        });
        crate::transport::in_process_client(service, "test")
    }

    fn event(name: &str, note: &str) -> NewEvent {
        NewEvent {
            type_: "Warning",
            regarding: ObjectReference { name: Some(name.into()), ..Default::default() },
            related: None,
            reason: "FailedScheduling",
            action: "Scheduling",
            note: note.into(),
        }
    }

    #[tokio::test]
    async fn second_event_begins_a_series_whatever_its_note() {
        let (seen, done) = (Seen::default(), Arc::new(Semaphore::new(0)));
        let recorder = EventSeriesRecorder::new(echo(seen.clone(), done.clone()), "tester", "host");
        for (pod, note) in [("a", "one"), ("a", "two"), ("a", "three"), ("b", "one")] {
            recorder.record(event(pod, note));
        }
        done.acquire_many(3).await.unwrap().forget();
        let seen = seen.lock().unwrap();
        let mut methods: Vec<_> = seen.iter().map(|(method, _)| method.as_str()).collect();
        methods.sort_unstable();
        assert_eq!(methods, ["PATCH", "POST", "POST"]);
        let (_, patch) = seen.iter().find(|(method, _)| method == "PATCH").unwrap();
        assert!(patch["series"]["count"].as_i64() >= Some(2), "{patch}");
        let (_, first) = seen.iter().find(|(_, body)| body["note"] == "one").unwrap();
        assert_eq!(first["reportingInstance"], "tester-host");
    }
}
