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
    views::pod_info::PodInfo,
    views::spread_constraints::SpreadConstraint,
};

/// The counts of the cycle.
#[derive(Clone)]
struct SpreadFilterState {
    constraints: Arc<[SpreadConstraint]>,
    /// By constraint.
    domains: Vec<DomainCounts>,
}

/// Pods by domain, with the two domains that have the fewest.
#[derive(Clone, Default)]
struct DomainCounts {
    counts: HashMap<Arc<str>, i64>,
    least: [Option<(Arc<str>, i64)>; 2],
}

impl DomainCounts {
    fn set(&mut self, domain: &Arc<str>, count: i64) {
        self.counts.insert(domain.clone(), count);
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
        match i64::try_from(self.counts.len()) {
            Ok(domains) if domains >= i64::from(min_domains) => self.least[0].as_ref().map_or(0, |(_, count)| *count),
            _ => 0,
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
        let mut totals: Vec<HashMap<Arc<str>, i64>> = vec![HashMap::new(); constraints.len()];
        for node in cycle.snapshot.nodes().iter().filter(|node| has_all_topologies(&node.node, &constraints)) {
            for (constraint, total) in constraints.iter().zip(&mut totals) {
                if !constraint.counts_node(class, &node.node) {
                    continue;
                }
                let Some(domain) = node.node.labels.get(&constraint.topology_key) else { continue };
                let count = count_matching_pods(node, &constraint.selector, &class.namespace);
                *total.entry(domain.clone()).or_insert(0) += count;
            }
        }
        let domains = totals.into_iter().map(|counts| {
            let mut domains = DomainCounts::default();
            counts.iter().for_each(|(domain, count)| domains.set(domain, *count));
            domains
        });
        state.write(SpreadFilterState { domains: domains.collect(), constraints: constraints.into() });
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
            let count = domains.counts.get(domain).copied().unwrap_or(0) + delta;
            domains.set(domain, count);
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
            let count = domains.counts.get(domain).copied().unwrap_or(0);
            if count + own - domains.minimum(constraint.min_domains) > i64::from(constraint.max_skew) {
                return Err(Status::unschedulable("node(s) didn't match pod topology spread constraints"));
            }
        }
        Ok(())
    }
}
