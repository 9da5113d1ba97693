//! Moves between the parts of the queue: which event moves which pod where.

use std::{collections::HashMap, sync::Arc};

use super::{QueueState, SchedulingQueue};
use crate::{
    framework::{
        ExtensionPoint, Framework, RegisteredPlugin,
        cluster_event::{ClusterEvent, EventObject, ObjectChange, QueueingHint},
        queued_pod::QueuedPodInfo,
    },
    metrics::METRICS,
    views::pod_info::{PodClass, PodInfo},
};

/// Destination of a pod after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueingStrategy {
    /// It stays in the pool.
    Skip,
    /// It is tried when its back-off is over.
    AfterBackoff,
    /// It is tried at once.
    Immediately,
}

/// Hints of one event, by plug-in and class: equal pods are asked for once.
type HintMemo = HashMap<(&'static str, *const PodClass), QueueingHint>;

/// Selects the pods that an event may move.
pub type PreCheck<'a> = &'a dyn Fn(&PodInfo) -> bool;

/// The object of an event about a pod.
pub fn pod_change(old: Option<Arc<PodInfo>>, new: Option<Arc<PodInfo>>) -> EventObject {
    EventObject::Pod(ObjectChange { old, new })
}

impl SchedulingQueue {
    /// Moves the pods that an event may have made schedulable.
    pub fn move_pods_on_event(&self, event: ClusterEvent, object: EventObject, pre_check: Option<PreCheck<'_>>) {
        let plugins = self.interested_plugins(event);
        if plugins.is_empty() {
            return;
        }
        let object = Arc::new(object);
        let mut state = self.lock();
        let candidates = state.unschedulable.rejected_by(&plugins);
        let mut memo = HintMemo::new();
        let mut moved = false;
        for uid in candidates {
            let Some(entry) = state.unschedulable.get(&uid) else { continue };
            if pre_check.is_some_and(|check| !check(&entry.pod)) || !self.may_ungate(entry, event) {
                continue;
            }
            let strategy = self.strategy(entry, event, &object, &mut memo);
            if strategy == QueueingStrategy::Skip {
                continue;
            }
            if let Some(entry) = state.unschedulable.remove(&uid) {
                self.requeue(&mut state, entry, strategy, &event.label());
                moved = true;
            }
        }
        state.in_flight.add_event(event, &object);
        if moved {
            self.publish(&state);
        }
    }

    /// Moves the pods that are in the pool for too long.
    pub fn flush_unschedulable(&self) {
        let (now, limit) = (self.now(), self.durations.max_in_unschedulable);
        let mut state = self.lock();
        let is_overdue = |entry: &QueuedPodInfo| now.saturating_sub(entry.timestamp.max(entry.flushed_at)) > limit;
        let overdue = state.unschedulable.select(is_overdue);
        for uid in overdue {
            if let Some(mut entry) = state.unschedulable.remove(&uid) {
                (entry.was_flushed, entry.flushed_at) = (true, now);
                self.requeue(&mut state, entry, QueueingStrategy::AfterBackoff, "UnschedulableTimeout");
            }
        }
        self.publish(&state);
    }

    /// Puts a pod back whose own update may have made it schedulable.
    pub(super) fn requeue_updated(
        &self,
        state: &mut QueueState,
        entry: QueuedPodInfo,
        events: &[ClusterEvent],
        object: &EventObject,
    ) {
        let mut memo = HintMemo::new();
        let worth = events.iter().map(|event| (event, self.strategy(&entry, *event, object, &mut memo)));
        match worth.into_iter().find(|(_, strategy)| *strategy != QueueingStrategy::Skip) {
            Some((event, strategy)) => self.requeue(state, entry, strategy, &event.label()),
            None => state.unschedulable.insert(entry),
        }
    }

    /// Decides by the events that happened during a pod's flight.
    pub(super) fn strategy_for_flight(
        &self,
        entry: &QueuedPodInfo,
        events: &[(ClusterEvent, Arc<EventObject>)],
    ) -> QueueingStrategy {
        let is_group_member = self.schedules_pod_groups && entry.pod.class.pod_group.is_some();
        if is_group_member || entry.rejectors().next().is_none() {
            return QueueingStrategy::AfterBackoff;
        }
        let mut best = QueueingStrategy::Skip;
        for (event, object) in events {
            match self.strategy(entry, *event, object, &mut HintMemo::new()) {
                QueueingStrategy::Skip => {}
                QueueingStrategy::AfterBackoff => best = QueueingStrategy::AfterBackoff,
                QueueingStrategy::Immediately => return QueueingStrategy::Immediately,
            }
        }
        best
    }

    fn strategy(
        &self,
        entry: &QueuedPodInfo,
        event: ClusterEvent,
        object: &EventObject,
        memo: &mut HintMemo,
    ) -> QueueingStrategy {
        if event.is_wild_card() || entry.rejectors().next().is_none() {
            return QueueingStrategy::AfterBackoff;
        }
        let Some(framework) = self.framework_of(&entry.pod) else { return QueueingStrategy::AfterBackoff };
        let mut strategy = QueueingStrategy::Skip;
        for registered in framework.registered_plugins() {
            let name = registered.plugin.name();
            if !entry.rejectors().any(|rejector| rejector == name)
                || hint(registered, entry, event, object, memo) == QueueingHint::Skip
            {
                continue;
            }
            if entry.pending_plugins.contains(&name) {
                return QueueingStrategy::Immediately;
            }
            strategy = QueueingStrategy::AfterBackoff;
        }
        strategy
    }

    pub(super) fn move_to_active(&self, state: &mut QueueState, mut entry: QueuedPodInfo, event: &str) {
        self.run_pre_enqueue(&mut entry);
        if entry.gating_plugin.is_some() {
            entry.was_flushed = false;
            METRICS.queue_incoming("gated", event);
            state.unschedulable.insert(entry);
            return;
        }
        if matches!(event, "UnschedulablePodAdd" | "UnschedulablePodUpdate") {
            state.nominator.add(&entry.pod, &Default::default());
        }
        self.insert_active(state, entry, event);
    }

    pub(super) fn insert_active(&self, state: &mut QueueState, mut entry: QueuedPodInfo, event: &str) {
        entry.initial_attempt.get_or_insert(self.now());
        METRICS.queue_incoming("active", event);
        state.active.insert(entry);
    }

    pub(super) fn move_to_backoff(&self, state: &mut QueueState, mut entry: QueuedPodInfo, event: &str) {
        self.run_pre_enqueue(&mut entry);
        if entry.gating_plugin.is_some() {
            entry.was_flushed = false;
            METRICS.queue_incoming("gated", event);
            state.unschedulable.insert(entry);
            return;
        }
        METRICS.queue_incoming("backoff", event);
        let is_rejected = entry.rejectors().next().is_some();
        match is_rejected {
            true => state.backoff.insert(entry),
            false => state.error_backoff.insert(entry),
        }
    }

    /// Asks the PreEnqueue plug-ins and notes which one gates the pod, if any.
    fn run_pre_enqueue(&self, entry: &mut QueuedPodInfo) {
        entry.gating_plugin = None;
        let Some(framework) = self.framework_of(&entry.pod) else { return };
        for (_, plugin) in framework.plugins(ExtensionPoint::PreEnqueue) {
            let Some(pre_enqueue) = plugin.as_pre_enqueue() else { continue };
            if pre_enqueue.pre_enqueue(&entry.pod).is_err() {
                let name = plugin.name();
                if !entry.unschedulable_plugins.contains(&name) {
                    entry.unschedulable_plugins.push(name);
                }
                entry.gating_plugin = Some(name);
                return;
            }
        }
    }

    /// Whether an event concerns the plug-in that gates the pod, if one does.
    fn may_ungate(&self, entry: &QueuedPodInfo, event: ClusterEvent) -> bool {
        let Some(gate) = entry.gating_plugin else { return true };
        let Some(framework) = self.framework_of(&entry.pod) else { return true };
        let mut plugins = framework.registered_plugins().iter().filter(|registered| registered.plugin.name() == gate);
        event.is_wild_card() || plugins.any(|registered| registered.is_interested(event))
    }

    fn interested_plugins(&self, event: ClusterEvent) -> Vec<&'static str> {
        let frameworks = self.bindings.get().map_or(&[][..], |bindings| &bindings.frameworks);
        let plugins = frameworks.iter().flat_map(|framework| framework.registered_plugins());
        let interested = plugins.filter(|registered| registered.is_interested(event));
        let mut names: Vec<&'static str> = interested.map(|registered| registered.plugin.name()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn framework_of(&self, pod: &PodInfo) -> Option<&Arc<Framework>> {
        let frameworks = &self.bindings.get()?.frameworks;
        frameworks.iter().find(|framework| framework.profile_name == pod.class.scheduler_name)
    }
}

/// Returns a plug-in's hint about an event that it registered for.
fn hint(
    registered: &RegisteredPlugin,
    entry: &QueuedPodInfo,
    event: ClusterEvent,
    object: &EventObject,
    memo: &mut HintMemo,
) -> QueueingHint {
    let plugin = &registered.plugin;
    let Some(extensions) = plugin.as_enqueue_extensions() else { return QueueingHint::Queue };
    if !registered.is_interested(event) {
        return QueueingHint::Skip;
    }
    let is_own = matches!(object, EventObject::Pod(change)
        if [&change.old, &change.new].into_iter().flatten().any(|pod| pod.uid == entry.pod.uid));
    if is_own || !extensions.hints_by_class() {
        return extensions.hint(event, &entry.pod, object);
    }
    *memo
        .entry((plugin.name(), Arc::as_ptr(&entry.pod.class)))
        .or_insert_with(|| extensions.hint(event, &entry.pod, object))
}
