//! The webhook backend: sends EventLists.

use std::{sync::Arc, time::Duration};

use api::Value;
use apiserver_core::http_client::{Endpoint, RetryBackoff, with_backoff};
use serde_json::json;

use super::{BatchSettings, Mode, Truncation};

/// Timeout of one call.
const LIMIT: Duration = Duration::from_secs(30);

/// The configuration of the audit webhook.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    /// The endpoint.
    pub endpoint: Arc<Endpoint>,
    /// When events are sent.
    pub mode: Mode,
    /// Batching.
    pub batch: BatchSettings,
    /// Truncation of large events.
    pub truncation: Truncation,
    /// Delay before the first retry.
    pub pause: Duration,
}

impl WebhookSettings {
    /// Sends events as one EventList.
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
