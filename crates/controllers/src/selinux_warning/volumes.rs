//! The volumes that pods share and the SELinux labels that pods mount them with.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    FCVolumeSource, PersistentVolume, Pod, PodSpec, SELinuxOptions, SecurityContext, Volume, VolumeMount,
};

/// The policy of pods that relabel their volumes file by file.
const RECURSIVE: &str = "Recursive";
/// The policy of pods without another: volumes are mounted with the label.
const MOUNT_OPTION: &str = "MountOption";

/// The identity of a volume that several pods can use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum SharedVolume {
    HostPath(String),
    Nfs { server: String, path: String },
    FibreChannel { identifiers: Vec<String>, lun: Option<i32> },
    Iscsi { portal: String, iqn: String, lun: i32 },
    Csi { driver: String, handle: String },
}

impl SharedVolume {
    /// Returns the volume of a pod's inline source; `None` if it belongs to the pod alone or its plug-in is unknown.
    pub(super) fn from_inline(volume: &Volume) -> Option<Self> {
        if let Some(source) = &volume.host_path {
            return Some(SharedVolume::HostPath(source.path.clone()));
        }
        if let Some(source) = &volume.nfs {
            return Some(SharedVolume::Nfs { server: source.server.clone(), path: source.path.clone() });
        }
        if let Some(source) = &volume.iscsi {
            let (portal, iqn) = (source.target_portal.clone(), source.iqn.clone());
            return Some(SharedVolume::Iscsi { portal, iqn, lun: source.lun });
        }
        volume.fc.as_ref().and_then(Self::from_fibre_channel)
    }

    /// Returns the volume of a PersistentVolume.
    pub(super) fn from_persistent_volume(volume: &PersistentVolume) -> Option<Self> {
        let spec = volume.spec.as_ref()?;
        if let Some(source) = &spec.host_path {
            return Some(SharedVolume::HostPath(source.path.clone()));
        }
        if let Some(source) = &spec.nfs {
            return Some(SharedVolume::Nfs { server: source.server.clone(), path: source.path.clone() });
        }
        if let Some(source) = &spec.iscsi {
            let (portal, iqn) = (source.target_portal.clone(), source.iqn.clone());
            return Some(SharedVolume::Iscsi { portal, iqn, lun: source.lun });
        }
        if let Some(source) = &spec.csi {
            return Some(SharedVolume::Csi { driver: source.driver.clone(), handle: source.volume_handle.clone() });
        }
        spec.fc.as_ref().and_then(Self::from_fibre_channel)
    }

    fn from_fibre_channel(source: &FCVolumeSource) -> Option<Self> {
        let names = |names: &Option<Vec<String>>| names.clone().filter(|names| !names.is_empty());
        if let (Some(identifiers), Some(lun)) = (names(&source.target_wwns), source.lun) {
            return Some(SharedVolume::FibreChannel { identifiers, lun: Some(lun) });
        }
        names(&source.wwids).map(|identifiers| SharedVolume::FibreChannel { identifiers, lun: None })
    }

    /// The CSI driver of the volume.
    pub(super) fn csi_driver(&self) -> Option<&str> {
        match self {
            SharedVolume::Csi { driver, .. } => Some(driver),
            _ => None,
        }
    }

    /// Whether the volume can be mounted with a label; `driver_supports` answers for CSI drivers.
    pub(super) fn supports_label_mount(&self, driver_supports: impl Fn(&str) -> bool) -> bool {
        match self {
            SharedVolume::HostPath(_) | SharedVolume::Nfs { .. } => false,
            SharedVolume::FibreChannel { .. } | SharedVolume::Iscsi { .. } => true,
            SharedVolume::Csi { driver, .. } => driver_supports(driver),
        }
    }
}

/// The label and the change policy that a pod applies to a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VolumeLabel {
    /// `user:role:type:level`, any part of which may be empty; empty if the pod does not mount with a label.
    pub(super) label: String,
    pub(super) policy: String,
}

/// Containers of one pod mount a volume with different labels.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("multiple SELinux labels found")]
pub(super) struct MultipleLabelsError;

impl VolumeLabel {
    /// Decides the label of a volume that containers with `labels` mount.
    pub(super) fn new(
        pod: &Pod,
        labels: &BTreeSet<String>,
        supports_label_mount: bool,
    ) -> Result<Self, MultipleLabelsError> {
        if labels.len() > 1 {
            return Err(MultipleLabelsError);
        }
        let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
        let wanted = context.and_then(|context| context.se_linux_change_policy.as_deref()).unwrap_or(MOUNT_OPTION);
        let label = labels.first().filter(|_| supports_label_mount && wanted != RECURSIVE).cloned().unwrap_or_default();
        let policy = if label.is_empty() { RECURSIVE } else { wanted };
        Ok(Self { label, policy: policy.into() })
    }

