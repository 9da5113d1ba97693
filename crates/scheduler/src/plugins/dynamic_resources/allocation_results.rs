//! Allocation results: the chosen devices of a claim in the form of its status.

use k8s_openapi::api::{
    core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm},
    resource::v1::{
        AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult, DeviceRequestAllocationResult,
        DeviceToleration, ResourceClaim,
    },
};

use super::{capacity::Capacities, device_pools::NodeDevice, device_requests::RequestView};
use crate::views::node_info::NodeView;

/// A device that was chosen for a request.
pub struct ChosenDevice {
    /// `request` or `request/choice`.
    pub request: String,
    /// The position of the device.
    pub device: usize,
    /// Whether the device may be in use otherwise.
    pub is_admin: bool,
    /// The tolerations of the request.
    pub tolerations: Option<Vec<DeviceToleration>>,
    /// What is taken of a device that is shared; `None` if it is not.
    pub consumed: Option<Capacities>,
    /// Whether the device takes counters.
    pub consumes_counters: bool,
}

/// A claim with what was chosen for it.
pub struct ClaimChoice<'a> {
    /// The claim.
    pub claim: &'a ResourceClaim,
    /// The requests, of several choices the chosen one.
    pub requests: Vec<&'a RequestView>,
    /// The devices.
    pub devices: &'a [ChosenDevice],
}

/// Renders what was chosen for a claim.
pub fn allocation_result(choice: &ClaimChoice<'_>, devices: &[NodeDevice], node: &NodeView) -> AllocationResult {
    let results = choice.devices.iter().map(|chosen| device_result(chosen, &devices[chosen.device])).collect();
    let config = configuration(choice);
    AllocationResult {
        allocation_timestamp: None,
        node_selector: node_selector(choice.devices.iter().map(|chosen| &devices[chosen.device]), node),
        devices: Some(DeviceAllocationResult {
            results: Some(results),
            config: (!config.is_empty()).then_some(config),
        }),
    }
}

fn device_result(chosen: &ChosenDevice, entry: &NodeDevice) -> DeviceRequestAllocationResult {
    let device = entry.device();
    let consumed = chosen.consumed.as_ref().filter(|consumed| !consumed.is_empty());
    let text =
        |amount: &api::quantity::Quantity| k8s_openapi::apimachinery::pkg::api::resource::Quantity(amount.to_string());
    DeviceRequestAllocationResult {
        request: chosen.request.clone(),
        driver: entry.id.driver.clone(),
        pool: entry.id.pool.clone(),
        device: entry.id.device.clone(),
        admin_access: chosen.is_admin.then_some(true),
        tolerations: chosen.tolerations.clone(),
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

/// Returns the configuration of the classes, each once, and then that of the claim, as far as it is about chosen requests.
fn configuration(choice: &ClaimChoice<'_>) -> Vec<DeviceAllocationConfiguration> {
    let mut config: Vec<DeviceAllocationConfiguration> = Vec::new();
    let mut classes: Vec<(Option<&String>, std::ops::Range<usize>)> = Vec::new();
    for view in &choice.requests {
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
    for entry in choice.claim.spec.devices.iter().flat_map(|devices| devices.config.iter().flatten()) {
        let names = entry.requests.as_deref().unwrap_or(&[]);
        let parent = |view: &RequestView| view.name.split('/').next().unwrap_or("").to_owned();
        let is_about = |view: &&&RequestView| names.iter().any(|name| *name == view.name || *name == parent(view));
        let count = if names.is_empty() { 1 } else { choice.requests.iter().filter(is_about).count() };
        config.extend((0..count).map(|_| DeviceAllocationConfiguration {
            source: "FromClaim".into(),
            requests: entry.requests.clone(),
            opaque: entry.opaque.clone(),
        }));
    }
    config
}

/// Returns the selector of the nodes that can use all devices; `None` if all nodes can.
fn node_selector<'a>(devices: impl Iterator<Item = &'a NodeDevice>, node: &NodeView) -> Option<NodeSelector> {
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

fn this_node(node: &NodeView) -> NodeSelector {
    let field = NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: Some(vec![node.name.to_string()]),
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
