//! The extension points of the scheduling framework, one small trait each, in the order in which they run.
//!
//! A plug-in implements [`Plugin`] and the traits of the points that it extends, and says so by returning itself from the
//! method of that point.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;

use super::{
    Framework,
    cluster_event::{ClusterEvent, EventObject, QueueingHint},
    cycle_state::CycleState,
    status::{NodeStatuses, Status},
};
use crate::{
    framework::queued_pod::QueuedPodInfo,
    snapshot::Snapshot,
    views::node_info::NodeInfo,
    views::pod_info::{PodClass, PodInfo},
};

/// The greatest score of a plug-in after normalization.
pub const MAX_NODE_SCORE: i64 = 100;

/// Subject of a cycle.
#[derive(Clone, Copy)]
pub struct CycleContext<'a> {
    /// The pod to schedule.
    pub pod: &'a Arc<PodInfo>,
    /// The nodes.
    pub snapshot: &'a Snapshot,
}

/// A plug-in: its name, and the extension points that it extends.
pub trait Plugin: Send + Sync {
    /// The name in the configuration.
    fn name(&self) -> &'static str;
    /// Extends PreEnqueue.
    fn as_pre_enqueue(&self) -> Option<&dyn PreEnqueuePlugin> {
        None
    }
    /// Extends QueueSort.
    fn as_queue_sort(&self) -> Option<&dyn QueueSortPlugin> {
        None
    }
    /// Knows the events that may make rejected pods schedulable.
    fn as_enqueue_extensions(&self) -> Option<&dyn EnqueueExtensions> {
        None
    }
    /// Extends PreFilter.
    fn as_pre_filter(&self) -> Option<&dyn PreFilterPlugin> {
        None
    }
    /// Extends Filter.
    fn as_filter(&self) -> Option<&dyn FilterPlugin> {
        None
    }
    /// Extends PostFilter.
    fn as_post_filter(&self) -> Option<&dyn PostFilterPlugin> {
        None
    }
    /// Extends PreScore.
    fn as_pre_score(&self) -> Option<&dyn PreScorePlugin> {
        None
    }
    /// Extends Score.
    fn as_score(&self) -> Option<&dyn ScorePlugin> {
        None
    }
    /// Extends Reserve.
    fn as_reserve(&self) -> Option<&dyn ReservePlugin> {
        None
    }
    /// Extends Permit.
    fn as_permit(&self) -> Option<&dyn PermitPlugin> {
        None
    }
    /// Extends PreBind.
    fn as_pre_bind(&self) -> Option<&dyn PreBindPlugin> {
        None
    }
    /// Extends Bind.
    fn as_bind(&self) -> Option<&dyn BindPlugin> {
        None
    }
    /// Extends PostBind.
    fn as_post_bind(&self) -> Option<&dyn PostBindPlugin> {
        None
    }
}

/// Decides whether a pod may enter the active queue.
pub trait PreEnqueuePlugin {
    /// Returns why the pod is gated, if it is.
    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), Status>;
}

/// Orders the active queue.
pub trait QueueSortPlugin {
    /// Returns the order of two pods; the lesser is tried first.
    fn compare(&self, a: &QueuedPodInfo, b: &QueuedPodInfo) -> std::cmp::Ordering;
}

/// Tells which events may make pods schedulable that the plug-in rejected.
pub trait EnqueueExtensions {
    /// The events.
    fn events_to_register(&self) -> Vec<ClusterEvent>;
    /// Whether an event may make the pod schedulable.
    fn hint(&self, event: ClusterEvent, pod: &PodInfo, object: &EventObject) -> QueueingHint;
    /// Whether [`EnqueueExtensions::hint`] reads nothing but the pod's class, for events of objects other than the pod.
    fn hints_by_class(&self) -> bool {
        true
    }
}

/// The outcome of PreFilter.
#[derive(Debug, PartialEq, Eq)]
pub enum PreFilterResult {
    /// All nodes are filtered.
    AllNodes,
    /// Only these nodes can fit.
    Nodes(Vec<Arc<str>>),
    /// The plug-in's filter has nothing to check for this pod.
    Skip,
}

