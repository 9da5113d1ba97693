//! Plans the EndpointSlice writes of a service with as few changed slices as possible.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::{EndpointPort, EndpointSlice},
};
use kube::ResourceExt;

use super::slice::{has_service_labels, is_owned_by, is_placeholder, new_slice, pod_to_endpoint, slice_labels};
use crate::{
    pod_view::PodView,
    service_endpoints::{
        endpoint_set::{EndpointSet, endpoint_identity, is_same_endpoint, slice_endpoints},
        membership::{publishes_not_ready, should_pod_be_in_endpoints},
        ports::{EndpointPortsKey, endpoint_ports, ports_key, sort_ports},
    },
};

/// Planned writes of the slices of one address type.
#[derive(Debug, Default)]
pub(super) struct SlicePlan {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<EndpointSlice>,
    pub(super) delete: Vec<Arc<EndpointSlice>>,
    pub(super) unchanged: Vec<Arc<EndpointSlice>>,
    /// Pods left out because their node is unknown, as error messages.
    pub(super) skipped: Vec<String>,
}

/// A service to plan for, with the cached objects that the plan depends on.
pub(super) struct SliceReconciler<'a> {
    pub(super) service: &'a Service,
    pub(super) pods: &'a [Arc<PodView>],
    pub(super) node: &'a dyn Fn(&str) -> Option<Arc<Node>>,
    pub(super) max_endpoints: usize,
}

