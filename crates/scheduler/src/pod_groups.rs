//! The pods of each pod group by stage: unscheduled, assumed on a node, or assigned to one.
//!
//! The scheduler cache and the event handlers keep it; plug-ins and pod group cycles read it. Its lock is a leaf: nothing
//! else is locked while it is held.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::views::pod_info::PodInfo;

/// Namespace and name of a pod group.
type PodGroupKey = (Arc<str>, Arc<str>);

/// The progress of the scheduling of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PodStage {
    Unscheduled,
    Assumed,
    Assigned,
}

/// The pods of one group by uid.
type GroupMembers = HashMap<Arc<str>, (PodStage, Arc<PodInfo>)>;

/// The pods of all groups.
#[derive(Default)]
pub struct PodGroupStates(Mutex<HashMap<PodGroupKey, GroupMembers>>);

/// The members of a group at one moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PodGroupMembers {
    /// Number of pods.
    pub all: usize,
    /// Pods that are neither assumed nor assigned.
    pub unscheduled: Vec<Arc<str>>,
    /// Pods that are assumed on a node.
    pub assumed: Vec<Arc<str>>,
    /// Number of pods that are assigned to a node.
    pub assigned: usize,
}

impl PodGroupMembers {
    /// Number of pods that are assumed or assigned.
    pub fn scheduled(&self) -> usize {
        self.assumed.len() + self.assigned
    }
}

impl PodGroupStates {
    /// Takes over a pod as the API server has it.
    pub fn set_pod(&self, pod: &Arc<PodInfo>) {
        self.change_group(pod, |members| {
            let stage = match (&pod.node_name, members.get(&pod.uid)) {
                (Some(_), _) => PodStage::Assigned,
                (None, Some((PodStage::Assumed, _))) => PodStage::Assumed,
                (None, _) => PodStage::Unscheduled,
            };
            members.insert(pod.uid.clone(), (stage, pod.clone()));
        });
    }

    /// Removes a pod that was deleted or has ended.
    pub fn remove_pod(&self, pod: &PodInfo) {
        self.change_group(pod, |members| {
            members.remove(&pod.uid);
        });
    }

    /// Notes that a pod is assumed on a node; a pod that is gone stays gone.
    pub fn assume_pod(&self, pod: &PodInfo) {
        self.change_stage(pod, PodStage::Unscheduled, PodStage::Assumed);
    }

    /// Notes that a pod is not assumed any more.
    pub fn forget_pod(&self, pod: &PodInfo) {
        self.change_stage(pod, PodStage::Assumed, PodStage::Unscheduled);
    }

    /// Returns the members of the pod's group; none if it belongs to no group.
    pub fn members_of_group(&self, pod: &PodInfo) -> PodGroupMembers {
        let Some(key) = group_key(pod) else { return PodGroupMembers::default() };
        let groups = self.lock();
        let Some(members) = groups.get(&key) else { return PodGroupMembers::default() };
        let at_stage = |wanted: PodStage| {
            members.iter().filter(move |(_, (stage, _))| *stage == wanted).map(|(uid, _)| uid.clone()).collect()
        };
        let (unscheduled, assumed): (Vec<_>, Vec<_>) = (at_stage(PodStage::Unscheduled), at_stage(PodStage::Assumed));
        let assigned = members.len() - unscheduled.len() - assumed.len();
        PodGroupMembers { all: members.len(), unscheduled, assumed, assigned }
    }

    fn change_stage(&self, pod: &PodInfo, from: PodStage, to: PodStage) {
        self.change_group(pod, |members| {
            if let Some((stage, _)) = members.get_mut(&pod.uid).filter(|(stage, _)| *stage == from) {
                *stage = to;
            }
        });
    }

    fn change_group(&self, pod: &PodInfo, change: impl FnOnce(&mut GroupMembers)) {
        let Some(key) = group_key(pod) else { return };
        let mut groups = self.lock();
        let members = groups.entry(key.clone()).or_default();
        change(members);
        if members.is_empty() {
            groups.remove(&key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PodGroupKey, GroupMembers>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn group_key(pod: &PodInfo) -> Option<PodGroupKey> {
    Some((pod.class.namespace.clone(), pod.class.pod_group.clone()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, node: Option<&str>) -> Arc<PodInfo> {
        let spec = json!({"schedulingGroup": {"podGroupName": "g"}, "nodeName": node, "containers": []});
        let pod = json!({"metadata": {"namespace": "n", "name": uid, "uid": uid}, "spec": spec});
        Arc::new(PodInfo::from_pod(&serde_json::from_value(pod).unwrap()))
    }

    #[track_caller]
    fn check(states: &PodGroupStates, all: usize, unscheduled: usize, assumed: usize, assigned: usize) {
        let members = states.members_of_group(&pod("?", None));
        let counts = (members.all, members.unscheduled.len(), members.assumed.len(), members.assigned);
        assert_eq!(counts, (all, unscheduled, assumed, assigned));
    }

    #[test]
    fn members_follow_their_pods() {
        let states = PodGroupStates::default();
        states.assume_pod(&pod("1", Some("a")));
        check(&states, 0, 0, 0, 0);
        ["1", "2", "3"].into_iter().for_each(|uid| states.set_pod(&pod(uid, None)));
        states.assume_pod(&pod("1", Some("a")));
        states.assume_pod(&pod("2", Some("a")));
        // An update of an assumed pod leaves it assumed.
        states.set_pod(&pod("1", None));
        check(&states, 3, 1, 2, 0);
        states.set_pod(&pod("1", Some("a")));
        states.forget_pod(&pod("1", Some("a")));
        states.forget_pod(&pod("2", Some("a")));
        check(&states, 3, 2, 0, 1);
        ["1", "2", "3"].into_iter().for_each(|uid| states.remove_pod(&pod(uid, None)));
        check(&states, 0, 0, 0, 0);
        assert!(states.lock().is_empty());
    }
}
