//! Topology aware hints (`service.kubernetes.io/topology-mode: Auto`): spreads the endpoints of a service over zones in
//! proportion to the CPUs of their nodes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard},
};

use api::quantity::Quantity;
use k8s_openapi::api::{
    core::v1::Node,
    discovery::v1::{EndpointHints, EndpointSlice, ForZone},
};
use kube::ResourceExt;

use super::{
    hints::{planned_endpoints, remove_hints, update_unchanged},
    reconcile::SlicePlan,
    slice::ZONE_LABEL,
};
use crate::{
    node_readiness::is_node_ready,
    object_key::ObjectKey,
    service_endpoints::endpoint_set::{is_endpoint_ready, slice_endpoints},
};

/// The greatest overload of an endpoint that is accepted.
const OVERLOAD_THRESHOLD: f64 = 0.2;
const EXCLUDED_LABELS: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Number of endpoints per zone.
type ZoneCounts = BTreeMap<String, usize>;

/// An event about the hints of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HintsEvent {
    pub(super) enabled: bool,
    pub(super) message: String,
}

impl HintsEvent {
    /// The hints of an address type were removed.
    pub(super) fn disabled(message: &str, address_type: &str) -> Self {
        Self { enabled: false, message: format!("{message}, addressType: {address_type}") }
    }
}

/// The share of each zone in the CPUs of the cluster, and the hints given to services.
#[derive(Default)]
pub(super) struct TopologyCache {
    state: Mutex<TopologyState>,
}

#[derive(Default)]
struct TopologyState {
    /// `None` if the nodes do not say enough, or before nodes were observed.
    cpu_ratios: Option<BTreeMap<String, f64>>,
    endpoints: HashMap<ObjectKey, BTreeMap<String, ZoneCounts>>,
    populated: BTreeSet<ObjectKey>,
}

/// Bounds of a zone's endpoints.
struct ZoneAllocation {
    maximum: usize,
    desired: f64,
}

impl TopologyCache {
    /// Takes over the nodes; returns the services whose endpoints are overloaded since.
    pub(super) fn set_nodes(&self, nodes: &[Arc<Node>]) -> Vec<ObjectKey> {
        let mut state = self.lock_state();
        state.cpu_ratios = cpu_ratios(nodes);
        let ratios = state.cpu_ratios.clone().unwrap_or_default();
        let overloaded =
            state.endpoints.iter().filter(|(_, by_type)| by_type.values().any(|counts| is_overloaded(counts, &ratios)));
        overloaded.map(|(key, _)| key.clone()).collect()
    }

    /// Whether the service has hints.
    pub(super) fn has_hints(&self, key: &ObjectKey) -> bool {
        self.lock_state().populated.contains(key)
    }

    /// Forgets the hints of a service.
    pub(super) fn forget_hints(&self, key: &ObjectKey, address_type: &str) {
        let mut state = self.lock_state();
        state.populated.remove(key);
        if let Some(by_type) = state.endpoints.get_mut(key) {
            by_type.remove(address_type);
            if by_type.is_empty() {
                state.endpoints.remove(key);
            }
        }
    }

