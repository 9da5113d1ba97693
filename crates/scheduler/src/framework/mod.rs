//! The scheduling framework of one profile: its plug-ins, and running them at each extension point.

pub mod class_results;
pub mod cluster_event;
pub mod cycle_state;
pub mod extension_points;
pub mod node_counts;
mod node_scores;
pub mod nominated_pods;
pub mod pre_bind_pods;
pub mod queued_pod;
pub mod status;
pub mod waiting_pods;

use std::{collections::HashMap, sync::Arc};

use client::EventSeriesRecorder;

use self::{
    class_results::{ClassResultKey, ClassResults},
    cluster_event::ClusterEvent,
    cycle_state::CycleState,
    extension_points::{CycleContext, NominatingInfo, PermitResult, Plugin, PreFilterResult},
    status::{Diagnosis, NodeStatuses, Reasons, Status, StatusCode},
    waiting_pods::WaitTimes,
};
use crate::{framework::nominated_pods::NominatedPods, views::node_info::NodeInfo, views::pod_info::PodInfo};

/// The longest wait that Permit may ask for.
const MAX_PERMIT_WAIT: std::time::Duration = std::time::Duration::from_secs(15 * 60);

/// The extension points that a plug-in can be enabled at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExtensionPoint {
    PreEnqueue,
    QueueSort,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
}

impl ExtensionPoint {
    /// All points, in the order of the configuration.
    pub const ALL: [Self; 12] = [
        Self::PreEnqueue,
        Self::QueueSort,
        Self::PreFilter,
        Self::Filter,
        Self::PostFilter,
        Self::PreScore,
        Self::Score,
        Self::Reserve,
        Self::Permit,
        Self::PreBind,
        Self::Bind,
        Self::PostBind,
    ];

    /// Whether the plug-in extends this point.
    pub fn is_extended_by(self, plugin: &dyn Plugin) -> bool {
        match self {
            Self::PreEnqueue => plugin.as_pre_enqueue().is_some(),
            Self::QueueSort => plugin.as_queue_sort().is_some(),
            Self::PreFilter => plugin.as_pre_filter().is_some(),
            Self::Filter => plugin.as_filter().is_some(),
            Self::PostFilter => plugin.as_post_filter().is_some(),
            Self::PreScore => plugin.as_pre_score().is_some(),
            Self::Score => plugin.as_score().is_some(),
            Self::Reserve => plugin.as_reserve().is_some(),
            Self::Permit => plugin.as_permit().is_some(),
            Self::PreBind => plugin.as_pre_bind().is_some(),
            Self::Bind => plugin.as_bind().is_some(),
            Self::PostBind => plugin.as_post_bind().is_some(),
        }
    }
}

