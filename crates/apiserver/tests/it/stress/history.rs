//! The events that a watcher must receive, from the store's own history.

use std::sync::Arc;

use futures::StreamExt;
use serde_json::Value;
use store::{Store, StoreEvent};

use crate::stress::watcher::Scope;

/// One event as a watcher sees it: what happened, to what, at which revision, with which content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// ADDED, MODIFIED or DELETED.
    pub kind: String,
    /// Namespace and name.
    pub object: String,
    /// The revision of the change.
    pub revision: u64,
    /// The number of the write that made the content.
    pub content: String,
}

/// Every change after a revision, up to now.
pub async fn read(store: &Arc<dyn Store>, after: u64) -> Vec<StoreEvent> {
    let now = store.revision().await.unwrap();
    let mut events = store.watch("/registry/", after).await.unwrap();
    let mut history = Vec::new();
    while let Some(event) = events.next().await {
        let event = event.expect("the whole history is there");
        let last = event.revision >= now;
        history.push(event);
        if last {
            break;
        }
    }
    history
}

/// Returns the events of a history in this scope, up to its end.
pub fn told(history: &[StoreEvent], scope: &Scope) -> Vec<Told> {
    let mut told = Vec::new();
    for event in history.iter().filter(|event| event.key.starts_with(&scope.prefix())) {
        let before = event.previous.as_ref().map(|record| parse(&record.value)).filter(|o| scope.selects(o));
        let after = event.value.as_ref().map(|value| parse(value)).filter(|object| scope.selects(object));
        // An object that leaves a selection is told of as it was when it was in it.
        let (kind, object) = match (&before, &after) {
            (None, Some(object)) => ("ADDED", object),
            (Some(_), Some(object)) => ("MODIFIED", object),
            (Some(object), None) => ("DELETED", object),
            (None, None) => continue,
        };
        told.push(seen(kind, object, event.revision));
        if kind != "DELETED" && scope.ends(object) {
            break;
        }
    }
    told
}

/// An event of an object.
pub fn seen(kind: &str, object: &Value, revision: u64) -> Told {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"));
    Told { kind: kind.into(), object: name, revision, content: text("/metadata/annotations/write") }
}

fn parse(document: &[u8]) -> Value {
    serde_json::from_slice(document).expect("the embedded store keeps JSON")
}

/// Says where two sequences part.
pub fn compare(heard: &[Told], expected: &[Told], scope: &Scope) {
    for (at, (heard, expected)) in heard.iter().zip(expected).enumerate() {
        assert_eq!(heard, expected, "event {at} of {scope:?}");
    }
    assert_eq!(heard.len(), expected.len(), "the number of events of {scope:?}");
}
