//! Scoring by soft constraints.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{HOSTNAME, PodTopologySpread, count_matching_pods, has_all_topologies};
use crate::{
    framework::{
        cycle_state::CycleState,
        extension_points::{CycleContext, MAX_NODE_SCORE, PreScorePlugin, ScorePlugin},
        status::Status,
    },
    views::node_info::NodeInfo,
    views::spread_constraints::SpreadConstraint,
};

/// The counts of the cycle.
#[derive(Clone)]
struct SpreadScoreState {
    /// Whether nodes without one of the labels are left out.
    requires_all: bool,
    constraints: Arc<[ConstraintScore]>,
    /// Pods by constraint and domain; host names are counted when they are scored.
    counts: Arc<DomainPods>,
}

/// Pods by constraint and domain.
pub(super) type DomainPods = Vec<HashMap<Arc<str>, i64>>;

/// The input of the counts: the constraints, and whether nodes without one of the labels are left out.
pub(super) type ScoreContext = (bool, Vec<SpreadConstraint>);

struct ConstraintScore {
    constraint: SpreadConstraint,
    /// Grows with the number of domains, so that constraints with many do not weigh less.
    weight: f64,
}

impl ConstraintScore {
    fn is_by_host(&self) -> bool {
        self.constraint.topology_key.as_ref() == HOSTNAME
    }
}

impl SpreadScoreState {
    fn ignores(&self, node: &NodeInfo) -> bool {
        let has = |score: &ConstraintScore| node.node.labels.get(&score.constraint.topology_key).is_some();
        self.requires_all && !self.constraints.iter().all(has)
    }
}

impl PreScorePlugin for PodTopologySpread {
    fn pre_score(
        &self,
        cycle: CycleContext<'_>,
        state: &mut CycleState,
        nodes: &[Arc<NodeInfo>],
    ) -> Result<bool, Status> {
        let class = &cycle.pod.class;
        let constraints = self.constraints(class, false);
        if constraints.is_empty() {
            return Ok(false);
        }
        let requires_all = !class.spread_constraints.is_empty() || !self.is_system_defaulted();
        let counted: Vec<_> =
            nodes.iter().filter(|node| !requires_all || has_all_topologies(&node.node, &constraints)).collect();
        let no_domain: Arc<str> = Arc::from("");
        let score = |constraint: &SpreadConstraint| {
            let domain =
                |node: &&Arc<NodeInfo>| node.node.labels.get(&constraint.topology_key).unwrap_or(&no_domain).clone();
            let size = match constraint.topology_key.as_ref() == HOSTNAME {
                true => counted.len(),
                false => counted.iter().map(domain).collect::<HashSet<_>>().len(),
            };
            ConstraintScore { constraint: constraint.clone(), weight: ((size + 2) as f64).ln() }
        };
        let scores: Vec<ConstraintScore> = constraints.iter().map(score).collect();
        let context = (requires_all, constraints);
        let counts =
            self.score_counts.count(&cycle.pod.placement_class, context, cycle.snapshot, |counts, node, factor| {
                counts.resize(scores.len(), HashMap::new());
                let has = |score: &ConstraintScore| node.node.labels.get(&score.constraint.topology_key).is_some();
                if requires_all && !scores.iter().all(has) {
                    return;
                }
                for (score, counts) in scores.iter().zip(counts).filter(|(score, _)| !score.is_by_host()) {
                    if score.constraint.counts_node(class, &node.node) {
                        let domain = node.node.labels.get(&score.constraint.topology_key).unwrap_or(&no_domain);
                        let pods = count_matching_pods(node, &score.constraint.selector, &class.namespace);
                        if pods != 0 {
                            *counts.entry(domain.clone()).or_insert(0) += factor * pods;
                        }
                    }
                }
            });
        state.write_for_search(SpreadScoreState { requires_all, constraints: scores.into(), counts });
        Ok(true)
    }
}

impl ScorePlugin for PodTopologySpread {
    fn score(&self, cycle: CycleContext<'_>, state: &CycleState, node: &NodeInfo) -> Result<i64, Status> {
        let Some(state) = state.get::<SpreadScoreState>() else { return Ok(0) };
        if state.ignores(node) {
            return Ok(0);
        }
        let mut total = 0.0;
        for (place, score) in state.constraints.iter().enumerate() {
            let Some(domain) = node.node.labels.get(&score.constraint.topology_key) else { continue };
            let count = match score.is_by_host() {
                true => count_matching_pods(node, &score.constraint.selector, &cycle.pod.class.namespace),
                false => state.counts.get(place).and_then(|counts| counts.get(domain)).copied().unwrap_or(0),
            };
            total += count as f64 * score.weight + f64::from(score.constraint.max_skew - 1);
        }
        Ok(total.round() as i64)
    }

    fn normalize(
        &self,
        _cycle: CycleContext<'_>,
        state: &CycleState,
        nodes: &[Arc<NodeInfo>],
        scores: &mut [i64],
    ) -> Result<(), Status> {
        let Some(state) = state.get::<SpreadScoreState>() else { return Ok(()) };
        let counted = || nodes.iter().zip(scores.iter()).filter(|(node, _)| !state.ignores(node));
        let least = counted().map(|(_, score)| *score).min().unwrap_or(i64::MAX);
        let greatest = counted().map(|(_, score)| *score).max().unwrap_or(0).max(0);
        for (node, score) in nodes.iter().zip(scores.iter_mut()) {
            *score = match greatest {
                _ if state.ignores(node) => 0,
                0 => MAX_NODE_SCORE,
                greatest => MAX_NODE_SCORE * (greatest + least - *score) / greatest,
            };
        }
        Ok(())
    }
}
