//! Zones: how many of their nodes are ready, and how fast unready nodes are tainted `NoExecute`.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use tokio::time::Instant;

use crate::NodeLifecycleOptions;

/// Numbers of ready and not ready nodes of a zone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ZoneReadiness {
    pub(super) ready: usize,
    pub(super) not_ready: usize,
}

/// The state of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ZoneState {
    Initial,
    Normal,
    PartialDisruption,
    FullDisruption,
}

/// A change of the whole cluster's state.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClusterChange {
    None,
    /// No node is ready any more: no pod is evicted, and taints are removed.
    EnterDisruption,
    /// Nodes are ready again: the silence of the others is counted from now on.
    ExitDisruption,
}

/// Nodes of a zone that wait for their taint, with a token bucket of size one.
#[derive(Debug)]
struct TaintQueue {
    waiting: VecDeque<String>,
    /// Nodes per second.
    rate: f32,
    tokens: f32,
    refilled_at: Instant,
}

/// All zones.
#[derive(Debug, Default)]
pub(super) struct Zones {
    states: BTreeMap<String, ZoneState>,
    queues: BTreeMap<String, TaintQueue>,
}

/// Returns the key of the node's zone.
pub(super) fn zone_key(node: &Node) -> String {
    let label = |names: [&str; 2]| names.iter().find_map(|name| node.labels().get(*name)).cloned().unwrap_or_default();
    let region = label(["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"]);
    let zone = label(["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"]);
    if region.is_empty() && zone.is_empty() { String::new() } else { format!("{region}:\0:{zone}") }
}

impl Zones {
    /// Adds the zone of a node.
    pub(super) fn add_zone(&mut self, zone: &str, options: &NodeLifecycleOptions) {
        self.states.entry(zone.into()).or_insert(ZoneState::Initial);
        self.queues.entry(zone.into()).or_insert_with(|| TaintQueue::new(options.eviction_rate));
    }

    /// Queues a node for its taint.
    pub(super) fn queue_node(&mut self, zone: &str, name: &str) {
        if let Some(queue) = self.queues.get_mut(zone)
            && !queue.waiting.iter().any(|waiting| waiting == name)
        {
            queue.waiting.push_back(name.into());
        }
    }

    /// Removes a node from the queue of its zone.
    pub(super) fn remove_node(&mut self, zone: &str, name: &str) {
        if let Some(queue) = self.queues.get_mut(zone) {
            queue.waiting.retain(|waiting| waiting != name);
        }
    }

    /// Takes the nodes that may be tainted now.
    pub(super) fn take_due_nodes(&mut self, now: Instant) -> Vec<String> {
        self.queues.values_mut().flat_map(|queue| queue.take_due(now)).collect()
    }

    /// Returns the time until a waiting node may be tainted.
    pub(super) fn next_due(&self, now: Instant) -> Option<Duration> {
        self.queues.values().filter_map(|queue| queue.next_due(now)).min()
    }

    /// Updates the states of the zones and their rates.
    pub(super) fn handle_disruption(
        &mut self,
        readiness: &BTreeMap<String, ZoneReadiness>,
        options: &NodeLifecycleOptions,
        now: Instant,
    ) -> ClusterChange {
        readiness.keys().for_each(|zone| self.add_zone(zone, options));
        self.states.retain(|zone, _| readiness.contains_key(zone));
        let new: BTreeMap<&String, ZoneState> =
            readiness.iter().map(|(zone, counts)| (zone, zone_state(*counts, options))).collect();
        let is_full = |state: &ZoneState| *state == ZoneState::FullDisruption;
        let (all_are, all_were) = (new.values().all(is_full), self.states.values().all(is_full));
        if all_are && all_were {
            return ClusterChange::None;
        }
        for (zone, state) in &mut self.states {
            let after = if all_are { ZoneState::FullDisruption } else { new.get(zone).copied().unwrap_or(*state) };
            if *state == after && !all_were && !all_are {
                continue;
            }
            let size = readiness.get(zone).map_or(0, |counts| counts.ready + counts.not_ready);
            let rate = match after {
                _ if all_are => 0.0,
                ZoneState::PartialDisruption if size > options.large_cluster_size_threshold => {
                    options.secondary_eviction_rate
                }
                ZoneState::PartialDisruption => 0.0,
                _ => options.eviction_rate,
            };
            if let Some(queue) = self.queues.get_mut(zone) {
                queue.set_rate(rate, now);
            }
            *state = after;
        }
        match (all_are, all_were) {
            (true, _) => ClusterChange::EnterDisruption,
            (false, true) => ClusterChange::ExitDisruption,
            (false, false) => ClusterChange::None,
        }
    }
}

fn zone_state(counts: ZoneReadiness, options: &NodeLifecycleOptions) -> ZoneState {
    let ZoneReadiness { ready, not_ready } = counts;
    let share = not_ready as f32 / (ready + not_ready) as f32;
    if ready == 0 && not_ready > 0 {
        ZoneState::FullDisruption
    } else if not_ready > 2 && share >= options.unhealthy_zone_threshold {
        ZoneState::PartialDisruption
    } else {
        ZoneState::Normal
    }
}

