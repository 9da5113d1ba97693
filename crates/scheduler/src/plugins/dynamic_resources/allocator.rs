//! Allocates devices of one node for claims: a search that goes back when a choice does not work out.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use api::quantity::Quantity;
use k8s_openapi::api::{
    core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm},
    resource::v1::{
        AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult, DeviceClass, DeviceConstraint,
        DeviceRequestAllocationResult, DeviceSelector, DeviceTaint, DeviceToleration, ResourceClaim, ResourceSlice,
    },
};

use super::{
    device_pools::{DeviceAccess, DeviceId, NodeDevice, NodeDevices},
    device_selectors::SelectorCache,
};
use crate::{objects::device_classes::DeviceClassResolver, views::node_info::NodeView};

/// The greatest number of devices in a claim.
const MAX_RESULTS: usize = 32;

/// Why devices could not be allocated.
#[derive(Debug, thiserror::Error)]
pub enum AllocationError {
    /// The search took too long.
    #[error("timed out trying to allocate devices")]
    Timeout,
    /// The node does not have what is needed now.
    #[error("{0}")]
    Unavailable(String),
    /// The claim or the devices are invalid.
    #[error("{0}")]
    Invalid(String),
}

/// State that the allocations of all nodes share.
pub struct AllocatorInput {
    /// The published devices.
    pub slices: Vec<Arc<ResourceSlice>>,
    /// The devices that are allocated.
    pub allocated: HashSet<DeviceId>,
    /// Device classes.
    pub classes: DeviceClassResolver,
    /// The longest search on a node; zero is unlimited.
    pub timeout: Duration,
}

/// One request, or one choice of a request with several.
#[derive(Clone)]
struct RequestView {
    /// `request` or `request/choice`.
    name: String,
    class: Arc<DeviceClass>,
    selectors: Option<Vec<DeviceSelector>>,
    /// `None` takes all that match.
    count: Option<usize>,
    is_admin: bool,
    tolerations: Vec<DeviceToleration>,
}

/// A request of a claim with its choices, the preferred first.
struct ClaimRequest {
    claim: usize,
    choices: Vec<RequestView>,
}

struct Search<'a> {
    input: &'a AllocatorInput,
    selectors: &'a SelectorCache,
    claims: &'a [Arc<ResourceClaim>],
    devices: NodeDevices,
    requests: Vec<ClaimRequest>,
    taken: HashSet<DeviceId>,
    counters: BTreeMap<(String, String, String, String), Quantity>,
    /// By request: the choice and the devices.
    chosen: Vec<(usize, Vec<usize>)>,
    deadline: Option<Instant>,
}

/// Allocates devices of a node for all claims; `None` if that is not possible.
pub fn allocate_devices(
    input: &AllocatorInput,
    selectors: &SelectorCache,
    claims: &[Arc<ResourceClaim>],
    node: &NodeView,
) -> Result<Option<Vec<AllocationResult>>, AllocationError> {
    let devices = NodeDevices::for_node(&input.slices, node);
    let counters = devices.counters.clone();
    let mut search = Search {
        input,
        selectors,
        claims,
        devices,
        requests: requests_of(claims, &input.classes)?,
        taken: HashSet::new(),
        counters,
        chosen: Vec::new(),
        deadline: (!input.timeout.is_zero()).then(|| Instant::now() + input.timeout),
    };
    search.consume_allocated();
    match search.allocate_request(0)? {
        true => Ok(Some(search.results(node))),
        false => Ok(None),
    }
}

