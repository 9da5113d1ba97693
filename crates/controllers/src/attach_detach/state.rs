//! The volumes that should be attached to a node, and the decision about each.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    core::v1::{AttachedVolume, Node, PersistentVolume},
    storage::v1::VolumeAttachment,
};
use kube::ResourceExt;
use sha2::{Digest, Sha256};

use super::in_tree_volume;
use crate::pod_view::PodView;

/// Prefix of the unique names of CSI volumes.
const CSI_PREFIX: &str = "kubernetes.io/csi/";
/// Separates driver and handle in a unique name.
const SEPARATOR: char = '^';
/// Taint of a node that was shut down for good.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// A CSI volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CsiVolume {
    pub(super) driver: String,
    pub(super) handle: String,
}

impl CsiVolume {
    /// Returns the CSI volume of a PersistentVolume, also of one with an in-tree source.
    pub(super) fn from_volume(volume: &PersistentVolume) -> Option<Self> {
        if let Some(source) = &volume.spec.as_ref()?.csi {
            return Some(Self { driver: source.driver.clone(), handle: source.volume_handle.clone() });
        }
        let (driver, handle) = in_tree_volume::driver_and_handle(volume)?;
        Some(Self { driver: driver.into(), handle })
    }

    /// Parses a name of `Node.status.volumesAttached`.
    pub(super) fn from_unique_name(name: &str) -> Option<Self> {
        let (driver, handle) = name.strip_prefix(CSI_PREFIX)?.split_once(SEPARATOR)?;
        Some(Self { driver: driver.into(), handle: handle.into() })
    }

    /// The name in `Node.status.volumesAttached` and `volumesInUse`.
    pub(super) fn unique_name(&self) -> String {
        format!("{CSI_PREFIX}{}{SEPARATOR}{}", self.driver, self.handle)
    }

    /// The name of the VolumeAttachment to a node.
    pub(super) fn attachment_name(&self, node: &str) -> String {
        let digest = Sha256::digest(format!("{}{}{node}", self.handle, self.driver));
        let hex = digest.iter().fold(String::with_capacity(64), |text, byte| text + &format!("{byte:02x}"));
        format!("csi-{hex}")
    }
}

/// Whether a VolumeAttachment has a name as this controller gives it.
pub(super) fn is_attachment_name(name: &str) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    name.strip_prefix("csi-").is_some_and(|digest| digest.len() == 64 && digest.bytes().all(is_hex))
}

/// A volume that pods on a node need.
pub(super) struct DesiredVolume {
    pub(super) csi: CsiVolume,
    pub(super) volume: Arc<PersistentVolume>,
    pub(super) pods: Vec<Arc<PodView>>,
}

/// Volumes by the name of their VolumeAttachment.
pub(super) type DesiredVolumes = BTreeMap<String, DesiredVolume>;

/// Whether a volume may be attached to several nodes.
pub(super) fn allows_multi_attach(volume: &PersistentVolume) -> bool {
    let modes = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    modes.is_empty() || modes.iter().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany")
}

/// Whether a VolumeAttachment is attached and not being detached.
pub(super) fn is_attached(attachment: &VolumeAttachment) -> bool {
    attachment.metadata.deletion_timestamp.is_none() && attachment.status.as_ref().is_some_and(|status| status.attached)
}

/// Whether the kubelet reports the volume as in use.
pub(super) fn is_in_use(node: &Node, unique_name: &str) -> bool {
    let in_use = node.status.as_ref().and_then(|status| status.volumes_in_use.as_deref()).unwrap_or_default();
    in_use.iter().any(|name| name == unique_name)
}

/// Whether the node was shut down for good, so that its volumes are detached at once.
pub(super) fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == OUT_OF_SERVICE && taint.effect == "NoExecute")
}

/// The entries of `Node.status.volumesAttached`, sorted by name.
pub(super) fn attached_volumes(names: impl Iterator<Item = String>) -> Vec<AttachedVolume> {
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.dedup();
    names.into_iter().map(|name| AttachedVolume { name, device_path: String::new() }).collect()
}

/// The event of a pod whose volume is attached exclusively to another node.
pub(super) fn multi_attach_message(volume: &str, pod: &PodView, users: &[Arc<PodView>]) -> String {
    let (local, others): (Vec<_>, Vec<_>) = users.iter().partition(|user| user.namespace() == pod.namespace());
    let names: Vec<String> = local.iter().map(|user| user.name_any()).collect();
    let elsewhere = format!("{} pod(s) in different namespaces", others.len());
    let reason = match (names.is_empty(), others.is_empty()) {
        (true, true) => {
            "Volume is already exclusively attached to one node, waiting on detach before it can be attached to another node"
                .to_owned()
        }
        (false, true) => format!("Volume is already used by pod(s) {}", names.join(", ")),
        (false, false) => format!("Volume is already used by pod(s) {} and {elsewhere}", names.join(", ")),
        (true, false) => format!("Volume is already used by {elsewhere}"),
    };
    format!("Waiting for detach for volume {volume:?} {reason}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn attachments_of_others_are_told_by_their_names() {
        let own = CsiVolume { driver: "csi.example".into(), handle: "v1".into() }.attachment_name("node-1");
        assert!(is_attachment_name(&own), "{own}");
        for other in ["va-e2e-gwpz2", "csi-", "csi-abc", &own[1..], &own.to_uppercase()] {
            assert!(!is_attachment_name(other), "{other}");
        }
    }

    #[test]
    fn names_are_those_of_the_csi_plugin() {
        let csi = CsiVolume { driver: "csi.example.com".into(), handle: "vol-1".into() };
        assert_eq!(csi.unique_name(), "kubernetes.io/csi/csi.example.com^vol-1");
        assert_eq!(CsiVolume::from_unique_name(&csi.unique_name()), Some(csi.clone()));
        let name = csi.attachment_name("node-1");
        assert_eq!(name.len(), "csi-".len() + 64);
        assert_ne!(name, csi.attachment_name("node-2"));
    }

    #[test]
    fn only_shared_modes_allow_several_nodes() {
        let volume = |modes: &[&str]| -> PersistentVolume {
            serde_json::from_value(json!({"spec": {"accessModes": modes}})).unwrap()
        };
        assert!(allows_multi_attach(&volume(&[])) && allows_multi_attach(&volume(&["ReadWriteOnce", "ReadOnlyMany"])));
        assert!(
            !allows_multi_attach(&volume(&["ReadWriteOnce"])) && !allows_multi_attach(&volume(&["ReadWriteOncePod"]))
        );
    }

    #[test]
    fn pods_of_other_namespaces_are_only_counted() {
        let pod = |namespace: &str, name: &str| -> Arc<PodView> {
            Arc::new(serde_json::from_value(json!({"metadata": {"name": name, "namespace": namespace}})).unwrap())
        };
        let waiting = pod("a", "waiting");
        let users = [pod("a", "x"), pod("a", "y"), pod("b", "z")];
        let want = "Waiting for detach for volume \"v\" Volume is already used by pod(s) x, y and 1 pod(s) in different namespaces";
        assert_eq!(multi_attach_message("v", &waiting, &users), want);
        assert!(multi_attach_message("v", &waiting, &users[2..]).ends_with("used by 1 pod(s) in different namespaces"));
        assert!(multi_attach_message("v", &waiting, &[]).contains("exclusively attached to one node"));
    }
}
