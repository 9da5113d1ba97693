//! Filtering by hard constraints.

use std::{collections::HashMap, sync::Arc};

use super::{PodTopologySpread, count_matching_pods, has_all_topologies};
use crate::{
    framework::{
        cycle_state::CycleState,
        extension_points::{CycleContext, FilterPlugin, PreFilterExtensions, PreFilterPlugin, PreFilterResult},
        status::Status,
    },
    views::node_info::NodeInfo,
    views::pod_info::{PodClass, PodInfo},
    views::spread_constraints::SpreadConstraint,
};

/// The counts of the cycle.
#[derive(Clone)]
struct SpreadFilterState {
    constraints: Arc<[SpreadConstraint]>,
    /// By constraint.
    domains: Vec<DomainCounts>,
}

/// Nodes and pods of a domain.
#[derive(Clone, Copy, Default)]
pub(super) struct DomainCount {
    nodes: i64,
    pods: i64,
}

/// Domains by name.
type Domains = HashMap<Arc<str>, DomainCount>;

/// Domains by constraint.
pub(super) type ConstraintDomains = Vec<Arc<Domains>>;

/// Pods by domain, with the two domains that have the fewest.
#[derive(Clone, Default)]
struct DomainCounts {
    domains: Arc<Domains>,
    least: [Option<(Arc<str>, i64)>; 2],
}

impl DomainCounts {
    fn new(domains: Arc<Domains>) -> Self {
        let mut counts = Self { domains: domains.clone(), ..Self::default() };
        domains.iter().for_each(|(domain, count)| counts.rank(domain, count.pods));
        counts
    }

    fn change(&mut self, domain: &Arc<str>, delta: i64) {
        let count = Arc::make_mut(&mut self.domains).entry(domain.clone()).or_default();
        count.pods += delta;
        let pods = count.pods;
        self.rank(domain, pods);
    }

    /// Keeps the domain among the least, if it is one of them.
    fn rank(&mut self, domain: &Arc<str>, count: i64) {
        let is_domain = |entry: &Option<(Arc<str>, i64)>| entry.as_ref().is_some_and(|(known, _)| known == domain);
        let count_of =
            |entry: &Option<(Arc<str>, i64)>| entry.as_ref().map_or(i64::from(i32::MAX), |(_, count)| *count);
        if let Some(place) = self.least.iter().position(is_domain) {
            self.least[place] = Some((domain.clone(), count));
            if count_of(&self.least[0]) > count_of(&self.least[1]) {
                self.least.swap(0, 1);
            }
        } else if count < count_of(&self.least[0]) {
            self.least.swap(0, 1);
            self.least[0] = Some((domain.clone(), count));
        } else if count < count_of(&self.least[1]) {
            self.least[1] = Some((domain.clone(), count));
        }
    }

    /// The least count, or zero if there are too few domains.
    fn minimum(&self, min_domains: i32) -> i64 {
        match i64::try_from(self.domains.len()) {
            Ok(domains) if domains >= i64::from(min_domains) => self.least[0].as_ref().map_or(0, |(_, count)| *count),
            _ => 0,
        }
    }
}

/// Adds what a node has, times the factor, to its domains. A domain without nodes is none.
fn add_node(
    totals: &mut ConstraintDomains,
    constraints: &[SpreadConstraint],
    class: &PodClass,
    node: &NodeInfo,
    factor: i64,
) {
    if !has_all_topologies(&node.node, constraints) {
        return;
    }
    for (constraint, total) in constraints.iter().zip(totals) {
        let Some(domain) = node.node.labels.get(&constraint.topology_key) else { continue };
        if !constraint.counts_node(class, &node.node) {
            continue;
        }
        let domains = Arc::make_mut(total);
        let count = domains.entry(domain.clone()).or_default();
        count.nodes += factor;
        count.pods += factor * count_matching_pods(node, &constraint.selector, &class.namespace);
        if count.nodes == 0 && count.pods == 0 {
            domains.remove(domain);
        }
    }
}

impl PreFilterPlugin for PodTopologySpread {
    fn pre_filter(&self, cycle: CycleContext<'_>, state: &mut CycleState) -> Result<PreFilterResult, Status> {
        let class = &cycle.pod.class;
        let constraints = self.constraints(class, true);
        if constraints.is_empty() {
            return Ok(PreFilterResult::Skip);
        }
        let constraints: Arc<[SpreadConstraint]> = constraints.into();
        let domains = self.filter_counts.count(
            &cycle.pod.placement_class,
            constraints.clone(),
            cycle.snapshot,
            |totals, node, factor| {
                totals.resize(constraints.len(), Arc::default());
                add_node(totals, &constraints, class, node, factor);
            },
        );
        let domains = domains.iter().map(|domains| DomainCounts::new(domains.clone())).collect();
        state.write_for_search(SpreadFilterState { domains, constraints });
        Ok(PreFilterResult::AllNodes)
    }

    fn extensions(&self) -> Option<&dyn PreFilterExtensions> {
        Some(self)
    }
}

impl PreFilterExtensions for PodTopologySpread {
    fn add_pod(&self, cycle: CycleContext<'_>, state: &mut CycleState, added: &PodInfo, node: &NodeInfo) {
        change_counts(cycle, state, added, node, 1);
    }

    fn remove_pod(&self, cycle: CycleContext<'_>, state: &mut CycleState, removed: &PodInfo, node: &NodeInfo) {
        change_counts(cycle, state, removed, node, -1);
    }
}

fn change_counts(cycle: CycleContext<'_>, state: &mut CycleState, pod: &PodInfo, node: &NodeInfo, delta: i64) {
    let class = &cycle.pod.class;
    let Some(state) = state.get_mut::<SpreadFilterState>() else { return };
    if pod.class.namespace != class.namespace || !has_all_topologies(&node.node, &state.constraints) {
        return;
    }
    for (constraint, domains) in state.constraints.iter().zip(&mut state.domains) {
        if !constraint.selector.matches(&pod.class.labels) || !constraint.counts_node(class, &node.node) {
            continue;
        }
        if let Some(domain) = node.node.labels.get(&constraint.topology_key) {
            domains.change(domain, delta);
        }
    }
}

impl FilterPlugin for PodTopologySpread {
    fn filter(&self, cycle: CycleContext<'_>, state: &CycleState, node: &NodeInfo) -> Result<(), Status> {
        let Some(state) = state.get::<SpreadFilterState>() else { return Ok(()) };
        for (constraint, domains) in state.constraints.iter().zip(&state.domains) {
            let Some(domain) = node.node.labels.get(&constraint.topology_key) else {
                return Err(Status::unresolvable(
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                ));
            };
            let own = i64::from(constraint.selector.matches(&cycle.pod.class.labels));
            let count = domains.domains.get(domain).map_or(0, |count| count.pods);
            if count + own - domains.minimum(constraint.min_domains) > i64::from(constraint.max_skew) {
                return Err(Status::unschedulable("node(s) didn't match pod topology spread constraints"));
            }
        }
        Ok(())
    }
}