    /// Whether two labels differ in the level, or in another part that both have.
    pub(super) fn conflicts_with(&self, other: &Self) -> bool {
        let ([left @ .., left_level], [right @ .., right_level]) =
            (split_label(&self.label), split_label(&other.label));
        let differs = |(left, right): (&&str, &&str)| left != right && !left.is_empty() && !right.is_empty();
        left_level != right_level || left.iter().zip(&right).any(differs)
    }
}

/// Splits a label into user, role, type and level; a level contains colons.
fn split_label(label: &str) -> [&str; 4] {
    let mut parts = label.splitn(4, ':');
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

/// The labels of the containers that mount each volume of a pod.
pub(super) fn mount_labels(spec: &PodSpec) -> BTreeMap<&str, BTreeSet<String>> {
    type Mounts<'a> = (&'a Option<SecurityContext>, &'a Option<Vec<VolumeMount>>);
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let containers = containers.map(|container| (&container.security_context, &container.volume_mounts));
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.map(|container| (&container.security_context, &container.volume_mounts));
    let all: Vec<Mounts<'_>> = containers.chain(ephemeral).collect();
    let of_pod = spec.security_context.as_ref().and_then(|context| context.se_linux_options.as_ref());
    let mut labels: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (context, mounts) in all {
        let own = context.as_ref().and_then(|context| context.se_linux_options.as_ref());
        for mount in mounts.iter().flatten() {
            labels.entry(&mount.name).or_default().extend(own.or(of_pod).map(format_label));
        }
    }
    labels
}

/// Joins the parts that are set; nodes have the defaults of the others.
fn format_label(options: &SELinuxOptions) -> String {
    let parts = [&options.user, &options.role, &options.type_, &options.level];
    let label = parts.map(|part| part.as_deref().unwrap_or_default()).join(":");
    if label == ":::" { String::new() } else { label }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn label(label: &str) -> VolumeLabel {
        VolumeLabel { label: label.into(), policy: MOUNT_OPTION.into() }
    }

    fn pod(policy: Value) -> Pod {
        let context = json!({"seLinuxOptions": {"level": "s0:c1,c2"}, "seLinuxChangePolicy": policy});
        let container = |name: &str, context: Value| json!({"name": name, "securityContext": context, "volumeMounts": [{"name": "v", "mountPath": "/v"}]});
        let other = json!({"seLinuxOptions": {"type": "t"}});
        let spec = json!({"securityContext": context, "containers": [container("a", json!(null))],
            "initContainers": [container("i", other)]});
        serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap()
    }

    #[test]
    fn levels_always_conflict_and_other_parts_only_if_both_are_set() {
        assert!(!label("u:r:t:s0:c1,c2").conflicts_with(&label(":::s0:c1,c2")));
        assert!(label("u:r:t:s0:c1,c2").conflicts_with(&label(":::s0:c98,c99")));
        assert!(label(":::s0:c1,c2").conflicts_with(&label("")));
        assert!(label("u:r:t:s0").conflicts_with(&label("u:r:x:s0")));
        assert!(!label("").conflicts_with(&label("")));
    }

    #[test]
    fn containers_inherit_the_label_of_the_pod() {
        let pod = pod(json!(null));
        let labels = mount_labels(pod.spec.as_ref().unwrap());
        assert_eq!(labels["v"], BTreeSet::from(["::t:".to_owned(), ":::s0:c1,c2".to_owned()]));
        assert_eq!(VolumeLabel::new(&pod, &labels["v"], true), Err(MultipleLabelsError));
    }

    #[test]
    fn label_is_used_only_where_the_volume_and_the_pod_allow_it() {
        let labels = BTreeSet::from(["u:r:t:s0".to_owned()]);
        let decide = |policy: Value, supports: bool| {
            let label = VolumeLabel::new(&pod(policy), &labels, supports).unwrap();
            (label.label, label.policy)
        };
        let recursive = (String::new(), RECURSIVE.to_owned());
        assert_eq!(decide(json!(null), true), ("u:r:t:s0".into(), MOUNT_OPTION.into()));
        assert_eq!(decide(json!(null), false), recursive);
        assert_eq!(decide(json!("Recursive"), true), recursive);
        let unlabelled = VolumeLabel::new(&pod(json!("MountOption")), &BTreeSet::new(), true).unwrap();
        assert_eq!(unlabelled.policy, RECURSIVE);
    }
}
