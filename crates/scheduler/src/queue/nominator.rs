//! Nominations of pods: preemption made room for them on a node, or is doing so.

use std::{collections::HashMap, sync::Arc};

use crate::{
    framework::{extension_points::NominatingInfo, nominated_pods::NominatedPods},
    views::pod_info::PodInfo,
};

/// Keeps the nominated pods. Invariant: a pod is nominated for at most one node, the one in `node_of`.
#[derive(Default)]
pub struct PodNominator {
    pods: Arc<NominatedPods>,
    node_of: HashMap<Arc<str>, Arc<str>>,
}

impl PodNominator {
    /// The nominated pods.
    pub fn pods(&self) -> Arc<NominatedPods> {
        self.pods.clone()
    }

    /// Nominates a pod by `nominating`, or as its status says.
    pub fn add(&mut self, pod: &Arc<PodInfo>, nominating: &NominatingInfo) {
        self.remove(&pod.uid);
        let node = match nominating {
            NominatingInfo::Set(node) => node.clone(),
            NominatingInfo::Keep => pod.nominated_node_name.clone(),
        };
        let Some(node) = node else { return };
        self.node_of.insert(pod.uid.clone(), node.clone());
        Arc::make_mut(&mut self.pods).by_node.entry(node).or_default().push(pod.clone());
    }

    /// Takes over the new state of a pod. A nomination that the status does not show yet is kept.
    pub fn update(&mut self, old: &PodInfo, new: &Arc<PodInfo>) {
        let is_unseen = old.nominated_node_name.is_none() && new.nominated_node_name.is_none();
        let nominating = match self.node_of.get(&old.uid).filter(|_| is_unseen) {
            Some(node) => NominatingInfo::Set(Some(node.clone())),
            None => NominatingInfo::Keep,
        };
        self.remove(&old.uid);
        self.add(new, &nominating);
    }

    /// Ends a pod's nomination.
    pub fn remove(&mut self, uid: &str) {
        let Some(node) = self.node_of.remove(uid) else { return };
        let by_node = &mut Arc::make_mut(&mut self.pods).by_node;
        if let Some(pods) = by_node.get_mut(&node) {
            pods.retain(|pod| pod.uid.as_ref() != uid);
            if pods.is_empty() {
                by_node.remove(&node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, nominated: Option<&str>) -> Arc<PodInfo> {
        let pod = serde_json::json!({"metadata": {"uid": uid}, "status": {"nominatedNodeName": nominated}});
        Arc::new(PodInfo::from_pod(&serde_json::from_value(pod).unwrap()))
    }

    #[test]
    fn nominations_follow_decisions_and_status() {
        let mut nominator = PodNominator::default();
        let count = |nominator: &PodNominator, node: &str| nominator.pods().for_node(node).len();
        nominator.add(&pod("1", None), &NominatingInfo::Set(Some("a".into())));
        nominator.update(&pod("1", None), &pod("1", None));
        assert_eq!((count(&nominator, "a"), count(&nominator, "b")), (1, 0));
        nominator.update(&pod("1", None), &pod("1", Some("b")));
        assert_eq!((count(&nominator, "a"), count(&nominator, "b")), (0, 1));
        nominator.update(&pod("1", Some("b")), &pod("1", None));
        assert_eq!(count(&nominator, "b"), 0);
        nominator.add(&pod("2", Some("c")), &NominatingInfo::Keep);
        nominator.add(&pod("2", Some("c")), &NominatingInfo::Set(None));
        assert!(nominator.node_of.is_empty());
    }
}
