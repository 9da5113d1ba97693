//! node-ipam-controller: gives every node a range of each cluster range (`spec.podCIDRs`).

mod cidr_set;

use std::sync::{Arc, Mutex, MutexGuard};

use client::{ApiErrorExt, EventRecorder, RequeueAction, ResourceEvent, SharedInformer};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use self::cidr_set::{CidrSet, CidrSetError, cidr_text};
use crate::{
    ControllerContext, IpRange, NodeIpamOptions,
    controller::{Controller, ControllerWatches, run_controller},
};

/// Attempts to write the ranges of a node.
const CIDR_UPDATE_ATTEMPTS: usize = 3;

struct NodeIpamController {
    client: Client,
    nodes: SharedInformer<Node>,
    recorder: EventRecorder,
    /// One set per cluster range, in their order.
    sets: Mutex<Vec<CidrSet>>,
}

/// A node has no ranges.
#[derive(Debug, thiserror::Error)]
enum NodeIpamError {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("{0}")]
    Allocate(#[from] CidrSetError),
    #[error("node {node} has the range {cidr} at index {index}, which no cluster range matches")]
    Unknown { node: String, cidr: String, index: usize },
}

/// Runs the controller until shutdown if `--allocate-node-cidrs` is set.
pub(crate) async fn run(context: ControllerContext) {
    let options = &context.options.node_ipam;
    if !options.allocate_node_cidrs {
        return;
    }
    let sets = match new_sets(options) {
        Ok(sets) => Mutex::new(sets),
        Err(error) => {
            tracing::error!(%error, "node IPAM: unusable cluster CIDR, not started");
            return;
        }
    };
    let build = |_| NodeIpamController {
        nodes: context.informers.informer_for(),
        recorder: EventRecorder::new(context.client.clone(), "cidrAllocator", None),
        client: context.client.clone(),
        sets,
    };
    run_controller(&context, build).await;
}

/// Builds the sets of node ranges without the service ranges.
fn new_sets(options: &NodeIpamOptions) -> Result<Vec<CidrSet>, CidrSetError> {
    let mut sets = Vec::new();
    for cluster in &options.cluster_cidrs {
        let size = if cluster.address.is_ipv4() { options.mask_size_ipv4 } else { options.mask_size_ipv6 };
        let mut set = CidrSet::new(*cluster, size)?;
        for service in options.service_cidrs.iter().filter(|service| cluster.overlaps(service)) {
            set.mark(*service, true)?;
        }
        sets.push(set);
    }
    Ok(sets)
}

impl Controller for NodeIpamController {
    type Key = String;
    type Error = NodeIpamError;
    /// Upstream has 30; ranges are allocated in order by one.
    const WORKERS: usize = 30;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        watches.add(&self.nodes, |this, event, queue| match event {
            ResourceEvent::Deleted(node) => this.mark_node_ranges(node, false).unwrap_or_else(|error| {
                tracing::warn!(name = node.name_any(), %error, "node IPAM: ranges of deleted node not released");
            }),
            _ => queue.add(event.object().name_any()),
        });
    }

    /// Marks the ranges of existing nodes before any is allocated.
    async fn wait_until_ready(self: &Arc<Self>) {
        for node in self.nodes.list() {
            if let Err(error) = self.mark_node_ranges(&node, true) {
                tracing::error!(name = node.name_any(), %error, "node IPAM: ranges of node not reserved");
            }
        }
    }

    async fn sync(&self, name: &String) -> Result<RequeueAction, NodeIpamError> {
        let node = self.nodes.get("", name).filter(|node| node.metadata.deletion_timestamp.is_none());
        let Some(node) = node else { return Ok(RequeueAction::AwaitChange) };
        match node_cidrs(&node).is_empty() {
            true => self.allocate_ranges(&node).await?,
            false => self.mark_node_ranges(&node, true)?,
        }
        Ok(RequeueAction::AwaitChange)
    }
}

