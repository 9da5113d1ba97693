//! The search for nodes that a pod fits on, and the choice between them.

use std::sync::Arc;

use crate::{
    framework::nominated_pods::NominatedPods,
    framework::{
        Framework, PreFilterFailure,
        class_results::ClassResultCache,
        competitors,
        cycle_state::CycleState,
        extension_points::CycleContext,
        status::{Diagnosis, Status},
    },
    handle::SchedulerHandle,
    views::node_info::NodeInfo,
};

/// Number of nodes below which all are tried.
const MIN_FEASIBLE_NODES: usize = 100;
/// The least adaptive percentage.
const MIN_FEASIBLE_PERCENTAGE: usize = 5;

/// Why no node was found.
pub enum SearchFailure {
    /// There are no nodes.
    NoNodes,
    /// The pod fits on none; the number is that of all nodes.
    Unfit(Box<Diagnosis>, usize),
    /// The search itself failed.
    Failed(Status),
}

/// Nodes that a pod fits on, with their positions in the snapshot.
#[derive(Default)]
pub struct FeasibleNodes {
    /// The nodes.
    pub nodes: Vec<Arc<NodeInfo>>,
    /// Their positions.
    pub positions: Vec<usize>,
}

/// Searches nodes for pods, going on where the last search ended.
pub struct NodeSearch {
    handle: Arc<SchedulerHandle>,
    /// Percentage of the nodes after which the search ends; zero adapts to the cluster's size.
    percentage_of_nodes_to_score: i32,
    next_start: usize,
    /// Results that equal pods share.
    results: ClassResultCache,
}

impl NodeSearch {
    /// Creates a search that begins with the first node.
    pub fn new(handle: Arc<SchedulerHandle>, percentage_of_nodes_to_score: i32) -> Self {
        Self { handle, percentage_of_nodes_to_score, next_start: 0, results: ClassResultCache::default() }
    }

    /// Returns the best node for a pod.
    pub fn find_node(
        &mut self,
        cycle: CycleContext<'_>,
        state: &mut CycleState,
        framework: &Framework,
    ) -> Result<Arc<str>, SearchFailure> {
        let count = cycle.snapshot.nodes().len();
        if count == 0 {
            return Err(SearchFailure::NoNodes);
        }
        let mut diagnosis = Diagnosis::default();
        let feasible = self.find_feasible(cycle, state, framework, &mut diagnosis).map_err(SearchFailure::Failed)?;
        match feasible.nodes.as_slice() {
            [] => Err(SearchFailure::Unfit(Box::new(diagnosis), count)),
            [only] => Ok(only.name().clone()),
            _ => self.choose_node(cycle, state, framework, &feasible).map_err(SearchFailure::Failed),
        }
    }

    fn find_feasible(
        &mut self,
        cycle: CycleContext<'_>,
        state: &mut CycleState,
        framework: &Framework,
        diagnosis: &mut Diagnosis,
    ) -> Result<FeasibleNodes, Status> {
        let restricted = match framework.run_pre_filter(cycle, state) {
            Ok(restricted) => restricted,
            Err(PreFilterFailure { status, plugins }) if status.is_rejected() => {
                diagnosis.unschedulable_plugins = plugins;
                diagnosis.pre_filter_message = status.message();
                diagnosis.add_plugin(&status);
                diagnosis.nodes.set_absent(status);
                return Ok(FeasibleNodes::default());
            }
            Err(failure) => return Err(failure.status),
        };
        let nominated = self.handle.queue.nominated_pods();
        if let Some(node) = cycle.pod.nominated_node_name.as_ref().and_then(|name| cycle.snapshot.position(name)) {
            // A failure here is found again below, on all nodes.
            let mut on_node = Diagnosis::default();
            let positions = NodePositions::Some(vec![node]);
            let fits = self.filter_nodes(cycle, state, framework, &nominated, &positions, &mut on_node);
            let fits = fits.and_then(|(feasible, _)| self.ask_extenders(cycle, feasible, &mut on_node));
            if let Ok(feasible) = fits
                && !feasible.nodes.is_empty()
            {
                return Ok(feasible);
            }
        }
        let positions = match restricted {
            None => NodePositions::All(cycle.snapshot.nodes().len()),
            Some((names, plugins)) => {
                let reason = format!("node(s) didn't satisfy plugin(s) [{}]", plugins.join(" "));
                diagnosis.nodes.set_absent(Status::unresolvable(reason));
                diagnosis.unschedulable_plugins = plugins;
                NodePositions::Some(names.iter().filter_map(|name| cycle.snapshot.position(name)).collect())
            }
        };
        let (feasible, tried) = self.filter_nodes(cycle, state, framework, &nominated, &positions, diagnosis)?;
        self.next_start = (self.next_start + tried) % cycle.snapshot.nodes().len();
        self.ask_extenders(cycle, feasible, diagnosis)
    }

