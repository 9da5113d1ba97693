//! The volumes of all pods that have not ended, and the conflicts between their users.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::volumes::{SharedVolume, VolumeLabel};
use crate::object_key::ObjectKey;

/// Volumes by identity with their pods.
#[derive(Default)]
pub(super) struct VolumeCache {
    volumes: HashMap<SharedVolume, BTreeMap<ObjectKey, VolumeLabel>>,
    /// The volumes of each pod.
    by_pod: HashMap<ObjectKey, HashSet<SharedVolume>>,
}

/// A property in which two pods that share a volume differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConflictingProperty {
    ChangePolicy,
    Label,
}

impl ConflictingProperty {
    fn name(self) -> &'static str {
        match self {
            ConflictingProperty::ChangePolicy => "SELinuxChangePolicy",
            ConflictingProperty::Label => "SELinuxLabel",
        }
    }

    fn value(self, label: &VolumeLabel) -> String {
        match self {
            ConflictingProperty::ChangePolicy => label.policy.clone(),
            ConflictingProperty::Label => label.label.clone(),
        }
    }
}

/// A conflict of `pod` with another pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VolumeConflict {
    pub(super) pod: ObjectKey,
    property: ConflictingProperty,
    value: String,
    other_pod: ObjectKey,
    other_value: String,
}

impl VolumeConflict {
    /// The reason of the event.
    pub(super) fn reason(&self) -> &'static str {
        match self.property {
            ConflictingProperty::ChangePolicy => "SELinuxChangePolicyConflict",
            ConflictingProperty::Label => "SELinuxLabelConflict",
        }
    }

    /// The message of the event, which names the other pod only within its namespace.
    pub(super) fn message(&self) -> String {
        let (property, value, other) = (self.property.name(), &self.value, &self.other_value);
        let advice = "If both pods land on the same node, only one of them may access the volume.";
        if self.pod.namespace == self.other_pod.namespace {
            let name = &self.other_pod.name;
            return format!(
                "{property} \"{value}\" conflicts with pod {name} that uses the same volume as this pod with {property} \"{other}\". {advice}"
            );
        }
        // Upstream's message has no space here.
        format!(
            "{property}\"{value}\" conflicts with another pod that uses the same volume as this pod with a different {property}. {advice}"
        )
    }
}

impl VolumeCache {
    /// Adds or updates a pod's volume; returns the new conflicts, one for each of the two pods.
    pub(super) fn add_volume(
        &mut self,
        volume: &SharedVolume,
        pod: &ObjectKey,
        label: &VolumeLabel,
    ) -> Vec<VolumeConflict> {
        let users = self.volumes.entry(volume.clone()).or_default();
        if users.get(pod) == Some(label) {
            return Vec::new();
        }
        users.insert(pod.clone(), label.clone());
        self.by_pod.entry(pod.clone()).or_default().insert(volume.clone());
        users.iter().flat_map(|(other_pod, other)| find_conflicts((pod, label), (other_pod, other))).collect()
    }

    /// Forgets a pod.
    pub(super) fn delete_pod(&mut self, pod: &ObjectKey) {
        for volume in self.by_pod.remove(pod).unwrap_or_default() {
            if let Some(users) = self.volumes.get_mut(&volume) {
                users.remove(pod);
                if users.is_empty() {
                    self.volumes.remove(&volume);
                }
            }
        }
    }

    /// Returns the pods that use volumes of a CSI driver.
    pub(super) fn pods_of_driver(&self, driver: &str) -> HashSet<ObjectKey> {
        let volumes = self.volumes.iter().filter(|(volume, _)| volume.csi_driver() == Some(driver));
        volumes.flat_map(|(_, users)| users.keys().cloned()).collect()
    }
}

fn find_conflicts(
    (pod, label): (&ObjectKey, &VolumeLabel),
    (other_pod, other): (&ObjectKey, &VolumeLabel),
) -> Vec<VolumeConflict> {
    let new = |property: ConflictingProperty, pod: &ObjectKey, label: &VolumeLabel, other_pod: &ObjectKey, other| {
        VolumeConflict {
            pod: pod.clone(),
            property,
            value: property.value(label),
            other_pod: other_pod.clone(),
            other_value: property.value(other),
        }
    };
    let policy = (label.policy != other.policy).then_some(ConflictingProperty::ChangePolicy);
    let conflicting = label.conflicts_with(other).then_some(ConflictingProperty::Label);
    let properties = policy.into_iter().chain(conflicting);
    properties
        .flat_map(|property| [new(property, pod, label, other_pod, other), new(property, other_pod, other, pod, label)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(label: &str, policy: &str) -> VolumeLabel {
        VolumeLabel { label: label.into(), policy: policy.into() }
    }

    fn volume() -> SharedVolume {
        SharedVolume::Csi { driver: "d".into(), handle: "h".into() }
    }

    #[test]
    fn conflicts_are_reported_to_both_pods_once() {
        let (mut cache, mount) = (VolumeCache::default(), "MountOption");
        let (first, second) = (ObjectKey::new("ns", "a"), ObjectKey::new("ns", "b"));
        assert!(cache.add_volume(&volume(), &first, &label(":::s0:c1", mount)).is_empty());
        let conflicts = cache.add_volume(&volume(), &second, &label(":::s0:c2", mount));
        let pods: Vec<_> = conflicts.iter().map(|conflict| &conflict.pod).collect();
        assert_eq!(pods, [&second, &first]);
        assert_eq!(conflicts[0].reason(), "SELinuxLabelConflict");
        let message = "SELinuxLabel \":::s0:c2\" conflicts with pod a that uses the same volume as this pod with \
            SELinuxLabel \":::s0:c1\". If both pods land on the same node, only one of them may access the volume.";
        assert_eq!(conflicts[0].message(), message);
        assert!(cache.add_volume(&volume(), &second, &label(":::s0:c2", mount)).is_empty());
    }

    #[test]
    fn message_does_not_reveal_pods_of_other_namespaces() {
        let mut cache = VolumeCache::default();
        cache.add_volume(&volume(), &ObjectKey::new("secret", "hidden"), &label("", "Recursive"));
        let conflicts = cache.add_volume(&volume(), &ObjectKey::new("ns", "b"), &label(":::s0", "MountOption"));
        let reasons: Vec<_> = conflicts.iter().map(VolumeConflict::reason).collect();
        assert_eq!(reasons[..2], ["SELinuxChangePolicyConflict"; 2]);
        assert!(conflicts[0].message().starts_with("SELinuxChangePolicy\"MountOption\" conflicts with another pod"));
        assert!(!conflicts[0].message().contains("hidden"));
    }

    #[test]
    fn deleted_pod_no_longer_conflicts() {
        let mut cache = VolumeCache::default();
        let first = ObjectKey::new("ns", "a");
        cache.add_volume(&volume(), &first, &label(":::s0:c1", "MountOption"));
        assert_eq!(cache.pods_of_driver("d"), HashSet::from([first.clone()]));
        cache.delete_pod(&first);
        assert!(cache.pods_of_driver("d").is_empty());
        assert!(cache.add_volume(&volume(), &ObjectKey::new("ns", "b"), &label("", "Recursive")).is_empty());
    }
}
