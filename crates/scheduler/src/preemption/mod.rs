//! DefaultPreemption: makes room for a pod by deleting pods of lower priority.
//!
//! On every node where it may help, the pods of lower priority are removed hypothetically, and as many as possible are
//! reprieved. Of the candidates one is chosen that violates the fewest disruption budgets and costs the least. Its victims are
//! deleted in the background; until that is done the pod does not enter the active queue.

mod executor;

use std::sync::{Arc, atomic::Ordering};

use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use self::executor::PreemptionExecutor;
use crate::{
    candidate::{Candidate, select_candidate, sort_by_importance},
    config::plugin_args::DefaultPreemptionArgs,
    framework::nominated_pods::NominatedPods,
    framework::{
        Framework,
        cluster_event::{ActionType, ClusterEvent, EventObject, EventResource, QueueingHint},
        cycle_state::CycleState,
        extension_points::{
            CycleContext, EnqueueExtensions, NominatingInfo, Plugin, PostFilterPlugin, PreEnqueuePlugin,
        },
        status::{Diagnosis, NodeStatuses, Status, StatusCode},
    },
    handle::SchedulerHandle,
    metrics::METRICS,
    views::labels::Selector,
    views::node_info::NodeInfo,
    views::pod_info::PodInfo,
};

/// The plug-in.
pub struct DefaultPreemption {
    args: DefaultPreemptionArgs,
    handle: Arc<SchedulerHandle>,
    executor: PreemptionExecutor,
}

/// A disruption budget in the form that preemption reads.
pub struct BudgetView {
    namespace: String,
    selector: Selector,
    allowed: i32,
    /// Pods whose disruption is under way.
    disrupted: Vec<String>,
}

impl BudgetView {
    /// Reads a disruption budget.
    pub fn from_budget(budget: &PodDisruptionBudget) -> Self {
        let status = budget.status.as_ref();
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        Self {
            namespace: budget.metadata.namespace.clone().unwrap_or_default(),
            selector: Selector::from_label_selector(selector),
            allowed: status.and_then(|status| status.disruptions_allowed).unwrap_or(0),
            disrupted: status
                .and_then(|status| status.disrupted_pods.as_ref())
                .map(|pods| pods.keys().cloned().collect())
                .unwrap_or_default(),
        }
    }

    fn covers(&self, pod: &PodInfo) -> bool {
        self.namespace == *pod.class.namespace
            && !self.selector.is_empty()
            && self.selector.matches(&pod.class.labels)
            && !self.disrupted.iter().any(|name| **name == *pod.name)
    }
}

impl DefaultPreemption {
    /// Creates the plug-in.
    pub fn new(args: DefaultPreemptionArgs, handle: Arc<SchedulerHandle>) -> Self {
        Self { args, executor: PreemptionExecutor::new(handle.clone()), handle }
    }

    fn preempt(
        &self,
        cycle: CycleContext<'_>,
        state: &CycleState,
        framework: &Framework,
        nodes: &NodeStatuses,
    ) -> (NominatingInfo, Result<(), Status>) {
        let Some(pod) = self.handle.pods.get(&cycle.pod.class.namespace, &cycle.pod.name) else {
            let message = format!("pods {:?} not found", cycle.pod.name);
            return (NominatingInfo::Keep, Err(Status::error(message)));
        };
        if let Some(reason) = ineligibility(&pod, cycle, nodes) {
            return (NominatingInfo::Keep, Err(Status::unschedulable(reason)));
        }
        let (candidates, statuses) = self.find_candidates(cycle, state, framework, nodes);
        if let Some(error) = statuses.error().filter(|_| candidates.is_empty()) {
            return (NominatingInfo::Keep, Err(Status::error(error)));
        }
        if candidates.is_empty() {
            let mut diagnosis = Diagnosis { nodes: statuses, ..Diagnosis::default() };
            diagnosis.nodes.set_absent(Status::unresolvable("Preemption is not helpful for scheduling"));
            let message = diagnosis.render_message(cycle.snapshot.nodes().len());
            return (NominatingInfo::Set(None), Err(Status::unschedulable(message)));
        }
        let candidates = match self.handle.extenders.process_preemption(&pod, candidates, cycle.snapshot) {
            Ok(candidates) => candidates,
            Err(status) => return (NominatingInfo::Keep, Err(status)),
        };
        let Some(best) = select_candidate(candidates) else {
            let status = Status::unschedulable("no candidate node for preemption");
            return (NominatingInfo::Keep, Err(status));
        };
        let node = best.node.clone();
        self.executor.preempt_in_background(pod, best);
        (NominatingInfo::Set(Some(node)), Ok(()))
    }

