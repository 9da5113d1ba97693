//! Endpoints by identity: addresses, hostname and target.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    core::v1::ObjectReference,
    discovery::v1::{Endpoint, EndpointSlice},
};

/// Identity of an endpoint; a change of anything else is an update in place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EndpointIdentity {
    addresses: Vec<String>,
    hostname: String,
    namespace: String,
    name: String,
}

/// A set of endpoints.
pub(crate) type EndpointSet = BTreeMap<EndpointIdentity, Endpoint>;

/// Returns an endpoint's identity.
pub(crate) fn endpoint_identity(endpoint: &Endpoint) -> EndpointIdentity {
    let target = endpoint.target_ref.as_ref();
    let mut addresses = endpoint.addresses.clone();
    addresses.sort_unstable();
    EndpointIdentity {
        addresses,
        hostname: endpoint.hostname.clone().unwrap_or_default(),
        namespace: target.and_then(|target| target.namespace.clone()).unwrap_or_default(),
        name: target.and_then(|target| target.name.clone()).unwrap_or_default(),
    }
}

/// Whether two endpoints of one identity are equal. Hints and the target's resource version do not count.
pub(crate) fn is_same_endpoint(one: &Endpoint, other: &Endpoint) -> bool {
    let conditions = |endpoint: &Endpoint| {
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        (conditions.ready, conditions.serving, conditions.terminating)
    };
    one.node_name == other.node_name
        && one.zone == other.zone
        && conditions(one) == conditions(other)
        && without_version(&one.target_ref) == without_version(&other.target_ref)
}

/// Whether the endpoint is ready.
pub(crate) fn is_endpoint_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(true)
}

/// Returns a reference without its resource version.
pub(crate) fn without_version(reference: &Option<ObjectReference>) -> Option<ObjectReference> {
    reference.clone().map(|reference| ObjectReference { resource_version: None, ..reference })
}

/// Returns the endpoints of a slice.
pub(crate) fn slice_endpoints(slice: &EndpointSlice) -> &[Endpoint] {
    slice.endpoints.as_deref().unwrap_or_default()
}