fn requests_of(
    claims: &[Arc<ResourceClaim>],
    classes: &DeviceClassResolver,
) -> Result<Vec<ClaimRequest>, AllocationError> {
    let class_of = |name: &str, request: &str| {
        classes.get(name).ok_or_else(|| {
            AllocationError::Invalid(format!("request {request}: could not retrieve device class {name}"))
        })
    };
    let count = |mode: Option<&String>, count: Option<i64>| match mode.map(String::as_str) {
        Some("All") => None,
        _ => Some(usize::try_from(count.unwrap_or(1)).unwrap_or(1)),
    };
    let mut requests = Vec::new();
    for (claim, object) in claims.iter().enumerate() {
        for request in object.spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten()) {
            let mut choices = Vec::new();
            if let Some(exact) = &request.exactly {
                if exact.capacity.is_some() {
                    return Err(AllocationError::Invalid(format!(
                        "claim {}, request {}: requests for capacity are not supported",
                        key(object),
                        request.name
                    )));
                }
                choices.push(RequestView {
                    name: request.name.clone(),
                    class: class_of(&exact.device_class_name, &request.name)?,
                    selectors: exact.selectors.clone(),
                    count: count(exact.allocation_mode.as_ref(), exact.count),
                    is_admin: exact.admin_access == Some(true),
                    tolerations: exact.tolerations.clone().unwrap_or_default(),
                });
            }
            for choice in request.first_available.iter().flatten() {
                let name = format!("{}/{}", request.name, choice.name);
                choices.push(RequestView {
                    class: class_of(&choice.device_class_name, &name)?,
                    name,
                    selectors: choice.selectors.clone(),
                    count: count(choice.allocation_mode.as_ref(), choice.count),
                    is_admin: false,
                    tolerations: choice.tolerations.clone().unwrap_or_default(),
                });
            }
            requests.push(ClaimRequest { claim, choices });
        }
    }
    Ok(requests)
}

fn key(claim: &ResourceClaim) -> String {
    let meta = &claim.metadata;
    format!("{}/{}", meta.namespace.as_deref().unwrap_or(""), meta.name.as_deref().unwrap_or(""))
}

