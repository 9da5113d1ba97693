//! The resource metrics API, `metrics.k8s.io`: usage of nodes and pods for `kubectl top` and the horizontal pod
//! autoscaler.
//!
//! An aggregated API server with the behaviour of metrics-server. It scrapes `/metrics/resource` of every kubelet through the
//! API server's node proxy and serves what it has behind an APIService, which another implementation may take over.

mod documents;
mod handler;
mod point;
mod registration;
mod usage;

use std::{
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, ResourceExt, api::ListParams};
use tokio_util::sync::CancellationToken;

pub use self::registration::{SERVICE_DNS_NAME, register_metrics_api};
use self::{point::MetricsBatch, usage::MetricsStorage};

/// The time between scrapes while there are requests.
const RESOLUTION: Duration = Duration::from_secs(15);
/// The time between scrapes while there are none.
const IDLE_RESOLUTION: Duration = Duration::from_secs(60);
/// The time after a request in which others are expected.
const ACTIVE_SECONDS: i64 = 300;
/// The time for one kubelet.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(10);
/// Kubelets scraped at once.
const SCRAPES_AT_ONCE: usize = 10;

/// The metrics server.
pub struct MetricsServer {
    client: Client,
    storage: RwLock<MetricsStorage>,
    /// Second of the last request.
    requested: AtomicI64,
    request_user: String,
}

impl MetricsServer {
    /// Creates a server for requests of the client certificate with the name `request_user`, the API server's.
    pub fn new(client: Client, request_user: &str) -> Self {
        Self { client, storage: RwLock::default(), requested: AtomicI64::new(0), request_user: request_user.to_owned() }
    }

    /// Scrapes until `shutdown`.
    pub async fn run(&self, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.scrape_forever()).await;
    }

    async fn scrape_forever(&self) {
        // The second scrape comes soon, so that there is a first usage.
        let mut pause = RESOLUTION;
        loop {
            match self.scrape().await {
                Ok(batch) => {
                    let mut storage = self.storage.write().unwrap_or_else(PoisonError::into_inner);
                    storage.store(batch, pause.as_nanos() as i64);
                }
                Err(error) => tracing::warn!(%error, "metrics server: cannot list nodes"),
            }
            tokio::time::sleep(pause).await;
            let since_request = Timestamp::now().as_second() - self.requested.load(Ordering::Relaxed);
            pause = if since_request < ACTIVE_SECONDS { RESOLUTION } else { IDLE_RESOLUTION };
        }
    }

    async fn scrape(&self) -> kube::Result<MetricsBatch> {
        let nodes = Api::<Node>::all(self.client.clone()).list_metadata(&ListParams::default()).await?.items;
        let mut batch = MetricsBatch::default();
        let mut scrapes = stream::iter(nodes)
            .map(|node| async move {
                let name = node.name_any();
                let text = tokio::time::timeout(SCRAPE_TIMEOUT, self.scrape_node(&name)).await;
                (name, text)
            })
            .buffer_unordered(SCRAPES_AT_ONCE);
        while let Some((node, text)) = scrapes.next().await {
            match text {
                Ok(Ok(text)) => batch.add_node(&node, &text, Timestamp::now()),
                Ok(Err(error)) => tracing::warn!(node, %error, "metrics server: cannot scrape the kubelet"),
                Err(_) => tracing::warn!(node, "metrics server: the kubelet did not respond in time"),
            }
        }
        Ok(batch)
    }

    async fn scrape_node(&self, node: &str) -> kube::Result<String> {
        let path = format!("/api/v1/nodes/{node}/proxy/metrics/resource");
        let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        self.client.request_text(request).await
    }
}