/// A plug-in of a profile with its position, by which sets of plug-ins are kept.
type IndexedPlugin = (usize, Arc<dyn Plugin>);
/// The enabled plug-ins of every point with their weights.
pub type EnabledPlugins = HashMap<ExtensionPoint, Vec<(Arc<dyn Plugin>, i64)>>;
/// The only nodes that can fit, and the plug-ins that know.
pub type RestrictedNodes = (Vec<Arc<str>>, Vec<&'static str>);

/// The plug-ins that a pod waits for after Permit, with their time limits.
#[derive(Debug, Default)]
pub struct PermitWait {
    /// The plug-ins, and how long at most.
    pub times: WaitTimes,
    /// Why; empty if the pod need not wait.
    pub message: String,
}

/// Why PreFilter failed.
#[derive(Debug)]
pub struct PreFilterFailure {
    /// The failure.
    pub status: Status,
    /// The plug-ins that know the only nodes that can fit; they reject the pod too.
    pub plugins: Vec<&'static str>,
}

impl From<Status> for PreFilterFailure {
    fn from(status: Status) -> Self {
        Self { status, plugins: Vec::new() }
    }
}

/// The plug-ins of one profile.
pub struct Framework {
    /// The scheduler name of the profile.
    pub profile_name: Arc<str>,
    /// Overrides the scheduler's percentage.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// Writes events in the profile's name.
    pub recorder: EventSeriesRecorder,
    points: HashMap<ExtensionPoint, Vec<IndexedPlugin>>,
    /// Filters, apart, for they run most often.
    filters: Vec<IndexedPlugin>,
    scores: Vec<(usize, Arc<dyn Plugin>, i64)>,
    /// Number of scores that equal pods share.
    class_scores: usize,
    /// All plug-ins, each once.
    registered: Vec<RegisteredPlugin>,
}

/// Whether equal pods share the plug-in's score.
fn scores_by_class(plugin: &dyn Plugin) -> bool {
    plugin.as_score().is_some_and(|score| score.scores_by_class())
}

fn run_filter_chain(
    filters: &[IndexedPlugin],
    cycle: CycleContext<'_>,
    state: &CycleState,
    node: &NodeInfo,
) -> Result<(), Status> {
    for (index, plugin) in filters {
        if state.skip_filter.contains(*index) {
            continue;
        }
        let Some(filter) = plugin.as_filter() else { continue };
        if let Err(status) = filter.filter(cycle, state, node) {
            let name = plugin.name();
            return Err(match status.is_rejected() {
                true => status.with_plugin(name),
                false => {
                    Status::error(format!("running {name:?} filter plugin: {}", status.message())).with_plugin(name)
                }
            });
        }
    }
    Ok(())
}

/// Returns the pods of at least the pod's priority that are nominated for a node.
pub fn competitors<'a>(
    pod: &'a PodInfo,
    node: &NodeInfo,
    nominated: &'a NominatedPods,
) -> impl Iterator<Item = &'a Arc<PodInfo>> {
    let competes = |other: &&Arc<PodInfo>| other.priority() >= pod.priority() && other.uid != pod.uid;
    nominated.for_node(node.name()).iter().filter(competes)
}

/// A plug-in with the events that it registered for.
pub struct RegisteredPlugin {
    /// The plug-in.
    pub plugin: Arc<dyn Plugin>,
    events: Vec<ClusterEvent>,
}

impl RegisteredPlugin {
    /// Whether the plug-in registered for an event.
    pub fn is_interested(&self, event: ClusterEvent) -> bool {
        self.events.iter().any(|registered| registered.covers(event))
    }
}