impl Search<'_> {
    /// Takes the counters that allocated devices use.
    fn consume_allocated(&mut self) {
        let allocated: Vec<usize> = (0..self.devices.devices.len())
            .filter(|index| self.input.allocated.contains(&self.devices.devices[*index].id))
            .collect();
        for index in allocated {
            self.change_counters(index, false);
        }
    }

    fn allocate_request(&mut self, index: usize) -> Result<bool, AllocationError> {
        if self.deadline.is_some_and(|deadline| Instant::now() > deadline) {
            return Err(AllocationError::Timeout);
        }
        let Some(request) = self.requests.get(index) else { return Ok(true) };
        for choice in 0..request.choices.len() {
            let view = self.requests[index].choices[choice].clone();
            self.chosen.push((choice, Vec::new()));
            let done = match view.count {
                Some(count) => self.allocate_count(index, &view, count, 0)?,
                None => self.allocate_all(index, &view)?,
            };
            if done {
                return Ok(true);
            }
            self.chosen.pop();
        }
        Ok(false)
    }

    /// Takes `count` further devices from the position on, then goes on with the next request.
    fn allocate_count(
        &mut self,
        index: usize,
        view: &RequestView,
        count: usize,
        from: usize,
    ) -> Result<bool, AllocationError> {
        if count == 0 {
            return self.allocate_request(index + 1);
        }
        for device in from..self.devices.devices.len() {
            if self.is_usable(index, view, device)? && self.take(index, view, device) {
                if self.allocate_count(index, view, count - 1, device + 1)? {
                    return Ok(true);
                }
                self.give_back(view, device);
            }
        }
        Ok(false)
    }

    fn allocate_all(&mut self, index: usize, view: &RequestView) -> Result<bool, AllocationError> {
        if self.devices.has_incomplete {
            let claim = key(&self.claims[self.requests[index].claim]);
            let message = format!(
                "claim {claim}, request {}: asks for all devices, but resource pool is currently being updated",
                view.name
            );
            return Err(AllocationError::Unavailable(message));
        }
        let mut taken = Vec::new();
        for device in 0..self.devices.devices.len() {
            if !self.matches(index, view, device)? {
                continue;
            }
            if !self.is_usable(index, view, device)? || !self.take(index, view, device) {
                taken.into_iter().for_each(|device| self.give_back(view, device));
                return Ok(false);
            }
            taken.push(device);
        }
        if taken.is_empty() || taken.len() > MAX_RESULTS || !self.allocate_request(index + 1)? {
            taken.into_iter().for_each(|device| self.give_back(view, device));
            return Ok(false);
        }
        Ok(true)
    }

    fn matches(&self, index: usize, view: &RequestView, device: usize) -> Result<bool, AllocationError> {
        let entry = &self.devices.devices[device];
        let Some(object) = entry.device() else { return Ok(false) };
        let (driver, class) = (&entry.id.driver, &view.class);
        let name = class.metadata.name.as_deref().unwrap_or("");
        let of_class = self.selectors.matches_all(class.spec.selectors.as_ref(), driver, object);
        if !of_class.map_err(|error| AllocationError::Invalid(format!("class {name}: {error}")))? {
            return Ok(false);
        }
        let claim = || key(&self.claims[self.requests[index].claim]);
        let of_request = self.selectors.matches_all(view.selectors.as_ref(), driver, object);
        of_request.map_err(|error| AllocationError::Invalid(format!("claim {}: {error}", claim())))
    }

    /// Whether a device matches, is free and tolerated.
    fn is_usable(&self, index: usize, view: &RequestView, device: usize) -> Result<bool, AllocationError> {
        let entry = &self.devices.devices[device];
        let in_use = self.input.allocated.contains(&entry.id) || self.taken.contains(&entry.id);
        if in_use && !view.is_admin || !is_tolerated(entry, &view.tolerations) {
            return Ok(false);
        }
        self.matches(index, view, device)
    }

    /// Takes a device, unless constraints or counters are against it.
    fn take(&mut self, index: usize, view: &RequestView, device: usize) -> bool {
        if !self.fulfils_constraints(index, view, device) {
            return false;
        }
        if !view.is_admin {
            if !self.change_counters(device, false) {
                self.change_counters(device, true);
                return false;
            }
            self.taken.insert(self.devices.devices[device].id.clone());
        }
        if let Some((_, devices)) = self.chosen.last_mut() {
            devices.push(device);
        }
        true
    }

    fn give_back(&mut self, view: &RequestView, device: usize) {
        if let Some((_, devices)) = self.chosen.last_mut() {
            devices.retain(|taken| *taken != device);
        }
        if !view.is_admin {
            self.change_counters(device, true);
            self.taken.remove(&self.devices.devices[device].id);
        }
    }

    /// Takes or returns what a device uses of shared counters; returns whether all are at least zero.
    fn change_counters(&mut self, device: usize, is_returned: bool) -> bool {
        let entry = &self.devices.devices[device];
        let consumed = entry.device().and_then(|device| device.consumes_counters.as_ref());
        let mut is_enough = true;
        for set in consumed.into_iter().flatten() {
            for (counter, amount) in &set.counters {
                let id = &entry.id;
                let key = (id.driver.clone(), id.pool.clone(), set.counter_set.clone(), counter.clone());
                let amount = Quantity::parse(&amount.value.0).unwrap_or(Quantity::ZERO);
                let left = self.counters.entry(key).or_insert(Quantity::ZERO);
                *left = if is_returned { left.plus(amount) } else { left.minus(amount) };
                is_enough &= !left.is_negative();
            }
        }
        is_enough
    }

    fn fulfils_constraints(&self, index: usize, view: &RequestView, device: usize) -> bool {
        let claim = self.requests[index].claim;
        let constraints =
            self.claims[claim].spec.devices.iter().flat_map(|devices| devices.constraints.iter().flatten());
        constraints.filter(|constraint| covers(constraint, &view.name)).all(|constraint| {
            let name = constraint.match_attribute.as_ref().or(constraint.distinct_attribute.as_ref());
            let Some(name) = name else { return false };
            let Some(value) = attribute(&self.devices.devices[device], name) else { return false };
            let mut others = self.chosen.iter().zip(&self.requests).filter(|(_, request)| request.claim == claim);
            others.all(|((choice, devices), request)| {
                let is_covered = request.choices.get(*choice).is_some_and(|view| covers(constraint, &view.name));
                !is_covered
                    || devices.iter().all(|other| {
                        let same = attribute(&self.devices.devices[*other], name).as_ref() == Some(&value);
                        same == constraint.match_attribute.is_some()
                    })
            })
        })
    }

    fn results(&self, node: &NodeView) -> Vec<AllocationResult> {
        let of_claim = |claim: usize| {
            let chosen = self.chosen.iter().zip(&self.requests).filter(move |(_, request)| request.claim == claim);
            chosen.filter_map(|((choice, devices), request)| Some((request.choices.get(*choice)?, devices)))
        };
        let allocation = |claim: usize| {
            let mut results = Vec::new();
            let mut config = Vec::new();
            for (view, devices) in of_claim(claim) {
                results.extend(devices.iter().map(|device| self.result(view, &self.devices.devices[*device])));
                for entry in view.class.spec.config.iter().flatten() {
                    config.push(DeviceAllocationConfiguration {
                        source: "FromClass".into(),
                        requests: Some(vec![view.name.clone()]),
                        opaque: entry.opaque.clone(),
                    });
                }
            }
            let own = self.claims[claim].spec.devices.iter().flat_map(|devices| devices.config.iter().flatten());
            let names: Vec<&str> =
                results.iter().map(|result: &DeviceRequestAllocationResult| result.request.as_str()).collect();
            for entry in own {
                let is_used = entry.requests.as_ref().is_none_or(|requests| {
                    requests.iter().any(|request| names.iter().any(|name| is_request(request, name)))
                });
                if is_used {
                    config.push(DeviceAllocationConfiguration {
                        source: "FromClaim".into(),
                        requests: entry.requests.clone(),
                        opaque: entry.opaque.clone(),
                    });
                }
            }
            let devices = of_claim(claim).flat_map(|(_, devices)| devices).map(|index| &self.devices.devices[*index]);
            AllocationResult {
                allocation_timestamp: None,
                node_selector: node_selector(devices, node),
                devices: Some(DeviceAllocationResult {
                    results: Some(results),
                    config: (!config.is_empty()).then_some(config),
                }),
            }
        };
        (0..self.claims.len()).map(allocation).collect()
    }

    fn result(&self, view: &RequestView, entry: &NodeDevice) -> DeviceRequestAllocationResult {
        let device = entry.device();
        DeviceRequestAllocationResult {
            request: view.name.clone(),
            driver: entry.id.driver.clone(),
            pool: entry.id.pool.clone(),
            device: entry.id.device.clone(),
            admin_access: view.is_admin.then_some(true),
            tolerations: (!view.tolerations.is_empty()).then(|| view.tolerations.clone()),
            binding_conditions: device.and_then(|device| device.binding_conditions.clone()),
            binding_failure_conditions: device.and_then(|device| device.binding_failure_conditions.clone()),
            ..Default::default()
        }
    }
}