    /// Filters nodes from the next start on, until there are enough. Returns them, and how many were tried.
    fn filter_nodes(
        &mut self,
        cycle: CycleContext<'_>,
        state: &CycleState,
        framework: &Framework,
        nominated: &NominatedPods,
        positions: &NodePositions,
        diagnosis: &mut Diagnosis,
    ) -> Result<(FeasibleNodes, usize), Status> {
        let (nodes, count) = (cycle.snapshot.nodes(), positions.len());
        let scores =
            framework.has_scores() || self.handle.extenders.is_filter() || self.handle.extenders.is_prioritizer();
        let wanted = if scores { self.feasible_wanted(framework, count) } else { 1 };
        let capacity = wanted.min(count);
        let mut feasible =
            FeasibleNodes { nodes: Vec::with_capacity(capacity), positions: Vec::with_capacity(capacity) };
        let mut tried = 0;
        let key = framework.class_result_key(cycle, state);
        let shared = key.filters;
        let results = self.results.results(&cycle.pod.placement_class, key, cycle.snapshot);
        while tried < count && feasible.nodes.len() < wanted {
            let position = positions.get((self.next_start + tried) % count);
            tried += 1;
            let Some(node) = nodes.get(position) else { continue };
            let result = match competitors(cycle.pod, node, nominated).next() {
                Some(_) => framework.run_filters_with_nominated(cycle, state, node, nominated),
                None => framework.run_filters_by_class(cycle, state, (position, node), results, shared),
            };
            match result {
                Ok(()) => {
                    feasible.nodes.push(node.clone());
                    feasible.positions.push(position);
                }
                Err(status) if status.is_rejected() => {
                    diagnosis.add_plugin(&status);
                    diagnosis.nodes.set(position, status);
                }
                Err(status) => return Err(status),
            }
        }
        Ok((feasible, tried))
    }

    /// Returns how many feasible nodes are enough.
    fn feasible_wanted(&self, framework: &Framework, nodes: usize) -> usize {
        if nodes < MIN_FEASIBLE_NODES {
            return nodes;
        }
        let percentage = framework.percentage_of_nodes_to_score.unwrap_or(self.percentage_of_nodes_to_score);
        let percentage = match usize::try_from(percentage) {
            Ok(0) | Err(_) => 50usize.saturating_sub(nodes / 125).max(MIN_FEASIBLE_PERCENTAGE),
            Ok(percentage) => percentage,
        };
        (nodes * percentage / 100).max(MIN_FEASIBLE_NODES)
    }

    fn ask_extenders(
        &self,
        cycle: CycleContext<'_>,
        feasible: FeasibleNodes,
        diagnosis: &mut Diagnosis,
    ) -> Result<FeasibleNodes, Status> {
        if self.handle.extenders.is_empty() || feasible.nodes.is_empty() {
            return Ok(feasible);
        }
        let before = feasible.nodes.len();
        let (left, failed) = self.handle.extenders.filter_nodes(cycle.pod, feasible.nodes)?;
        for (name, status) in failed {
            if let Some(position) = cycle.snapshot.position(&name) {
                diagnosis.nodes.set(position, status);
            }
        }
        if left.len() != before && !diagnosis.unschedulable_plugins.contains(&"Extender") {
            diagnosis.unschedulable_plugins.push("Extender");
        }
        let positions = left.iter().map(|node| cycle.snapshot.position(node.name()).unwrap_or(usize::MAX)).collect();
        Ok(FeasibleNodes { nodes: left, positions })
    }

    /// Scores nodes and returns one of the best, by chance.
    fn choose_node(
        &mut self,
        cycle: CycleContext<'_>,
        state: &mut CycleState,
        framework: &Framework,
        feasible: &FeasibleNodes,
    ) -> Result<Arc<str>, Status> {
        let nodes = &feasible.nodes;
        let key = framework.class_result_key(cycle, state);
        let results = self.results.results(&cycle.pod.placement_class, key, cycle.snapshot);
        let mut totals = framework.run_scores(cycle, state, (nodes, &feasible.positions), results)?;
        self.handle.extenders.add_scores(cycle.pod, nodes, &mut totals);
        let best = totals.iter().copied().max().unwrap_or(0);
        let ties = totals.iter().filter(|total| **total == best).count();
        let chosen = fastrand::usize(..ties.max(1));
        let mut tied = nodes.iter().zip(&totals).filter(|(_, total)| **total == best);
        match tied.nth(chosen) {
            Some((node, _)) => Ok(node.name().clone()),
            None => Err(Status::error("no node was scored")),
        }
    }
}

/// The nodes to try: all, or some.
enum NodePositions {
    All(usize),
    Some(Vec<usize>),
}

impl NodePositions {
    fn len(&self) -> usize {
        match self {
            Self::All(count) => *count,
            Self::Some(positions) => positions.len(),
        }
    }

    fn get(&self, index: usize) -> usize {
        match self {
            Self::All(_) => index,
            Self::Some(positions) => positions.get(index).copied().unwrap_or(usize::MAX),
        }
    }
}