    /// Tries nodes from a random one on, until there are enough candidates.
    fn find_candidates(
        &self,
        cycle: CycleContext<'_>,
        state: &CycleState,
        framework: &Framework,
        nodes: &NodeStatuses,
    ) -> (Vec<Candidate>, NodeStatuses) {
        let positions = nodes.resolvable_nodes(cycle.snapshot.nodes().len());
        let (mut statuses, mut good, mut violating) = (NodeStatuses::default(), Vec::new(), Vec::new());
        if positions.is_empty() {
            return (good, statuses);
        }
        let budgets: Vec<BudgetView> =
            self.handle.objects.budgets.list().iter().map(|budget| BudgetView::from_budget(budget)).collect();
        let nominated = self.handle.queue.nominated_pods();
        let wanted = self.candidates_wanted(positions.len());
        let offset = fastrand::usize(..positions.len());
        for index in 0..positions.len() {
            let position = positions[(offset + index) % positions.len()];
            let Some(node) = cycle.snapshot.nodes().get(position) else { continue };
            match select_victims_on_node(cycle, (framework, state), node, &nominated, &budgets) {
                Ok(candidate) if candidate.violations == 0 => good.push(candidate),
                Ok(candidate) => violating.push(candidate),
                Err(status) => statuses.set(position, status),
            }
            if !good.is_empty() && good.len() + violating.len() >= wanted {
                break;
            }
        }
        good.append(&mut violating);
        (good, statuses)
    }

    fn candidates_wanted(&self, nodes: usize) -> usize {
        let percentage = usize::try_from(self.args.min_candidate_nodes_percentage).unwrap_or(0);
        let absolute = usize::try_from(self.args.min_candidate_nodes_absolute).unwrap_or(0);
        (nodes * percentage / 100).max(absolute).min(nodes)
    }
}

/// Selects the pods that must go from a node for the pod to fit there.
pub fn select_victims_on_node(
    cycle: CycleContext<'_>,
    (framework, state): (&Framework, &CycleState),
    node: &NodeInfo,
    nominated: &NominatedPods,
    budgets: &[BudgetView],
) -> Result<Candidate, Status> {
    let mut trial = Trial { cycle, framework, nominated, state: state.clone(), node: node.clone() };
    trial.select_victims(budgets)
}

