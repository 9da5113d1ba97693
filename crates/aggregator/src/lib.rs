//! Aggregated API servers: groups and versions that another server answers for, named by an `APIService` with a service.
//!
//! A request for one of them goes through the pipeline as any other, up to and with authorization ([`route`]), and is then passed
//! on byte for byte ([`proxy`]): the other server is told who asks in headers, and believes them for the sake of the certificate
//! that this server shows. Credentials never leave this server. [`Aggregator`] is a view of the services in step with the
//! watch cache.

mod available;
mod certificate;
mod check;
mod connect;
mod discovery_cache;
mod documents;
mod identity;
mod legacy;
mod order;
mod proxy;
mod remote;
mod swagger;
mod view;

use std::sync::Arc;

use api::{schema::Resource, status::Status};
use apiserver_core::{
    cache_index::CacheIndex,
    document, loopback,
    metrics::{MetricsPage, family::CounterFamily},
    storage::ObjectStorage,
};
pub use available::run;
pub use certificate::{CertificateError, ClientCertificate};
use store::{CacheWatcher, WatchCache};
use tokio_util::sync::CancellationToken;
pub use view::Api;

use self::{discovery_cache::DiscoveryCache, documents::Made, view::Apis};

/// The group of the services themselves, which nobody else answers for.
const OWN_GROUP: &str = "apiregistration.k8s.io";

const UNAVAILABLE: &str =
    "[ALPHA] Gauge of APIServices which are marked as unavailable broken down by APIService name.";
const LOST: &str =
    "[ALPHA] Counter of APIServices which are marked as unavailable broken down by APIService name and reason.";

/// How aggregated API servers are reached.
#[derive(Clone, Debug, Default)]
pub struct Aggregation {
    /// What shows them that it is this server who calls.
    pub certificate: Option<ClientCertificate>,
    /// Whether their clients are told that they lead elsewhere.
    pub redirects: bool,
}

/// The API services of a cluster.
pub struct Aggregator {
    storage: Arc<dyn ObjectStorage>,
    cache: Arc<WatchCache>,
    /// Whether redirects of aggregated servers are passed on.
    redirects: bool,
    /// Cancelled when the server stops: proxied watches end.
    stopping: CancellationToken,
    apis: CacheIndex<Apis>,
    /// What the others say of their API.
    said: DiscoveryCache,
    /// What clients are told of it.
    made: Made,
    /// How often each became unavailable, by name and reason.
    lost: CounterFamily<(String, String)>,
}

impl Aggregator {
    /// The API services of a store.
    pub fn new(
        settings: &Aggregation,
        storage: Arc<dyn ObjectStorage>,
        cache: &Arc<WatchCache>,
        stopping: CancellationToken,
    ) -> Result<Self, store::StoreError> {
        let resource = services().map_err(|status| store::StoreError::Unusable(status.message))?;
        let apis = CacheIndex::new(cache, &[resource], Apis::new(settings.certificate.clone()))?;
        Ok(Self {
            storage,
            cache: cache.clone(),
            redirects: settings.redirects,
            stopping,
            apis,
            said: DiscoveryCache::default(),
            made: Made::default(),
            lost: CounterFamily::default(),
        })
    }

    /// Who answers for a path, if it is somebody else.
    pub fn remote_for_path(&self, path: &str) -> Option<Arc<Api>> {
        if let Some(document) = path.strip_prefix("/openapi/v3/") {
            return self.describer(document);
        }
        if !path.starts_with("/api") {
            return None;
        }
        self.apis.read(|apis| apis.elsewhere(path))
    }
}

impl Aggregator {
    /// All services as they are now, by name.
    fn all(&self) -> Vec<Arc<Api>> {
        self.apis.read(Apis::list)
    }

    /// One of them.
    fn get(&self, name: &str) -> Option<Arc<Api>> {
        self.apis.read(|apis| apis.get(name).cloned())
    }
}

impl Aggregator {
    /// What the page of metrics says of them.
    pub fn write(&self, page: &mut MetricsPage) {
        page.write_header("aggregator_unavailable_apiservice", UNAVAILABLE, "gauge");
        for api in self.all() {
            let value = if api.condition.is_available() { 0.0 } else { 1.0 };
            page.write_sample("aggregator_unavailable_apiservice", &format!("name={:?}", api.name), value);
        }
        let labels = |(name, reason): &(String, String)| format!("name={name:?},reason={reason:?}");
        page.write_counters("aggregator_unavailable_apiservice_total", LOST, &self.lost, labels);
    }

    /// Who has a document of OpenAPI 3, such as `apis/<group>/<version>`, if it is somebody else.
    fn describer(&self, document: &str) -> Option<Arc<Api>> {
        let apis = self.apis.read(|apis| apis.has_remotes().then(|| apis.list()))?;
        let describes = |api: &&Arc<Api>| self.documents_of(&apis, api).contains_key(document);
        apis.iter().find(describes).cloned()
    }
}

/// Word of every change of a resource from now on.
fn follow(cache: &WatchCache, group: &str, name: &str) -> Result<CacheWatcher, Status> {
    let prefix = document::storage_key(loopback::find_resource(group, "v1", name)?, "", "");
    cache.watch_prefix(&prefix, cache.cached_snapshot(&prefix).revision).map_err(Status::internal_error)
}

/// The row of API services.
fn services() -> Result<&'static Resource, Status> {
    loopback::find_resource(OWN_GROUP, "v1", "apiservices")
}
