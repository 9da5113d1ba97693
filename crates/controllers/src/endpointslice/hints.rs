//! Endpoint hints of `spec.trafficDistribution`: `PreferSameZone`, its old name `PreferClose`, and `PreferSameNode`.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    core::v1::Service,
    discovery::v1::{Endpoint, EndpointHints, EndpointSlice, ForNode, ForZone},
};

use super::reconcile::SlicePlan;
use crate::service_endpoints::endpoint_set::{is_endpoint_ready, slice_endpoints};

const TOPOLOGY_HINTS_ANNOTATION: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE_ANNOTATION: &str = "service.kubernetes.io/topology-mode";

/// A supported traffic distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrafficDistribution {
    SameZone,
    SameNode,
}

impl TrafficDistribution {
    /// Returns the service's traffic distribution, which the topology annotation overrides.
    pub(super) fn of_service(service: &Service) -> Option<Self> {
        if is_topology_aware(service.metadata.annotations.as_ref()) {
            return None;
        }
        match service.spec.as_ref()?.traffic_distribution.as_deref()? {
            "PreferClose" | "PreferSameZone" => Some(Self::SameZone),
            "PreferSameNode" => Some(Self::SameNode),
            _ => None,
        }
    }

    /// Sets the hints of all planned slices; unchanged slices with other hints become updates.
    pub(super) fn add_hints(self, plan: &mut SlicePlan) {
        update_unchanged(plan, |slice| {
            let mut ready = slice_endpoints(slice).iter().filter(|endpoint| is_endpoint_ready(endpoint));
            ready.any(|endpoint| normalized(&endpoint.hints) != self.hints_of(endpoint))
        });
        for endpoint in planned_endpoints(plan).filter(|endpoint| is_endpoint_ready(endpoint)) {
            endpoint.hints = self.hints_of(endpoint);
        }
    }

    fn hints_of(self, endpoint: &Endpoint) -> Option<EndpointHints> {
        let zone = endpoint.zone.clone().map(|name| vec![ForZone { name }]);
        let node = endpoint.node_name.clone().filter(|_| self == Self::SameNode).map(|name| vec![ForNode { name }]);
        (zone.is_some() || node.is_some()).then_some(EndpointHints { for_zones: zone, for_nodes: node })
    }
}

/// Returns hints in which an empty list is absent.
fn normalized(hints: &Option<EndpointHints>) -> Option<EndpointHints> {
    let mut hints = hints.clone()?;
    hints.for_zones = hints.for_zones.filter(|zones| !zones.is_empty());
    hints.for_nodes = hints.for_nodes.filter(|nodes| !nodes.is_empty());
    (hints.for_zones.is_some() || hints.for_nodes.is_some()).then_some(hints)
}

/// Whether the annotations ask for topology aware hints.
pub(super) fn is_topology_aware(annotations: Option<&BTreeMap<String, String>>) -> bool {
    let value = annotations.and_then(|all| all.get(TOPOLOGY_HINTS_ANNOTATION).or(all.get(TOPOLOGY_MODE_ANNOTATION)));
    value.is_some_and(|value| value == "Auto" || value == "auto")
}

/// Removes the hints of all slices.
pub(super) fn remove_hints(plan: &mut SlicePlan) {
    update_unchanged(plan, |slice| slice_endpoints(slice).iter().any(|endpoint| endpoint.hints.is_some()));
    planned_endpoints(plan).for_each(|endpoint| endpoint.hints = None);
}

/// Turns the unchanged slices that need it into updates.
pub(super) fn update_unchanged(plan: &mut SlicePlan, mut needs_update: impl FnMut(&EndpointSlice) -> bool) {
    let (changed, unchanged): (Vec<_>, Vec<_>) =
        std::mem::take(&mut plan.unchanged).into_iter().partition(|slice| needs_update(slice));
    plan.unchanged = unchanged;
    plan.update.extend(changed.into_iter().map(Arc::unwrap_or_clone));
}

/// Returns the endpoints of created and updated slices.
pub(super) fn planned_endpoints(plan: &mut SlicePlan) -> impl Iterator<Item = &mut Endpoint> {
    plan.create.iter_mut().chain(&mut plan.update).flat_map(|slice| slice.endpoints.iter_mut().flatten())
}