/// Returns why a pod may not preempt others, if it may not.
fn ineligibility(pod: &PodInfo, cycle: CycleContext<'_>, nodes: &NodeStatuses) -> Option<&'static str> {
    if pod.class.preempts_never {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let nominated = cycle.snapshot.position(pod.nominated_node_name.as_ref()?)?;
    if nodes.code(nominated) == StatusCode::UnschedulableAndUnresolvable {
        return None;
    }
    let is_victim = |other: &Arc<PodInfo>| {
        let by_scheduler = other.disruption_condition.as_ref().is_some_and(|condition| {
            condition.status.as_ref() == "True" && condition.reason.as_ref() == "PreemptionByScheduler"
        });
        other.priority() < pod.priority() && other.is_deleting && by_scheduler
    };
    let node = cycle.snapshot.nodes().get(nominated)?;
    node.pods.iter().any(is_victim).then_some("not eligible due to a terminating pod on the nominated node.")
}

/// A node on which preemption is tried, with a state of its own.
struct Trial<'a> {
    cycle: CycleContext<'a>,
    framework: &'a Framework,
    nominated: &'a NominatedPods,
    state: CycleState,
    node: NodeInfo,
}

impl Trial<'_> {
    /// Selects the victims: first everything of lower priority goes, then what is not in the way may stay, the most
    /// important and those with a violated budget first.
    fn select_victims(&mut self, budgets: &[BudgetView]) -> Result<Candidate, Status> {
        let priority = self.cycle.pod.priority();
        let mut potential: Vec<Arc<PodInfo>> =
            self.node.pods.iter().filter(|pod| pod.priority() < priority).cloned().collect();
        potential.iter().for_each(|pod| self.remove_pod(pod));
        if potential.is_empty() {
            return Err(Status::unresolvable("No preemption victims found for incoming pod"));
        }
        self.run_filters()?;
        sort_by_importance(&mut potential);
        let (violating, others) = split_by_budgets(potential, budgets);
        let has_both = !violating.is_empty() && !others.is_empty();
        let (mut victims, mut violations) = (Vec::new(), 0);
        for pod in violating {
            if !self.reprieve(&pod) {
                victims.push(pod);
                violations += 1;
            }
        }
        victims.extend(others.into_iter().filter(|pod| !self.reprieve(pod)).collect::<Vec<_>>());
        if has_both {
            sort_by_importance(&mut victims);
        }
        match victims.is_empty() {
            false => Ok(Candidate { node: self.node.name().clone(), victims, violations }),
            true => Err(Status::error(format!("expected at least one victim pod on node {:?}", self.node.name()))),
        }
    }

    /// Puts a pod back; returns whether it may stay.
    fn reprieve(&mut self, pod: &Arc<PodInfo>) -> bool {
        self.node.add_pod(pod.clone());
        self.framework.run_add_pod(self.cycle, &mut self.state, pod, &self.node);
        let fits = self.run_filters().is_ok();
        if !fits {
            self.remove_pod(pod);
        }
        fits
    }

    fn remove_pod(&mut self, pod: &Arc<PodInfo>) {
        self.node.remove_pod(&pod.uid);
        self.framework.run_remove_pod(self.cycle, &mut self.state, pod, &self.node);
    }

    fn run_filters(&self) -> Result<(), Status> {
        self.framework.run_filters_with_nominated(self.cycle, &self.state, &self.node, self.nominated)
    }
}

/// Splits pods into those whose deletion violates a budget, and the others.
fn split_by_budgets(pods: Vec<Arc<PodInfo>>, budgets: &[BudgetView]) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
    let mut allowed: Vec<i32> = budgets.iter().map(|budget| budget.allowed).collect();
    pods.into_iter().partition(|pod| {
        let mut is_violated = false;
        for (budget, allowed) in budgets.iter().zip(&mut allowed) {
            if !pod.class.labels.is_empty() && budget.covers(pod) {
                *allowed -= 1;
                is_violated |= *allowed < 0;
            }
        }
        is_violated
    })
}

impl Plugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        "DefaultPreemption"
    }

    fn as_pre_enqueue(&self) -> Option<&dyn PreEnqueuePlugin> {
        Some(self)
    }

    fn as_post_filter(&self) -> Option<&dyn PostFilterPlugin> {
        Some(self)
    }

    fn as_enqueue_extensions(&self) -> Option<&dyn EnqueueExtensions> {
        Some(self)
    }
}

impl PreEnqueuePlugin for DefaultPreemption {
    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), Status> {
        match self.executor.is_preempting(&pod.uid) {
            false => Ok(()),
            true => Err(Status::unresolvable("waiting for the preemption for this pod to be finished")),
        }
    }
}

impl PostFilterPlugin for DefaultPreemption {
    fn post_filter(
        &self,
        cycle: CycleContext<'_>,
        state: &CycleState,
        framework: &Framework,
        nodes: &NodeStatuses,
    ) -> (NominatingInfo, Result<(), Status>) {
        METRICS.preemption_attempts.fetch_add(1, Ordering::Relaxed);
        let (nominating, result) = self.preempt(cycle, state, framework, nodes);
        let result = result.map_err(|status| match status.message() {
            message if message.is_empty() => status,
            message => Status::new(status.code, format!("preemption: {message}")),
        });
        (nominating, result)
    }
}

impl EnqueueExtensions for DefaultPreemption {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![ClusterEvent::new(EventResource::Pod, ActionType::DELETE)]
    }

    /// The deletion of a victim ends the gate; whether the pod fits then is for other plug-ins to tell.
    fn hint(&self, _event: ClusterEvent, _pod: &PodInfo, _object: &EventObject) -> QueueingHint {
        QueueingHint::Skip
    }
}
