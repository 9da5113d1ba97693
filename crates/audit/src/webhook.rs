//! The webhook backend: sends EventLists.

use std::{sync::Arc, time::Duration};

use api::Value;
use apiserver_core::http_client::{Endpoint, HttpClientError, RetryBackoff, with_backoff};
use serde_json::json;

use super::{
    backend_config::{BackendMode, BatchConfig},
    truncate::TruncateConfig,
};

/// Timeout of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The configuration of the audit webhook.
#[derive(Clone, Debug)]
pub struct WebhookBackendConfig {
    /// The endpoint.
    pub endpoint: Arc<Endpoint>,
    /// When events are sent.
    pub mode: BackendMode,
    /// Batching.
    pub batch: BatchConfig,
    /// Truncation of large events.
    pub truncation: TruncateConfig,
    /// Delay before the first retry.
    pub pause: Duration,
}

impl WebhookBackendConfig {
    /// Sends events as one EventList.
    pub async fn send_events(&self, events: &[Arc<Value>]) -> Result<(), HttpClientError> {
        let items: Vec<&Value> = events.iter().map(|event| &**event).collect();
        let list = json!({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": {}, "items": items});
        let body = bytes::Bytes::from(list.to_string());
        let response = with_backoff(RetryBackoff::with_initial_delay(self.pause), || {
            self.endpoint.post(body.clone(), CALL_TIMEOUT)
        })
        .await;
        response?.into_success_body().map(drop)
    }
}