/// Whether a name in a claim stands for a request or for the chosen one of its choices.
fn is_request(name: &str, request: &str) -> bool {
    name == request || request.split_once('/').is_some_and(|(parent, _)| parent == name)
}

fn covers(constraint: &DeviceConstraint, request: &str) -> bool {
    let requests = constraint.requests.as_deref().unwrap_or(&[]);
    requests.is_empty() || requests.iter().any(|name| is_request(name, request))
}

/// Returns an attribute by its full name as text with its type.
fn attribute(entry: &NodeDevice, name: &str) -> Option<String> {
    let attributes = entry.device()?.attributes.as_ref()?;
    let own = name.split_once('/').filter(|(domain, _)| *domain == entry.id.driver).map(|(_, id)| id);
    let attribute = attributes.get(name).or_else(|| attributes.get(own?))?;
    Some(format!("{:?}{:?}{:?}{:?}", attribute.bool, attribute.int, attribute.string, attribute.version))
}

fn is_tolerated(entry: &NodeDevice, tolerations: &[DeviceToleration]) -> bool {
    let taints = entry.device().and_then(|device| device.taints.as_ref()).into_iter().flatten();
    let tolerates = |toleration: &DeviceToleration, taint: &DeviceTaint| {
        let any_or = |wanted: &Option<String>, value: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == value)
        };
        any_or(&toleration.effect, &taint.effect)
            && any_or(&toleration.key, &taint.key)
            && match toleration.operator.as_deref().unwrap_or("Equal") {
                "Exists" => true,
                _ => toleration.value.as_deref().unwrap_or("") == taint.value.as_deref().unwrap_or(""),
            }
    };
    let mut effective = taints.filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
    effective.all(|taint| tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

/// Returns the selector of the nodes that can use all devices; `None` if all nodes can.
fn node_selector<'a>(devices: impl Iterator<Item = &'a NodeDevice>, node: &NodeView) -> Option<NodeSelector> {
    let mut term = NodeSelectorTerm::default();
    let mut is_restricted = false;
    for device in devices {
        let binds = device.device().is_some_and(|device| device.binds_to_node == Some(true));
        match &device.access {
            DeviceAccess::Node => return Some(this_node(node)),
            _ if binds => return Some(this_node(node)),
            DeviceAccess::All => {}
            DeviceAccess::Selected(selector) => {
                is_restricted = true;
                for other in &selector.node_selector_terms {
                    add_new(&mut term.match_expressions, other.match_expressions.as_ref());
                    add_new(&mut term.match_fields, other.match_fields.as_ref());
                }
            }
        }
    }
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