/// Prepares filtering, or rejects the pod before any node is tried.
pub trait PreFilterPlugin {
    /// Prepares the state.
    fn pre_filter(&self, cycle: CycleContext<'_>, state: &mut CycleState) -> Result<PreFilterResult, Status>;
    /// The methods that keep the state true while preemption tries changes.
    fn extensions(&self) -> Option<&dyn PreFilterExtensions> {
        None
    }
}

/// Keeps a PreFilter state true when a pod is hypothetically added to or removed from a node.
pub trait PreFilterExtensions {
    /// Accounts for an added pod.
    fn add_pod(&self, cycle: CycleContext<'_>, state: &mut CycleState, added: &PodInfo, node: &NodeInfo);
    /// Accounts for a removed pod.
    fn remove_pod(&self, cycle: CycleContext<'_>, state: &mut CycleState, removed: &PodInfo, node: &NodeInfo);
}

/// Decides whether a pod can run on a node.
pub trait FilterPlugin {
    /// Returns why it cannot, if so.
    fn filter(&self, cycle: CycleContext<'_>, state: &CycleState, node: &NodeInfo) -> Result<(), Status>;
    /// Whether the result for pods of a class depends on the class and the node alone, so that equal pods share it.
    fn filters_by_class(&self, _class: &PodClass) -> bool {
        false
    }
}

/// Change of `status.nominatedNodeName`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NominatingInfo {
    /// Leave it.
    #[default]
    Keep,
    /// Set it, or clear it.
    Set(Option<Arc<str>>),
}

/// Tries to make room for a pod that fits nowhere.
pub trait PostFilterPlugin {
    /// Returns what to nominate, and why nothing could be done, if so.
    fn post_filter(
        &self,
        cycle: CycleContext<'_>,
        state: &CycleState,
        framework: &Framework,
        nodes: &NodeStatuses,
    ) -> (NominatingInfo, Result<(), Status>);
}

/// Prepares scoring.
pub trait PreScorePlugin {
    /// Prepares the state; returns `false` if all nodes get the same score.
    fn pre_score(
        &self,
        cycle: CycleContext<'_>,
        state: &mut CycleState,
        nodes: &[Arc<NodeInfo>],
    ) -> Result<bool, Status>;
}

/// Scores the nodes that a pod fits on.
pub trait ScorePlugin {
    /// Scores a node.
    fn score(&self, cycle: CycleContext<'_>, state: &CycleState, node: &NodeInfo) -> Result<i64, Status>;
    /// Whether the score before normalization depends on the pod's class and the node alone, so that equal pods share it.
    fn scores_by_class(&self) -> bool {
        false
    }
    /// Brings the scores of `nodes` into the range from 0 to [`MAX_NODE_SCORE`].
    fn normalize(
        &self,
        _cycle: CycleContext<'_>,
        _state: &CycleState,
        _nodes: &[Arc<NodeInfo>],
        _scores: &mut [i64],
    ) -> Result<(), Status> {
        Ok(())
    }
}

/// Reserves what a pod uses on its node, in memory.
pub trait ReservePlugin {
    /// Reserves for the pod.
    fn reserve(&self, state: &mut CycleState, pod: &Arc<PodInfo>, node: &Arc<str>) -> Result<(), Status>;
    /// Releases what was reserved; also called if nothing was.
    fn unreserve(&self, state: &CycleState, pod: &Arc<PodInfo>, node: &Arc<str>);
}

/// The outcome of Permit.
#[derive(Debug, PartialEq, Eq)]
pub enum PermitResult {
    /// The pod may be bound.
    Allow,
    /// The pod must wait for the plug-in.
    Wait {
        /// The longest wait.
        timeout: Duration,
        /// Why.
        reason: &'static str,
    },
}

/// Allows, delays or forbids the binding of a pod.
pub trait PermitPlugin {
    /// Decides.
    fn permit(&self, state: &CycleState, pod: &Arc<PodInfo>, node: &Arc<str>) -> Result<PermitResult, Status>;
}

/// Does work that must be done before a pod is bound.
pub trait PreBindPlugin {
    /// Whether there is work to do.
    fn needs_pre_bind(&self, state: &CycleState, pod: &Arc<PodInfo>, node: &Arc<str>) -> Result<bool, Status>;
    /// Does it.
    fn pre_bind<'a>(
        &'a self,
        state: &'a CycleState,
        pod: &'a Arc<PodInfo>,
        node: &'a Arc<str>,
    ) -> BoxFuture<'a, Result<(), Status>>;
}

/// Binds pods.
pub trait BindPlugin {
    /// Binds the pod; returns `false` if the plug-in leaves that to another.
    fn bind<'a>(&'a self, pod: &'a Arc<PodInfo>, node: &'a Arc<str>) -> BoxFuture<'a, Result<bool, Status>>;
}

/// Is told of bound pods.
pub trait PostBindPlugin {
    /// Cleans up.
    fn post_bind(&self, state: &CycleState, pod: &Arc<PodInfo>, node: &Arc<str>);
}

/// Scales scores to the range from 0 to [`MAX_NODE_SCORE`] by the greatest; reversed, the least is the best.
pub fn normalize_by_maximum(scores: &mut [i64], is_reversed: bool) {
    let greatest = scores.iter().copied().max().unwrap_or(0).max(0);
    for score in scores.iter_mut() {
        let scaled = if greatest == 0 { *score } else { MAX_NODE_SCORE * *score / greatest };
        *score = if is_reversed { MAX_NODE_SCORE - scaled } else { scaled };
    }
}
