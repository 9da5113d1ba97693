//! NodeResourcesBalancedAllocation: favours nodes whose resources the pod brings into balance.

use std::sync::Arc;

use crate::{
    config::plugin_args::BalancedAllocationArgs,
    framework::{
        cycle_state::CycleState,
        extension_points::{CycleContext, Plugin, PreScorePlugin, ScorePlugin},
        status::Status,
    },
    plugins::resource_scorers::{amount, balanced_score, resource_share},
    views::node_info::NodeInfo,
};

/// The plug-in.
pub struct BalancedAllocation {
    args: BalancedAllocationArgs,
}

impl BalancedAllocation {
    /// Creates the plug-in.
    pub fn new(args: BalancedAllocationArgs) -> Self {
        Self { args }
    }
}

impl Plugin for BalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    fn as_pre_score(&self) -> Option<&dyn PreScorePlugin> {
        Some(self)
    }

    fn as_score(&self) -> Option<&dyn ScorePlugin> {
        Some(self)
    }
}

impl PreScorePlugin for BalancedAllocation {
    /// Pods that request none of the resources do not change the balance.
    fn pre_score(
        &self,
        cycle: CycleContext<'_>,
        _state: &mut CycleState,
        _nodes: &[Arc<NodeInfo>],
    ) -> Result<bool, Status> {
        let requests = &cycle.pod.class.requests.allocated;
        Ok(self.args.resources.iter().any(|resource| amount(requests, &resource.name) != 0))
    }
}

impl ScorePlugin for BalancedAllocation {
    fn score(&self, cycle: CycleContext<'_>, _state: &CycleState, node: &NodeInfo) -> Result<i64, Status> {
        let requests = &cycle.pod.class.requests.allocated;
        let share = |resource: &crate::config::plugin_args::ResourceSpec| {
            resource_share(node, &resource.name, amount(requests, &resource.name), resource.weight, true)
        };
        Ok(match self.args.resources.as_slice() {
            [a, b] => balanced_score(&[share(a), share(b)]),
            all => balanced_score(&all.iter().map(share).collect::<Vec<_>>()),
        })
    }

    fn scores_by_class(&self) -> bool {
        true
    }
}
