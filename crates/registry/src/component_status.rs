//! `componentstatuses`, deprecated: probes the health endpoints of the other control plane components on request.

use std::time::Duration;

use api::{
    Value,
    selector::{FieldSelector, LabelSelector},
    status::Status,
};
use apiserver_core::{
    backend::without_verification,
    body::RequestBody,
    http_client::{Endpoint, HttpClientError, TlsConfigError, client_config_builder},
    request::ResourceRequest,
};
use async_trait::async_trait;
use futures::future::join_all;
use serde_json::json;

use crate::{ListOptions, Registry, RequestOutcome, VirtualResource};

/// Timeout of a health probe.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(20);
/// The component name of the store.
const STORE_NAME: &str = "etcd-0";

/// The message of a failed condition.
#[derive(Debug, thiserror::Error)]
enum HealthError {
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
    #[error("Get {url:?}: {source}")]
    Get { url: String, source: HttpClientError },
    #[error("{0}")]
    Unhealthy(String),
    #[error(transparent)]
    Store(#[from] store::StoreError),
    #[error("store health check timed out")]
    StoreTimeout(#[from] tokio::time::error::Elapsed),
}

/// A control plane component on this machine.
#[derive(Clone, Debug)]
pub struct ComponentEndpoint {
    /// Its name.
    pub name: &'static str,
    /// Its health URL.
    pub url: String,
}

impl ComponentEndpoint {
    /// The components that upstream expects beside an API server.
    pub fn default_components() -> Vec<Self> {
        let at = |name, port| Self { name, url: format!("https://127.0.0.1:{port}/healthz") };
        vec![at("controller-manager", 10257), at("scheduler", 10259)]
    }

    /// Probes the component.
    async fn check_health(&self) -> Result<String, HealthError> {
        // The endpoint is on this machine, so its certificate is not verified.
        let tls = client_config_builder(rustls::RootCertStore::empty())?;
        let tls = without_verification(&tls.with_no_client_auth());
        let failed = |source| HealthError::Get { url: self.url.clone(), source };
        let answer = Endpoint::new(&self.url, tls).map_err(failed)?.get(HEALTH_TIMEOUT).await.map_err(failed)?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        if answer.status.is_success() { Ok(text) } else { Err(HealthError::Unhealthy(text)) }
    }
}

/// Handles requests for `componentstatuses`.
pub struct ComponentStatusHandler {
    /// The components whose health is reported.
    pub components: Vec<ComponentEndpoint>,
}

#[async_trait]
impl VirtualResource for ComponentStatusHandler {
    async fn handle(
        &self,
        registry: &Registry,
        request: &ResourceRequest,
        _: &RequestBody,
    ) -> Result<RequestOutcome, Status> {
        if request.verb == "list" {
            let chosen = list_filter(request)?;
            let all = join_all(self.component_names().map(|name| self.component_status(registry, name))).await;
            return Ok(RequestOutcome::Objects(all.into_iter().flatten().filter(chosen).collect()));
        }
        match self.component_status(registry, &request.name).await {
            Some(object) => Ok(RequestOutcome::Object { object, stored: None, code: 200 }),
            None => Err(component_not_found(&request.name)),
        }
    }
}

/// The filter of a list request.
fn list_filter(request: &ResourceRequest) -> Result<impl Fn(&Value) -> bool, Status> {
    // Validates the list options.
    ListOptions::from_request(request)?;
    let text = |name: &str| request.query.get(name).unwrap_or_default();
    let bad = |error: api::selector::SelectorError| Status::bad_request(error.to_string());
    let labels = LabelSelector::parse(text("labelSelector")).map_err(bad)?;
    let fields = FieldSelector::parse(text("fieldSelector"), &request.resource).map_err(bad)?;
    Ok(move |object: &Value| labels.matches(&Value::Null) && fields.matches(object))
}

impl ComponentStatusHandler {
    fn component_names(&self) -> impl Iterator<Item = &'static str> {
        self.components.iter().map(|component| component.name).chain([STORE_NAME])
    }

    /// The `ComponentStatus` of a component; `None` if it is unknown.
    async fn component_status(&self, registry: &Registry, name: &str) -> Option<Value> {
        let said = match self.components.iter().find(|component| component.name == name) {
            Some(component) => component.check_health().await,
            None if name == STORE_NAME => check_store(registry).await,
            None => return None,
        };
        let (status, message) = match said {
            Ok(text) => ("True", text),
            Err(error) => ("False", error.to_string()),
        };
        let condition = json!({"type": "Healthy", "status": status, "message": message});
        Some(
            json!({"kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": name}, "conditions": [condition]}),
        )
    }
}

async fn check_store(registry: &Registry) -> Result<String, HealthError> {
    tokio::time::timeout(HEALTH_TIMEOUT, registry.store().check_health()).await??;
    Ok("ok".to_owned())
}

fn component_not_found(name: &str) -> Status {
    let message = format!("componentstatus {name:?} not found");
    Status::new(404, "NotFound", message).with_details(json!({"name": name, "kind": "componentstatus"}))
}