impl Framework {
    /// Creates the framework of a profile; `points` has the enabled plug-ins with their weights.
    pub fn new(
        profile_name: &str,
        percentage_of_nodes_to_score: Option<i32>,
        recorder: EventSeriesRecorder,
        points: EnabledPlugins,
    ) -> Self {
        let mut names: Vec<&'static str> = Vec::new();
        let mut index = |plugin: &Arc<dyn Plugin>| {
            let name = plugin.name();
            names.iter().position(|known| *known == name).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            })
        };
        let mut indexed = HashMap::new();
        let mut scores = Vec::new();
        for (point, plugins) in points {
            let plugins: Vec<_> =
                plugins.into_iter().map(|(plugin, weight)| (index(&plugin), plugin, weight)).collect();
            if point == ExtensionPoint::Score {
                scores = plugins.clone();
            }
            indexed.insert(point, plugins.into_iter().map(|(index, plugin, _)| (index, plugin)).collect::<Vec<_>>());
        }
        let filters = indexed.get(&ExtensionPoint::Filter).cloned().unwrap_or_default();
        let registered = register_plugins(&indexed);
        Self {
            profile_name: profile_name.into(),
            percentage_of_nodes_to_score,
            recorder,
            points: indexed,
            filters,
            class_scores: scores.iter().filter(|(_, plugin, _)| scores_by_class(plugin.as_ref())).count(),
            scores,
            registered,
        }
    }

    /// The plug-ins of a point.
    pub fn plugins(&self, point: ExtensionPoint) -> &[IndexedPlugin] {
        self.points.get(&point).map_or(&[], Vec::as_slice)
    }

    /// All plug-ins with the events that they registered for.
    pub fn registered_plugins(&self) -> &[RegisteredPlugin] {
        &self.registered
    }

    /// Whether there are filters.
    pub fn has_filters(&self) -> bool {
        !self.filters.is_empty()
    }

    /// Whether nodes are scored.
    pub fn has_scores(&self) -> bool {
        !self.scores.is_empty()
    }

    /// Runs PreFilter. Returns the names of the only nodes that can fit, if the plug-ins know, and which plug-ins
    /// those are.
    pub fn run_pre_filter(
        &self,
        cycle: CycleContext<'_>,
        state: &mut CycleState,
    ) -> Result<Option<RestrictedNodes>, PreFilterFailure> {
        let mut nodes: Option<RestrictedNodes> = None;
        let mut rejection = None;
        for (index, plugin) in self.plugins(ExtensionPoint::PreFilter) {
            let Some(pre_filter) = plugin.as_pre_filter() else { continue };
            match pre_filter.pre_filter(cycle, state) {
                Ok(PreFilterResult::AllNodes) => {}
                Ok(PreFilterResult::Skip) => state.skip_filter.insert(*index),
                Ok(PreFilterResult::Nodes(names)) => {
                    let merged = merge_nodes(nodes.take(), names, plugin.name());
                    if merged.0.is_empty() {
                        return Err(PreFilterFailure { status: no_common_node(&merged.1), plugins: merged.1 });
                    }
                    nodes = Some(merged);
                }
                Err(status) if status.code == StatusCode::Unschedulable => {
                    rejection = Some(status.with_plugin(plugin.name()));
                }
                Err(status) if status.is_rejected() => return Err(status.with_plugin(plugin.name()).into()),
                Err(status) => {
                    let message = format!("running PreFilter plugin {:?}: {}", plugin.name(), status.message());
                    return Err(Status::error(message).with_plugin(plugin.name()).into());
                }
            }
        }
        match rejection {
            None => Ok(nodes),
            Some(status) => {
                Err(PreFilterFailure { status, plugins: nodes.map_or_else(Vec::new, |(_, plugins)| plugins) })
            }
        }
    }

    /// Tells the PreFilter states of an added pod.
    pub fn run_add_pod(&self, cycle: CycleContext<'_>, state: &mut CycleState, pod: &PodInfo, node: &NodeInfo) {
        for (index, plugin) in self.plugins(ExtensionPoint::PreFilter) {
            if let Some(extensions) = plugin.as_pre_filter().and_then(|plugin| plugin.extensions())
                && !state.skip_filter.contains(*index)
            {
                extensions.add_pod(cycle, state, pod, node);
            }
        }
    }

    /// Tells the PreFilter states of a removed pod.
    pub fn run_remove_pod(&self, cycle: CycleContext<'_>, state: &mut CycleState, pod: &PodInfo, node: &NodeInfo) {
        for (index, plugin) in self.plugins(ExtensionPoint::PreFilter) {
            if let Some(extensions) = plugin.as_pre_filter().and_then(|plugin| plugin.extensions())
                && !state.skip_filter.contains(*index)
            {
                extensions.remove_pod(cycle, state, pod, node);
            }
        }
    }

    /// Returns the key of the results that the pod shares with equal pods: how many filters at the beginning of the chain,
    /// and which scores, depend on class and node alone.
    pub fn class_result_key(&self, cycle: CycleContext<'_>, state: &CycleState) -> ClassResultKey {
        let class = &cycle.pod.class;
        let is_shared = |(index, plugin): &IndexedPlugin| {
            let by_class = plugin.as_filter().is_some_and(|filter| filter.filters_by_class(class));
            by_class || state.skip_filter.contains(*index)
        };
        // The filter by name reads the pod itself, which has no node yet.
        let shares = cycle.pod.node_name.is_none();
        let filters = self.filters.iter().take_while(|plugin| shares && is_shared(plugin)).count();
        ClassResultKey { profile: self.profile_name.clone(), filters, scores: self.class_scores }
    }

    /// Runs the filters on a node; the first failure counts. Those that equal pods share are taken from `results`.
    pub fn run_filters_by_class(
        &self,
        cycle: CycleContext<'_>,
        state: &CycleState,
        (position, node): (usize, &NodeInfo),
        results: &mut ClassResults,
        shared: usize,
    ) -> Result<(), Status> {
        let (first, rest) = self.filters.split_at(shared.min(self.filters.len()));
        results.filter(position, node, || run_filter_chain(first, cycle, state, node))?;
        run_filter_chain(rest, cycle, state, node)
    }

    /// Runs the filters on a node; the first failure counts.
    pub fn run_filters(&self, cycle: CycleContext<'_>, state: &CycleState, node: &NodeInfo) -> Result<(), Status> {
        run_filter_chain(&self.filters, cycle, state, node)
    }

    /// Runs the filters on a node as if pods of at least the same priority that are nominated for it were there, and
    /// then without them: a pod must fit whether or not they come.
    pub fn run_filters_with_nominated(
        &self,
        cycle: CycleContext<'_>,
        state: &CycleState,
        node: &NodeInfo,
        nominated: &NominatedPods,
    ) -> Result<(), Status> {
        let mut competitors = competitors(cycle.pod, node, nominated).peekable();
        if competitors.peek().is_some() {
            let (mut node, mut state) = (node.clone(), state.clone());
            for other in competitors {
                node.add_pod(other.clone());
                self.run_add_pod(cycle, &mut state, other, &node);
            }
            self.run_filters(cycle, &state, &node)?;
        }
        self.run_filters(cycle, state, node)
    }

    /// Runs PostFilter until a plug-in succeeds.
    pub fn run_post_filter(
        &self,
        cycle: CycleContext<'_>,
        state: &CycleState,
        nodes: &NodeStatuses,
    ) -> (NominatingInfo, Result<(), Status>) {
        let (mut nominating, mut reasons) = (NominatingInfo::Keep, Vec::new());
        if self.plugins(ExtensionPoint::PostFilter).is_empty() {
            return (NominatingInfo::Set(None), Err(Status::unschedulable("")));
        }
        for (_, plugin) in self.plugins(ExtensionPoint::PostFilter) {
            let Some(post_filter) = plugin.as_post_filter() else { continue };
            let (nominated, result) = post_filter.post_filter(cycle, state, self, nodes);
            match result {
                Ok(()) => return (nominated, Ok(())),
                Err(status) if status.code == StatusCode::UnschedulableAndUnresolvable => {
                    return (nominated, Err(status.with_plugin(plugin.name())));
                }
                Err(status) if !status.is_rejected() => {
                    return (NominatingInfo::Keep, Err(status.with_plugin(plugin.name())));
                }
                Err(status) => {
                    if nominated != NominatingInfo::Keep {
                        nominating = nominated;
                    }
                    reasons.extend(status.reasons.iter().map(|reason| reason.to_owned().into()));
                }
            }
        }
        let status = Status { code: StatusCode::Unschedulable, reasons: Reasons::Many(reasons), plugin: "" };
        (nominating, Err(status))
    }

    /// Runs Reserve; the caller unreserves if it fails.
    pub fn run_reserve(&self, state: &mut CycleState, pod: &Arc<PodInfo>, node: &Arc<str>) -> Result<(), Status> {
        for (_, plugin) in self.plugins(ExtensionPoint::Reserve) {
            if let Some(reserve) = plugin.as_reserve() {
                let result = reserve.reserve(state, pod, node);
                result.map_err(|status| plugin_failure("Reserve plugin", plugin.name(), status))?;
            }
        }
        Ok(())
    }

    /// Runs Unreserve, in reverse order.
    pub fn run_unreserve(&self, state: &CycleState, pod: &Arc<PodInfo>, node: &Arc<str>) {
        let plugins = self.plugins(ExtensionPoint::Reserve).iter().rev();
        plugins.filter_map(|(_, plugin)| plugin.as_reserve()).for_each(|plugin| plugin.unreserve(state, pod, node));
    }

    /// Runs Permit; returns for which plug-ins the pod must wait.
    pub fn run_permit(&self, state: &CycleState, pod: &Arc<PodInfo>, node: &Arc<str>) -> Result<PermitWait, Status> {
        let mut wait = PermitWait::default();
        for (_, plugin) in self.plugins(ExtensionPoint::Permit) {
            let Some(permit) = plugin.as_permit() else { continue };
            let result = permit.permit(state, pod, node);
            match result.map_err(|status| plugin_failure("Permit plugin", plugin.name(), status))? {
                PermitResult::Allow => {}
                PermitResult::Wait { timeout, reason } => {
                    wait.times.push((plugin.name(), timeout.min(MAX_PERMIT_WAIT)));
                    wait.message = format!("{reason}, one or more plugins asked to wait and no plugin rejected pod");
                }
            }
        }
        Ok(wait)
    }

    /// Notes which plug-ins have work before the binding; returns whether any has.
    pub fn run_pre_bind_pre_flight(
        &self,
        state: &mut CycleState,
        pod: &Arc<PodInfo>,
        node: &Arc<str>,
    ) -> Result<bool, Status> {
        let mut needed = false;
        for (index, plugin) in self.plugins(ExtensionPoint::PreBind) {
            let Some(pre_bind) = plugin.as_pre_bind() else { continue };
            let result = pre_bind.needs_pre_bind(state, pod, node);
            match result.map_err(|status| {
                Status::error(format!("running PreBindPreFlight {:?}: {}", plugin.name(), status.message()))
            })? {
                true => needed = true,
                false => state.skip_pre_bind.insert(*index),
            }
        }
        Ok(needed)
    }

    /// Runs PreBind.
    pub async fn run_pre_bind(&self, state: &CycleState, pod: &Arc<PodInfo>, node: &Arc<str>) -> Result<(), Status> {
        let plugins = self.plugins(ExtensionPoint::PreBind).iter();
        let work = plugins.filter(|(index, _)| !state.skip_pre_bind.contains(*index)).filter_map(|(_, plugin)| {
            let name = plugin.name();
            let work = plugin.as_pre_bind()?.pre_bind(state, pod, node);
            Some(async move { work.await.map_err(|status| plugin_failure("PreBind plugin", name, status)) })
        });
        futures::future::try_join_all(work).await.map(drop)
    }

    /// Runs Bind until a plug-in binds the pod.
    pub async fn run_bind(&self, pod: &Arc<PodInfo>, node: &Arc<str>) -> Result<(), Status> {
        for (_, plugin) in self.plugins(ExtensionPoint::Bind) {
            let Some(bind) = plugin.as_bind() else { continue };
            let result = bind.bind(pod, node).await;
            if result.map_err(|status| plugin_failure("Bind plugin", plugin.name(), status))? {
                return Ok(());
            }
        }
        Err(Status::error("no plug-in binds the pod"))
    }

    /// Runs PostBind.
    pub fn run_post_bind(&self, state: &CycleState, pod: &Arc<PodInfo>, node: &Arc<str>) {
        let plugins = self.plugins(ExtensionPoint::PostBind).iter();
        plugins.filter_map(|(_, plugin)| plugin.as_post_bind()).for_each(|plugin| plugin.post_bind(state, pod, node));
    }
}