impl NodeIpamController {
    /// Marks the ranges of a node as used or free.
    fn mark_node_ranges(&self, node: &Node, used: bool) -> Result<(), NodeIpamError> {
        let mut sets = self.lock_sets();
        for (index, cidr) in node_cidrs(node).iter().enumerate() {
            let range = IpRange::parse_cidr(cidr);
            let (Some(range), Some(set)) = (range, sets.get_mut(index)) else {
                return Err(NodeIpamError::Unknown { node: node.name_any(), cidr: cidr.clone(), index });
            };
            set.mark(range, used)?;
        }
        Ok(())
    }

    async fn allocate_ranges(&self, node: &Node) -> Result<(), NodeIpamError> {
        let ranges = self.take_ranges().inspect_err(|_| self.record_status(node, "CIDRNotAvailable"))?;
        let api: Api<Node> = Api::all(self.client.clone());
        // The cache may not have this controller's own last write yet, so the API server is asked.
        let current = api.get_opt(&node.name_any()).await;
        if !matches!(&current, Ok(Some(current)) if node_cidrs(current).is_empty()) {
            self.release_ranges(&ranges);
            return current.map(drop).map_err(NodeIpamError::from);
        }
        let cidrs: Vec<String> = ranges.iter().map(|range| cidr_text(*range)).collect();
        let patch = Patch::Strategic(json!({"spec": {"podCIDR": cidrs.first(), "podCIDRs": cidrs}}));
        for attempt in 1.. {
            let error = match api.patch(&node.name_any(), &PatchParams::default(), &patch).await {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            if attempt >= CIDR_UPDATE_ATTEMPTS {
                self.record_status(node, "CIDRAssignmentFailed");
                // After a timeout the write may have succeeded.
                if !error.is_timeout() {
                    self.release_ranges(&ranges);
                }
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Allocates a range of each set, or none at all.
    fn take_ranges(&self) -> Result<Vec<IpRange>, CidrSetError> {
        let mut ranges = Vec::new();
        for set in self.lock_sets().iter_mut() {
            ranges.push(set.allocate_next());
        }
        if ranges.iter().any(Result::is_err) {
            let taken: Vec<(usize, IpRange)> =
                ranges.iter().enumerate().filter_map(|(index, range)| Some((index, *range.as_ref().ok()?))).collect();
            let mut sets = self.lock_sets();
            for (index, range) in taken {
                if let Some(set) = sets.get_mut(index) {
                    set.mark(range, false)?;
                }
            }
        }
        ranges.into_iter().collect()
    }

    fn release_ranges(&self, ranges: &[IpRange]) {
        for (set, range) in self.lock_sets().iter_mut().zip(ranges) {
            if let Err(error) = set.mark(*range, false) {
                tracing::warn!(%error, "node IPAM: range not released");
            }
        }
    }

    fn record_status(&self, node: &Node, status: &str) {
        self.recorder.record_normal(
            node.object_ref(&()),
            status,
            format!("Node {} status is now: {status}", node.name_any()),
        );
    }

    fn lock_sets(&self) -> MutexGuard<'_, Vec<CidrSet>> {
        self.sets.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn node_cidrs(node: &Node) -> Vec<String> {
    node.spec.as_ref().and_then(|spec| spec.pod_cidrs.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dual_stack_sets_exclude_the_service_ranges() {
        let range = |text: &str| IpRange::parse_cidr(text).unwrap();
        let options = NodeIpamOptions {
            cluster_cidrs: vec![range("10.0.0.0/16"), range("fd00::/56")],
            service_cidrs: vec![range("10.0.0.0/24"), range("fd00::/112")],
            ..Default::default()
        };
        let mut sets = new_sets(&options).unwrap();
        let first: Vec<String> = sets.iter_mut().map(|set| cidr_text(set.allocate_next().unwrap())).collect();
        assert_eq!(first, ["10.0.1.0/24", "fd00:0:0:1::/64"]);
    }
}