impl SliceReconciler<'_> {
    /// Plans the slices of one address type.
    pub(super) fn plan(&self, address_type: &str, existing: &[Arc<EndpointSlice>]) -> SlicePlan {
        let mut plan = SlicePlan::default();
        let mut by_ports: HashMap<EndpointPortsKey, Vec<Arc<EndpointSlice>>> = HashMap::new();
        for slice in existing {
            match is_owned_by(slice, self.service) {
                true => by_ports.entry(ports_key(&existing_ports(slice))).or_default().push(slice.clone()),
                false => plan.delete.push(slice.clone()),
            }
        }
        for (ports, desired) in self.desired_endpoints(address_type, &mut plan.skipped) {
            let slices = by_ports.remove(&ports_key(&ports)).unwrap_or_default();
            self.plan_ports(&mut plan, &slices, desired, &ports, address_type);
        }
        let mut left: Vec<_> = by_ports.into_values().flatten().collect();
        left.sort_by_key(|slice| slice.name_any());
        plan.delete.extend(left);
        if existing.len() == plan.delete.len() && plan.create.is_empty() {
            let placeholder = new_slice(self.service, Vec::new(), address_type);
            match plan.delete.as_slice() {
                [only] if is_placeholder(only, &placeholder) => plan.unchanged.append(&mut plan.delete),
                _ => plan.create.push(placeholder),
            }
        }
        plan
    }

    /// Groups the endpoints of the pods by their ports.
    fn desired_endpoints(
        &self,
        address_type: &str,
        skipped: &mut Vec<String>,
    ) -> Vec<(Vec<EndpointPort>, EndpointSet)> {
        let mut groups: BTreeMap<EndpointPortsKey, (Vec<EndpointPort>, EndpointSet)> = BTreeMap::new();
        for pod in self.pods.iter().filter(|pod| should_pod_be_in_endpoints(pod, true)) {
            let ports = endpoint_ports(self.service, pod);
            let group = groups.entry(ports_key(&ports)).or_insert_with(|| (ports, EndpointSet::new()));
            let node_name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
            let node = (self.node)(node_name);
            if node.is_none() && !publishes_not_ready(self.service) {
                let (service, namespace) = (self.service.name_any(), self.service.namespace().unwrap_or_default());
                let pod = pod.name_any();
                skipped
                    .push(format!("skipping Pod {pod} for Service {namespace}/{service}: Node {node_name} Not Found"));
                continue;
            }
            let endpoint = pod_to_endpoint(pod, node.as_deref(), self.service, address_type);
            if !endpoint.addresses.is_empty() {
                group.1.insert(endpoint_identity(&endpoint), endpoint);
            }
        }
        groups.into_values().collect()
    }

    /// Plans the slices of one set of ports: first keeps and updates endpoints in place, then fills slices that change
    /// anyway, then one unchanged slice with enough room, then new slices.
    fn plan_ports(
        &self,
        plan: &mut SlicePlan,
        existing: &[Arc<EndpointSlice>],
        mut desired: EndpointSet,
        ports: &[EndpointPort],
        address_type: &str,
    ) {
        let (mut update, mut unchanged) = (Vec::new(), Vec::new());
        for slice in existing {
            match self.keep_endpoints(slice, &mut desired) {
                KeptSlice::Unchanged => unchanged.push(slice.clone()),
                KeptSlice::Updated(slice) => update.push(*slice),
                KeptSlice::Empty => plan.delete.push(slice.clone()),
            }
        }
        update.sort_by_key(|slice| std::cmp::Reverse(slice_endpoints(slice).len()));
        for slice in &mut update {
            self.fill_slice(slice, &mut desired);
        }
        while !desired.is_empty() {
            let room = self.slice_to_fill(&unchanged, desired.len());
            let mut slice = match room {
                Some(index) => Arc::unwrap_or_clone(unchanged.remove(index)),
                None => new_slice(self.service, ports.to_vec(), address_type),
            };
            self.fill_slice(&mut slice, &mut desired);
            match room {
                Some(_) => update.push(slice),
                None => plan.create.push(slice),
            }
        }
        plan.update.append(&mut update);
        plan.unchanged.append(&mut unchanged);
    }

    /// Takes the endpoints that the slice holds from `desired`, and applies their changes and the service's labels.
    fn keep_endpoints(&self, slice: &EndpointSlice, desired: &mut EndpointSet) -> KeptSlice {
        let (mut kept, mut changed) = (Vec::new(), false);
        for endpoint in slice_endpoints(slice) {
            if let Some(wanted) = desired.remove(&endpoint_identity(endpoint)) {
                changed |= !is_same_endpoint(&wanted, endpoint);
                kept.push(wanted);
            }
        }
        changed |= kept.len() != slice_endpoints(slice).len();
        if changed && kept.is_empty() {
            return KeptSlice::Empty;
        }
        if !changed && has_service_labels(slice, self.service) {
            return KeptSlice::Unchanged;
        }
        let mut updated = slice.clone();
        updated.metadata.labels = Some(slice_labels(self.service));
        if changed {
            updated.endpoints = Some(kept);
        }
        KeptSlice::Updated(Box::new(updated))
    }

    fn fill_slice(&self, slice: &mut EndpointSlice, desired: &mut EndpointSet) {
        let endpoints = slice.endpoints.get_or_insert_default();
        while endpoints.len() < self.max_endpoints
            && let Some((_, endpoint)) = desired.pop_first()
        {
            endpoints.push(endpoint);
        }
    }

    /// Returns the unchanged slice that is closest to full after adding `count` endpoints.
    fn slice_to_fill(&self, unchanged: &[Arc<EndpointSlice>], count: usize) -> Option<usize> {
        if count >= self.max_endpoints {
            return None;
        }
        let room = |slice: &EndpointSlice| self.max_endpoints.checked_sub(count + slice_endpoints(slice).len());
        let fitting = unchanged.iter().enumerate().filter_map(|(index, slice)| Some((room(slice)?, index)));
        fitting.filter(|(room, _)| *room < self.max_endpoints).min().map(|(_, index)| index)
    }
}

enum KeptSlice {
    Unchanged,
    Updated(Box<EndpointSlice>),
    /// None of its endpoints is desired.
    Empty,
}

fn existing_ports(slice: &EndpointSlice) -> Vec<EndpointPort> {
    sort_ports(slice.ports.clone().unwrap_or_default())
}

impl SlicePlan {
    /// Turns creates into updates of slices that would be deleted.
    pub(super) fn recycle_slices(&mut self, service: &Service) {
        let mut index = 0;
        while index < self.delete.len() {
            let (old, new) = (&self.delete[index], self.create.pop());
            match new {
                Some(mut slice) if old.address_type == slice.address_type && is_owned_by(old, service) => {
                    slice.metadata.name = old.metadata.name.clone();
                    self.delete.remove(index);
                    self.update.push(slice);
                }
                Some(slice) => {
                    self.create.push(slice);
                    index += 1;
                }
                None => return,
            }
        }
    }
}
