//! Events that somebody else keeps: a webhook is sent lists of them.

use std::{sync::Arc, time::Duration};

use api::Value;
use apiserver_core::http_client::{Endpoint, RetryBackoff, with_backoff};
use serde_json::json;

use super::{BatchSettings, Mode, Truncation};

/// How long one call may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Where events are sent.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    /// Where it is.
    pub endpoint: Arc<Endpoint>,
    /// When events are sent.
    pub mode: Mode,
    /// How they wait for each other, if they do.
    pub batch: BatchSettings,
    /// What becomes of large ones.
    pub truncation: Truncation,
    /// The pause before a call is tried again.
    pub pause: Duration,
}

impl WebhookSettings {
    /// Sends events together.
    pub async fn send(&self, events: &[Arc<Value>]) -> Result<(), String> {
        let items: Vec<&Value> = events.iter().map(|event| &**event).collect();
        let list = json!({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": {}, "items": items});
        let body = bytes::Bytes::from(list.to_string());
        let answer =
            with_backoff(RetryBackoff::with_initial_delay(self.pause), || self.endpoint.post(body.clone(), LIMIT))
                .await;
        answer.and_then(|answer| answer.into_success_body()).map(drop).map_err(|error| error.to_string())
    }
}