impl TaintQueue {
    fn new(rate: f32) -> Self {
        Self { waiting: VecDeque::new(), rate, tokens: 1.0, refilled_at: Instant::now() }
    }

    fn available_tokens(&self, now: Instant) -> f32 {
        let elapsed = now.saturating_duration_since(self.refilled_at).as_secs_f32();
        (self.tokens + elapsed * self.rate).min(1.0)
    }

    fn take_due(&mut self, now: Instant) -> Vec<String> {
        (self.tokens, self.refilled_at) = (self.available_tokens(now), now);
        let mut due = Vec::new();
        while self.rate > 0.0
            && self.tokens >= 1.0
            && let Some(name) = self.waiting.pop_front()
        {
            self.tokens -= 1.0;
            due.push(name);
        }
        due
    }

    fn next_due(&self, now: Instant) -> Option<Duration> {
        let missing = 1.0 - self.available_tokens(now);
        let is_waiting = !self.waiting.is_empty() && self.rate > 0.0;
        is_waiting.then(|| Duration::from_secs_f32((missing / self.rate).max(0.0)))
    }

    /// Changes the rate; a new limiter starts full unless the old one was exhausted.
    fn set_rate(&mut self, rate: f32, now: Instant) {
        if rate != self.rate {
            let is_exhausted = self.rate <= 0.0 || self.available_tokens(now) < 1.0;
            (self.rate, self.refilled_at) = (rate, now);
            self.tokens = if is_exhausted { 0.0 } else { 1.0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readiness(zones: &[(&str, usize, usize)]) -> BTreeMap<String, ZoneReadiness> {
        zones
            .iter()
            .map(|(zone, ready, not_ready)| {
                ((*zone).to_owned(), ZoneReadiness { ready: *ready, not_ready: *not_ready })
            })
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_of_a_healthy_zone_are_tainted_one_by_one() {
        let (options, mut zones, start) = (NodeLifecycleOptions::default(), Zones::default(), Instant::now());
        zones.add_zone("a", &options);
        zones.queue_node("a", "n1");
        zones.queue_node("a", "n2");
        zones.queue_node("a", "n2");
        assert_eq!(zones.take_due_nodes(start), ["n1"]);
        assert!(zones.take_due_nodes(start + Duration::from_secs(9)).is_empty());
        assert!(zones.next_due(start + Duration::from_secs(9)).unwrap() <= Duration::from_millis(1001));
        assert_eq!(zones.take_due_nodes(start + Duration::from_millis(10_001)), ["n2"]);
        assert_eq!(zones.next_due(start), None);
    }

    #[tokio::test(start_paused = true)]
    async fn cluster_without_ready_nodes_evicts_no_pod() {
        let (options, mut zones, now) = (NodeLifecycleOptions::default(), Zones::default(), Instant::now());
        let change = zones.handle_disruption(&readiness(&[("a", 2, 0), ("b", 1, 1)]), &options, now);
        assert_eq!(change, ClusterChange::None);
        let dead = readiness(&[("a", 0, 2), ("b", 0, 2)]);
        assert_eq!(zones.handle_disruption(&dead, &options, now), ClusterChange::EnterDisruption);
        assert_eq!(zones.handle_disruption(&dead, &options, now), ClusterChange::None);
        zones.queue_node("a", "n1");
        assert!(zones.take_due_nodes(now + Duration::from_secs(3600)).is_empty());
        let back = readiness(&[("a", 1, 1), ("b", 0, 2)]);
        assert_eq!(zones.handle_disruption(&back, &options, now), ClusterChange::ExitDisruption);
        assert_eq!(zones.take_due_nodes(now + Duration::from_secs(11)), ["n1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn small_zone_that_is_partially_disrupted_evicts_no_pod() {
        let (options, mut zones, now) = (NodeLifecycleOptions::default(), Zones::default(), Instant::now());
        zones.handle_disruption(&readiness(&[("a", 3, 4), ("b", 1, 0)]), &options, now);
        zones.queue_node("a", "n1");
        assert!(zones.take_due_nodes(now + Duration::from_secs(3600)).is_empty());
        zones.handle_disruption(&readiness(&[("a", 40, 60), ("b", 1, 0)]), &options, now);
        zones.handle_disruption(&readiness(&[("a", 99, 1), ("b", 1, 0)]), &options, now);
        assert_eq!(zones.take_due_nodes(now + Duration::from_secs(3600)), ["n1"]);
    }

    #[test]
    fn zone_needs_three_unready_nodes_and_the_threshold() {
        let state = |ready, not_ready| zone_state(ZoneReadiness { ready, not_ready }, &NodeLifecycleOptions::default());
        assert_eq!(state(0, 1), ZoneState::FullDisruption);
        assert_eq!(state(1, 2), ZoneState::Normal);
        assert_eq!(state(2, 3), ZoneState::PartialDisruption);
        assert_eq!(state(3, 3), ZoneState::Normal);
        assert_eq!(state(0, 0), ZoneState::Normal);
    }
}
