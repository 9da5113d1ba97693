//! Availability checks of aggregated servers: service, endpoints and a discovery request.

use std::{sync::Arc, time::Duration};

use apiserver_core::{
    Body, User,
    body::full_body,
    http_client::HttpClientError,
    services::{ResolveError, ServiceResolver},
};
use futures::{StreamExt, stream::FuturesUnordered};
use http::{Request, Uri};

use super::{
    ApiService,
    api_service_index::AvailableCondition,
    identity,
    remote::{self, AggregatedServer, RemoteError},
};

/// Concurrent probes per check; one success is enough.
const MAX_ATTEMPTS: usize = 5;
/// Timeout of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of an availability check.
pub struct CheckResult {
    /// The condition to write.
    pub condition: AvailableCondition,
    /// Whether to retry with back-off, because no watch event reports the recovery.
    pub retry: bool,
}

/// The condition of local API services.
pub fn local_condition() -> AvailableCondition {
    new_condition("True", "Local", "Local APIServices are always available".into())
}

/// Checks whether a server is available.
pub async fn check_server(services: &ServiceResolver, api: &ApiService, remote: &Arc<AggregatedServer>) -> CheckResult {
    if let Some(condition) = service_error(services, remote) {
        return CheckResult { condition, retry: false };
    }
    let path = api.group_version_path();
    let mut attempts: FuturesUnordered<_> = (0..MAX_ATTEMPTS).map(|_| probe_server(services, remote, &path)).collect();
    let mut why = String::new();
    while let Some(answered) = attempts.next().await {
        match answered {
            Ok(()) => {
                return CheckResult {
                    condition: new_condition("True", "Passed", "all checks passed".into()),
                    retry: false,
                };
            }
            Err(error) => why = error.to_string(),
        }
    }
    CheckResult { condition: new_condition("False", "FailedDiscoveryCheck", why), retry: true }
}

/// The condition of a server without a usable service or endpoints.
fn service_error(services: &ServiceResolver, remote: &AggregatedServer) -> Option<AvailableCondition> {
    let remote::ServicePort { namespace, name, port } = &remote.service_port;
    let missing = |reason, message| Some(new_condition("False", reason, message));
    let Some((service, slices)) = services.find_service(namespace, name) else {
        return missing("ServiceNotFound", format!("service/{name} in {namespace:?} is not present"));
    };
    if service.service_type != "ClusterIP" {
        return None;
    }
    let Some(wanted) = service.port_name(*port) else {
        let message = format!("service/{name} in {namespace:?} is not listening on port {port}");
        return missing("ServicePortError", message);
    };
    if slices.is_empty() {
        let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
        return missing("EndpointsNotFound", message);
    }
    if !slices.iter().any(|slice| slice.is_ready(wanted)) {
        let message =
            format!("endpointslices for service/{name} in {namespace:?} have no addresses with port name {wanted:?}");
        return missing("MissingEndpoints", message);
    }
    None
}

/// A failed discovery request.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error(transparent)]
    Client(#[from] Arc<RemoteError>),
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    #[error(transparent)]
    Url(#[from] http::Error),
    #[error("failing or missing response from {0}: Get \"{0}\": context deadline exceeded")]
    Timeout(Uri),
    #[error("failing or missing response from {0}: Get \"{0}\": {1}")]
    Request(Uri, HttpClientError),
    #[error("failing or missing response from {0}: bad status from {0}: {1}")]
    Status(Uri, u16),
}

/// Requests the discovery document of the group-version.
async fn probe_server(services: &ServiceResolver, remote: &AggregatedServer, path: &str) -> Result<(), ProbeError> {
    let client = remote.client.as_ref().map_err(Arc::clone)?;
    let url = remote::build_url(&remote.resolve_authority(services).await?, path)?;
    let mut request: Request<Body> = Request::new(full_body(""));
    *request.uri_mut() = url.clone();
    identity::set_user_headers(request.headers_mut(), &aggregator_user());
    match tokio::time::timeout(PROBE_TIMEOUT, client.send_request(request)).await {
        Ok(Ok(response)) if response.status().is_success() => Ok(()),
        Ok(Ok(response)) => Err(ProbeError::Status(url, response.status().as_u16())),
        Ok(Err(error)) => Err(ProbeError::Request(url, error)),
        Err(_) => Err(ProbeError::Timeout(url)),
    }
}

/// The user of the aggregator's own requests.
pub fn aggregator_user() -> User {
    User { name: "system:kube-aggregator".into(), groups: vec!["system:masters".into()], ..User::default() }
}

fn new_condition(status: &str, reason: &str, message: String) -> AvailableCondition {
    AvailableCondition { status: status.into(), reason: reason.into(), message }
}
