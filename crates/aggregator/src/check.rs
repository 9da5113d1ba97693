//! Whether an aggregated server is there: its service, what is behind it, and what it says of its version.

use std::{sync::Arc, time::Duration};

use apiserver_core::{Body, User, body::full_body, services::ServiceResolver};
use futures::{StreamExt, stream::FuturesUnordered};
use http::Request;

use super::{Api, identity, proxy, remote::{self, Remote}, view::Condition};

/// How often a server is asked at once: one answer is enough.
const ATTEMPTS: usize = 5;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a check came to.
pub struct Found {
    /// What is to be said.
    pub condition: Condition,
    /// Whether to look again soon: nobody will tell when the server is back.
    pub again: bool,
}

/// What is to be said of an API service that this server itself answers.
pub fn local() -> Condition {
    condition("True", "Local", "Local APIServices are always available".into())
}

/// Looks whether a server is there.
pub async fn look(services: &ServiceResolver, api: &Api, remote: &Arc<Remote>) -> Found {
    if let Some(condition) = nowhere(services, remote) {
        return Found { condition, again: false };
    }
    let path = api.path();
    let mut attempts: FuturesUnordered<_> = (0..ATTEMPTS).map(|_| ask(services, remote, &path)).collect();
    let mut why = String::new();
    while let Some(answered) = attempts.next().await {
        match answered {
            Ok(()) => {
                return Found { condition: condition("True", "Passed", "all checks passed".into()), again: false };
            }
            Err(told) => why = told,
        }
    }
    Found { condition: condition("False", "FailedDiscoveryCheck", why), again: true }
}

/// Why its service leads nowhere.
fn nowhere(services: &ServiceResolver, remote: &Remote) -> Option<Condition> {
    let remote::Place { namespace, name, port } = &remote.place;
    let missing = |reason, message| Some(condition("False", reason, message));
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

/// Asks for what every server must have.
async fn ask(services: &ServiceResolver, remote: &Remote, path: &str) -> Result<(), String> {
    let client = remote.client.as_ref().map_err(Clone::clone)?;
    let url = remote::url(&remote.resolve(services).await?, path)?;
    let mut request: Request<Body> = Request::new(full_body(""));
    *request.uri_mut() = url.clone();
    identity::tell(request.headers_mut(), &aggregator());
    let failed = |why: String| format!("failing or missing response from {url}: {why}");
    let answered = tokio::time::timeout(PATIENCE, client.request(request)).await;
    let late = |_| failed(format!("Get \"{url}\": context deadline exceeded"));
    match answered.map_err(late)? {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => Err(failed(format!("bad status from {url}: {}", answer.status().as_u16()))),
        Err(error) => Err(failed(format!("Get \"{url}\": {}", proxy::why(&error)))),
    }
}

/// Who this server is to aggregated ones when it asks on its own account: somebody who may read everything.
pub fn aggregator() -> User {
    User { name: "system:kube-aggregator".into(), groups: vec!["system:masters".into()], ..User::default() }
}

fn condition(status: &str, reason: &str, message: String) -> Condition {
    Condition { status: status.into(), reason: reason.into(), message }
}