/// Collects the plug-ins of all points, each once, with their events.
fn register_plugins(points: &HashMap<ExtensionPoint, Vec<IndexedPlugin>>) -> Vec<RegisteredPlugin> {
    let mut plugins: Vec<&IndexedPlugin> = points.values().flatten().collect();
    plugins.sort_by_key(|(index, _)| *index);
    plugins.dedup_by_key(|(index, _)| *index);
    let events = |plugin: &dyn Plugin| plugin.as_enqueue_extensions().map(|extensions| extensions.events_to_register());
    plugins
        .into_iter()
        .map(|(_, plugin)| RegisteredPlugin {
            events: events(plugin.as_ref()).unwrap_or_default(),
            plugin: plugin.clone(),
        })
        .collect()
}

/// Names the plug-in of a failure: a rejection keeps its message, an error gets a prefix.
fn plugin_failure(point: &str, name: &'static str, status: Status) -> Status {
    match status.is_rejected() {
        true => status.with_plugin(name),
        false => Status::error(format!("running {point} {name:?}: {}", status.message())),
    }
}

fn merge_nodes(known: Option<RestrictedNodes>, names: Vec<Arc<str>>, plugin: &'static str) -> RestrictedNodes {
    match known {
        None => (names, vec![plugin]),
        Some((mut nodes, mut plugins)) => {
            nodes.retain(|name| names.contains(name));
            plugins.push(plugin);
            plugins.sort_unstable();
            (nodes, plugins)
        }
    }
}

fn no_common_node(plugins: &[&'static str]) -> Status {
    Status::unresolvable(match plugins {
        [plugin] => format!("node(s) didn't satisfy plugin {plugin}"),
        plugins => format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", plugins.join(" ")),
    })
}

/// The diagnosis of a pod that a plug-in rejected on its one node after the search.
pub fn rejection_diagnosis(status: &Status) -> Diagnosis {
    let mut diagnosis = Diagnosis::default();
    diagnosis.add_plugin(status);
    diagnosis.nodes.set(0, status.clone());
    diagnosis
}