    /// Adds hints to the planned slices, or removes all where they are not possible.
    pub(super) fn add_hints(&self, key: &ObjectKey, address_type: &str, plan: &mut SlicePlan) -> Option<HintsEvent> {
        let ratios = self.lock_state().cpu_ratios.clone();
        match allocate_hints(ratios.as_ref(), plan) {
            Err(reason) => {
                self.forget_hints(key, address_type);
                remove_hints(plan);
                Some(HintsEvent::disabled(&reason, address_type))
            }
            Ok(counts) => {
                let mut state = self.lock_state();
                state.endpoints.entry(key.clone()).or_default().insert(address_type.into(), counts);
                state.populated.insert(key.clone()).then(|| HintsEvent {
                    enabled: true,
                    message: format!("Topology Aware Hints has been enabled, addressType: {address_type}"),
                })
            }
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, TopologyState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Returns the zones' share of CPUs, if all ready nodes have a zone and CPUs and there are two zones.
fn cpu_ratios(nodes: &[Arc<Node>]) -> Option<BTreeMap<String, f64>> {
    let mut by_zone: BTreeMap<String, i64> = BTreeMap::new();
    let is_counted = |node: &&Arc<Node>| {
        !EXCLUDED_LABELS.iter().any(|label| node.labels().contains_key(*label)) && is_node_ready(node)
    };
    for node in nodes.iter().filter(is_counted) {
        let zone = node.labels().get(ZONE_LABEL).filter(|zone| !zone.is_empty())?;
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref())?;
        let cpu = allocatable.get("cpu").and_then(|cpu| Quantity::parse(&cpu.0))?.millis();
        *by_zone.entry(zone.clone()).or_default() += Some(cpu).filter(|cpu| *cpu > 0)?;
    }
    let total: i64 = by_zone.values().sum();
    let ratios = by_zone.into_iter().map(|(zone, cpu)| (zone, cpu as f64 / total as f64));
    Some(ratios.collect::<BTreeMap<_, _>>()).filter(|ratios| ratios.len() > 1)
}

/// Whether a zone has fewer endpoints than its share allows.
fn is_overloaded(counts: &ZoneCounts, ratios: &BTreeMap<String, f64>) -> bool {
    if counts.is_empty() || ratios.is_empty() {
        return !counts.is_empty();
    }
    let total: usize = counts.values().sum();
    ratios.iter().any(|(zone, ratio)| {
        let minimum = (total as f64 * ratio * (1.0 / (1.0 + OVERLOAD_THRESHOLD))).ceil();
        counts.get(zone).is_none_or(|count| (*count as f64) < minimum)
    })
}

/// Sets zone hints on the endpoints of created and updated slices; returns the endpoints per zone, or why hints are not
/// possible.
fn allocate_hints(ratios: Option<&BTreeMap<String, f64>>, plan: &mut SlicePlan) -> Result<ZoneCounts, String> {
    let unchanged =
        plan.unchanged.iter().flat_map(|slice| slice_endpoints(slice)).filter(|e| is_endpoint_ready(e)).count();
    let total = unchanged + planned_endpoints(plan).filter(|endpoint| is_endpoint_ready(endpoint)).count();
    let allocations = zone_allocations(ratios, total)?;
    let mut counts = ZoneCounts::new();
    update_unchanged(plan, |slice| match hints_by_zone(slice, &counts, &allocations) {
        Some(hints) => {
            hints.into_iter().for_each(|(zone, count)| *counts.entry(zone).or_default() += count);
            false
        }
        None => true,
    });
    for endpoint in planned_endpoints(plan).filter(|endpoint| is_endpoint_ready(endpoint)) {
        let Some(zone) = endpoint.zone.clone().filter(|zone| !zone.is_empty()) else {
            return Err("One or more endpoints do not have a zone specified".into());
        };
        *counts.entry(zone.clone()).or_default() += 1;
        endpoint.hints = zone_hint(zone);
    }
    let (mut giving, mut receiving) = zones_to_balance(&allocations, &counts);
    for endpoint in planned_endpoints(plan).filter(|endpoint| is_endpoint_ready(endpoint)) {
        let zone = endpoint.zone.clone().unwrap_or_default();
        let (Some(give), Some(mut receive)) = (giving.get_mut(&zone), receiving.first_entry()) else { continue };
        let receiver = receive.key().clone();
        *counts.entry(receiver.clone()).or_default() += 1;
        counts.entry(zone.clone()).and_modify(|count| *count = count.saturating_sub(1));
        endpoint.hints = zone_hint(receiver);
        *give -= 1;
        *receive.get_mut() -= 1;
        if *receive.get() == 0 {
            receive.remove();
        }
        if *give == 0 {
            giving.remove(&zone);
        }
    }
    match counts.is_empty() {
        true => Err("No hints allocated for zones".into()),
        false => Ok(counts),
    }
}

fn zone_hint(name: String) -> Option<EndpointHints> {
    Some(EndpointHints { for_zones: Some(vec![ForZone { name }]), for_nodes: None })
}

/// Returns the bounds per zone, or why no zone assignment stays below the overload threshold.
fn zone_allocations(
    ratios: Option<&BTreeMap<String, f64>>,
    endpoints: usize,
) -> Result<BTreeMap<String, ZoneAllocation>, String> {
    let insufficient = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";
    let ratios = ratios.ok_or(insufficient)?;
    let zones = ratios.len();
    if zones > endpoints {
        return Err(format!("Insufficient number of endpoints ({endpoints} endpoints, {zones} zones)"));
    }
    let minimum = |ratio: f64| (ratio * endpoints as f64 * (1.0 / (1.0 + OVERLOAD_THRESHOLD))).ceil();
    let total: usize = ratios.values().map(|ratio| minimum(*ratio) as usize).sum();
    let spare = endpoints.checked_sub(total).ok_or_else(|| {
        format!(
            "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold \
             ({endpoints} endpoints, {zones} zones)"
        )
    })?;
    let allocation = |ratio: f64| ZoneAllocation {
        maximum: minimum(ratio) as usize + spare,
        desired: (ratio * endpoints as f64).max(minimum(ratio)),
    };
    Ok(ratios.iter().map(|(zone, ratio)| (zone.clone(), allocation(*ratio))).collect())
}

/// Counts the hints of an unchanged slice; `None` if a ready endpoint has none or they no longer fit.
fn hints_by_zone(
    slice: &EndpointSlice,
    counts: &ZoneCounts,
    allocations: &BTreeMap<String, ZoneAllocation>,
) -> Option<ZoneCounts> {
    let mut hints = ZoneCounts::new();
    for endpoint in slice_endpoints(slice).iter().filter(|endpoint| is_endpoint_ready(endpoint)) {
        let zones = endpoint.hints.as_ref()?.for_zones.as_ref().filter(|zones| !zones.is_empty())?;
        zones.iter().for_each(|zone| *hints.entry(zone.name.clone()).or_default() += 1);
    }
    let fits = |(zone, count): (&String, &usize)| {
        let allocated = counts.get(zone).copied().unwrap_or_default();
        allocations.get(zone).is_some_and(|allocation| count + allocated <= allocation.maximum)
    };
    hints.iter().all(fits).then_some(hints)
}

/// Returns the numbers of endpoints that zones give to and receive from others.
fn zones_to_balance(allocations: &BTreeMap<String, ZoneAllocation>, counts: &ZoneCounts) -> (ZoneCounts, ZoneCounts) {
    let (mut surplus, mut deficit) = (BTreeMap::new(), BTreeMap::new());
    for (zone, allocation) in allocations {
        let difference = counts.get(zone).copied().unwrap_or_default() as f64 - allocation.desired;
        match difference > 0.0 {
            true => surplus.insert(zone.as_str(), difference),
            false => deficit.insert(zone.as_str(), -difference),
        };
    }
    let (mut giving, mut receiving) = (ZoneCounts::new(), ZoneCounts::new());
    while let (Some((giver, give)), Some((receiver, receive))) = (greatest(&surplus), greatest(&deficit)) {
        if (give < 1.0 && receive < 1.0) || give < 0.5 || receive < 0.5 {
            break;
        }
        *giving.entry(giver.into()).or_default() += 1;
        *receiving.entry(receiver.into()).or_default() += 1;
        surplus.insert(giver, give - 1.0);
        deficit.insert(receiver, receive - 1.0);
    }
    (giving, receiving)
}

fn greatest<'a>(zones: &BTreeMap<&'a str, f64>) -> Option<(&'a str, f64)> {
    let positive = zones.iter().filter(|(_, number)| **number > 0.0);
    positive.max_by(|a, b| a.1.total_cmp(b.1)).map(|(zone, number)| (*zone, *number))
}
