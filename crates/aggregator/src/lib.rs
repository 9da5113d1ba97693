//! API aggregation: serves group-versions of extension API servers, which an `APIService` with a service registers.
//!
//! The pipeline authenticates and authorizes such a request like any other; [`proxy`] then streams it to the extension
//! server. The user travels in `X-Remote-*` headers, which the server trusts because of the front-proxy client certificate;
//! credentials never leave this server. [`Aggregator`] indexes the API services from the watch cache.

mod api_service_index;
mod available;
mod check;
mod discovery_cache;
mod documents;
mod identity;
mod legacy;
mod order;
mod proxy;
mod remote;
mod swagger;

use std::sync::Arc;

use api::{schema::Resource, status::Status};
pub use api_service_index::ApiService;
use apiserver_core::{
    cache_index::CacheIndex,
    document, loopback,
    metrics::{MetricsPage, family::CounterFamily},
    storage::ObjectStorage,
};
pub use available::run_availability;
use rustls::client::ResolvesClientCert;
use store::{CacheWatcher, WatchCache};
use tokio_util::sync::CancellationToken;

use self::{api_service_index::ApiServiceIndex, discovery_cache::DiscoveryCache, documents::MergedDocuments};

/// The group of `APIService` itself, which is always local.
const OWN_GROUP: &str = "apiregistration.k8s.io";

const UNAVAILABLE: &str =
    "[ALPHA] Gauge of APIServices which are marked as unavailable broken down by APIService name.";
const UNAVAILABLE_TOTAL: &str =
    "[ALPHA] Counter of APIServices which are marked as unavailable broken down by APIService name and reason.";

/// Options of the connections to aggregated API servers.
#[derive(Clone, Debug, Default)]
pub struct AggregationOptions {
    /// The front-proxy client certificate, by which aggregated servers trust the `X-Remote-*` headers.
    pub certificate: Option<Arc<dyn ResolvesClientCert>>,
    /// Whether redirects of aggregated servers are returned to clients.
    pub redirects: bool,
}

/// The aggregation layer: API services, their availability and their discovery documents.
pub struct Aggregator {
    storage: Arc<dyn ObjectStorage>,
    cache: Arc<WatchCache>,
    /// Whether redirects of aggregated servers are passed on.
    redirects: bool,
    /// Cancelled when the server stops: proxied watches end.
    stopping: CancellationToken,
    apis: CacheIndex<ApiServiceIndex>,
    /// Discovery and OpenAPI documents of aggregated servers.
    discovery_cache: DiscoveryCache,
    /// Cache of the documents that clients see.
    merged_documents: MergedDocuments,
    /// Counter of transitions to unavailable, by name and reason.
    unavailable_total: CounterFamily<(String, String)>,
}

impl Aggregator {
    /// Creates the aggregation layer over the stored API services.
    pub fn new(
        settings: &AggregationOptions,
        storage: Arc<dyn ObjectStorage>,
        cache: &Arc<WatchCache>,
        stopping: CancellationToken,
    ) -> Result<Self, store::StoreError> {
        let resource = api_service_resource().map_err(|status| store::StoreError::Unusable(status.message))?;
        let apis = CacheIndex::new(cache, &[resource], ApiServiceIndex::new(settings.certificate.clone()))?;
        Ok(Self {
            storage,
            cache: cache.clone(),
            redirects: settings.redirects,
            stopping,
            apis,
            discovery_cache: DiscoveryCache::default(),
            merged_documents: MergedDocuments::default(),
            unavailable_total: CounterFamily::default(),
        })
    }

    /// The remote `APIService` that serves `path`, if any.
    pub fn remote_for_path(&self, path: &str) -> Option<Arc<ApiService>> {
        if let Some(document) = path.strip_prefix("/openapi/v3/") {
            return self.openapi_server(document);
        }
        if !path.starts_with("/api") {
            return None;
        }
        self.apis.read(|apis| apis.find_remote(path))
    }
}

impl Aggregator {
    /// All API services, by name.
    fn list_services(&self) -> Vec<Arc<ApiService>> {
        self.apis.read(ApiServiceIndex::list_services)
    }

    /// Returns an API service by name.
    fn get_service(&self, name: &str) -> Option<Arc<ApiService>> {
        self.apis.read(|apis| apis.get_service(name).cloned())
    }
}

impl Aggregator {
    /// Writes the aggregator's metrics.
    pub fn write_metrics(&self, page: &mut MetricsPage) {
        page.write_header("aggregator_unavailable_apiservice", UNAVAILABLE, "gauge");
        for api in self.list_services() {
            let value = if api.condition.is_available() { 0.0 } else { 1.0 };
            page.write_sample("aggregator_unavailable_apiservice", &format!("name={:?}", api.name), value);
        }
        let labels = |(name, reason): &(String, String)| format!("name={name:?},reason={reason:?}");
        page.write_counters(
            "aggregator_unavailable_apiservice_total",
            UNAVAILABLE_TOTAL,
            &self.unavailable_total,
            labels,
        );
    }

    /// The remote `APIService` that serves an OpenAPI v3 document such as `apis/<group>/<version>`, if any.
    fn openapi_server(&self, document: &str) -> Option<Arc<ApiService>> {
        let apis = self.apis.read(|apis| apis.has_remotes().then(|| apis.list_services()))?;
        let describes = |api: &&Arc<ApiService>| self.documents_of(&apis, api).contains_key(document);
        apis.iter().find(describes).cloned()
    }
}

/// Watches a resource from the current revision on.
fn watch_resource(cache: &WatchCache, group: &str, name: &str) -> Result<CacheWatcher, Status> {
    let prefix = document::storage_key(loopback::find_resource(group, "v1", name)?, "", "");
    cache.watch_prefix(&prefix, cache.cached_snapshot(&prefix).revision).map_err(Status::internal_error)
}

/// The resource `apiservices`.
fn api_service_resource() -> Result<&'static Resource, Status> {
    loopback::find_resource(OWN_GROUP, "v1", "apiservices")
}
