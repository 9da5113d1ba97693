//! Allocation results: the chosen devices of a claim in the form of its status.

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm},
    resource::v1::{
        AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult, DeviceRequestAllocationResult,
    },
};

use super::{
    capacity::Capacities,
    device_pools::{NodeDevice, NodeDevices},
    device_requests::{ClaimRequests, RequestView},
};

/// A device that was chosen for a request.
pub struct ChosenDevice {
    /// The request, or the chosen one of its choices.
    pub request: Arc<RequestView>,
    /// The position of the device.
    pub device: usize,
    /// The capacity that is taken of a shared device; `None` if it is not shared.
    pub consumed: Option<Capacities>,
    /// Whether the device takes counters.
    pub consumes_counters: bool,
}

/// The devices that were chosen for claims on a node.
pub struct NodeChoice {
    /// The devices of the node.
    pub devices: Arc<NodeDevices>,
    /// The claims.
    pub claims: Vec<Arc<ClaimRequests>>,
    /// The chosen choice by claim and request.
    pub choices: Vec<Vec<usize>>,
    /// The chosen devices by claim.
    pub chosen: Vec<Vec<ChosenDevice>>,
}

impl NodeChoice {
    /// Renders the allocations of the claims.
    pub fn results(&self, node: &str) -> Vec<AllocationResult> {
        (0..self.claims.len()).map(|claim| self.result(claim, node)).collect()
    }

    fn result(&self, claim: usize, node: &str) -> AllocationResult {
        let entry = |chosen: &ChosenDevice| self.devices.devices.get(chosen.device);
        let chosen = || self.chosen[claim].iter().filter_map(|chosen| Some((chosen, entry(chosen)?)));
        let config = self.configuration(claim);
        AllocationResult {
            allocation_timestamp: None,
            node_selector: node_selector(chosen().map(|(_, entry)| entry), node),
            devices: Some(DeviceAllocationResult {
                results: Some(chosen().map(|(chosen, entry)| device_result(chosen, entry)).collect()),
                config: (!config.is_empty()).then_some(config),
            }),
        }
    }

    /// Returns the configuration of the classes, each once, and then that of the claim, as far as it is about chosen
    /// requests.
    fn configuration(&self, claim: usize) -> Vec<DeviceAllocationConfiguration> {
        let ClaimRequests { claim: object, requests } = &*self.claims[claim];
        let chosen = requests.iter().zip(&self.choices[claim]);
        let views: Vec<&Arc<RequestView>> =
            chosen.filter_map(|(request, choice)| request.choices.get(*choice)).collect();
        let mut config: Vec<DeviceAllocationConfiguration> = Vec::new();
        let mut classes: Vec<(Option<&String>, std::ops::Range<usize>)> = Vec::new();
        for view in &views {
            let name = view.class.metadata.name.as_ref();
            if let Some((_, known)) = classes.iter().find(|(class, _)| *class == name) {
                for entry in &mut config[known.clone()] {
                    entry.requests.get_or_insert_default().push(view.name.clone());
                }
                continue;
            }
            let start = config.len();
            config.extend(view.class.spec.config.iter().flatten().map(|entry| DeviceAllocationConfiguration {
                source: "FromClass".into(),
                requests: Some(vec![view.name.clone()]),
                opaque: entry.opaque.clone(),
            }));
            classes.push((name, start..config.len()));
        }
        for entry in object.spec.devices.iter().flat_map(|devices| devices.config.iter().flatten()) {
            let names = entry.requests.as_deref().unwrap_or(&[]);
            let parent = |view: &RequestView| view.name.split('/').next().unwrap_or("").to_owned();
            let is_about =
                |view: &&&Arc<RequestView>| names.iter().any(|name| *name == view.name || *name == parent(view));
            let count = if names.is_empty() { 1 } else { views.iter().filter(is_about).count() };
            config.extend((0..count).map(|_| DeviceAllocationConfiguration {
                source: "FromClaim".into(),
                requests: entry.requests.clone(),
                opaque: entry.opaque.clone(),
            }));
        }
        config
    }
}

fn device_result(chosen: &ChosenDevice, entry: &NodeDevice) -> DeviceRequestAllocationResult {
    let (device, view) = (entry.device(), &chosen.request);
    let consumed = chosen.consumed.as_ref().filter(|consumed| !consumed.is_empty());
    let text =
        |amount: &api::quantity::Quantity| k8s_openapi::apimachinery::pkg::api::resource::Quantity(amount.to_string());
    DeviceRequestAllocationResult {
        request: view.name.clone(),
        driver: entry.id.pool.driver.clone(),
        pool: entry.id.pool.pool.clone(),
        device: entry.id.device.clone(),
        admin_access: view.is_admin.then_some(true),
        tolerations: view.tolerations.clone(),
        binding_conditions: device.and_then(|device| device.binding_conditions.clone()),
        binding_failure_conditions: device.and_then(|device| device.binding_failure_conditions.clone()),
        share_id: chosen.consumed.as_ref().map(|_| new_uid()),
        consumed_capacity: consumed
            .map(|consumed| consumed.iter().map(|(name, amount)| (name.clone(), text(amount))).collect()),
    }
}

/// Returns a random UUID.
pub fn new_uid() -> String {
    const VERSION: u128 = 0x4 << 76;
    const VARIANT: u128 = 0x8 << 60;
    let bits = fastrand::u128(..) & !(0xf << 76) & !(0xc << 60) | VERSION | VARIANT;
    let hex = format!("{bits:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| hex.get(range).unwrap_or_default().to_owned());
    parts.join("-")
}

/// Returns the selector of the nodes that can use all devices; `None` if all nodes can.
fn node_selector<'a>(devices: impl Iterator<Item = &'a NodeDevice>, node: &str) -> Option<NodeSelector> {
    let mut term = NodeSelectorTerm::default();
    for device in devices {
        let (name, selector) = device.node_selection();
        if name.is_some() || device.device().is_some_and(|device| device.binds_to_node == Some(true)) {
            return Some(this_node(node));
        }
        for other in selector.into_iter().flat_map(|selector| &selector.node_selector_terms) {
            add_new(&mut term.match_expressions, other.match_expressions.as_ref());
            add_new(&mut term.match_fields, other.match_fields.as_ref());
        }
    }
    let is_restricted = term.match_expressions.is_some() || term.match_fields.is_some();
    is_restricted.then(|| NodeSelector { node_selector_terms: vec![term] })
}

fn this_node(node: &str) -> NodeSelector {
    let field = NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![field]), match_expressions: None };
    NodeSelector { node_selector_terms: vec![term] }
}

fn add_new(known: &mut Option<Vec<NodeSelectorRequirement>>, more: Option<&Vec<NodeSelectorRequirement>>) {
    for requirement in more.into_iter().flatten() {
        let known = known.get_or_insert_default();
        if !known.contains(requirement) {
            known.push(requirement.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_random_uuids() {
        let uid = new_uid();
        let (version, variant) = (uid.chars().nth(14), uid.chars().nth(19));
        assert_eq!((uid.len(), version), (36, Some('4')));
        assert!(variant.is_some_and(|variant| "89ab".contains(variant)), "{uid}");
        assert_ne!(uid, new_uid());
    }
}
