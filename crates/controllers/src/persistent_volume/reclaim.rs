//! Reclaiming of released volumes, and the volume plug-ins of the controller: hostPath, NFS, iSCSI, FC and CSI.
//!
//! Only hostPath volumes below `/tmp` are deleted here, as upstream does; external provisioners delete their own.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeSpec};
use kube::{Api, Resource, ResourceExt, api::DeleteParams};

use super::{
    PersistentVolumeBinder,
    matching::{PROVISIONED_BY, reclaim_policy, volume_phase},
};

/// Finalizer of volumes that a plug-in of the controller deletes.
const IN_TREE_FINALIZER: &str = "kubernetes.io/pv-controller";
/// Finalizer of volumes that an external provisioner deletes.
const EXTERNAL_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// Prefix of the names of upstream's own plug-ins.
const IN_TREE_PREFIX: &str = "kubernetes.io/";
/// Upstream's own plug-ins whose volumes a CSI driver provisions.
const MIGRATED_PLUGINS: [&str; 7] = [
    "kubernetes.io/aws-ebs",
    "kubernetes.io/azure-disk",
    "kubernetes.io/azure-file",
    "kubernetes.io/cinder",
    "kubernetes.io/gce-pd",
    "kubernetes.io/portworx-volume",
    "kubernetes.io/vsphere-volume",
];

/// Names of the CSI drivers of [`MIGRATED_PLUGINS`].
const CSI_DRIVERS: [&str; 7] = [
    "ebs.csi.aws.com",
    "disk.csi.azure.com",
    "file.csi.azure.com",
    "cinder.csi.openstack.org",
    "pd.csi.storage.gke.io",
    "pxd.portworx.com",
    "csi.vsphere.vmware.com",
];

/// The plug-ins of the controller.
const PLUGINS: [&str; 5] =
    ["kubernetes.io/host-path", "kubernetes.io/nfs", "kubernetes.io/fc", "kubernetes.io/iscsi", "kubernetes.io/csi"];

/// No plug-in does what a volume or class needs; upstream's message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct VolumePluginError(String);

/// Returns the name under which the provisioner of a class is asked; an error for upstream's own plug-ins, of which none
/// provisions volumes.
pub(super) fn external_provisioner(provisioner: &str) -> Result<&str, VolumePluginError> {
    if let Some(position) = MIGRATED_PLUGINS.iter().position(|plugin| *plugin == provisioner) {
        return Ok(CSI_DRIVERS[position]);
    }
    match provisioner.starts_with(IN_TREE_PREFIX) {
        true if PLUGINS.contains(&provisioner) => {
            Err(VolumePluginError("no provisionable volume plugin matched".into()))
        }
        true => Err(VolumePluginError(format!("no volume plugin matched name: {provisioner}"))),
        false => Ok(provisioner),
    }
}

/// The deleter of a volume.
#[derive(Debug, PartialEq, Eq)]
enum VolumeDeleter {
    /// The external provisioner deletes it.
    External,
    /// The directory of a hostPath volume is removed.
    HostPath(String),
}

fn find_deleter(volume: &PersistentVolume) -> Result<VolumeDeleter, VolumePluginError> {
    let spec = volume.spec.as_ref();
    let host_path = spec.and_then(|spec| spec.host_path.as_ref()).map(|source| source.path.clone());
    let by_name = volume.annotations().get(PROVISIONED_BY).filter(|name| !name.is_empty());
    match by_name {
        Some(name) if name == PLUGINS[0] => Ok(VolumeDeleter::HostPath(host_path.unwrap_or_default())),
        Some(name) if PLUGINS.contains(&name.as_str()) => {
            Err(VolumePluginError("no deletable volume plugin matched".into()))
        }
        Some(name) if name.starts_with(IN_TREE_PREFIX) && !MIGRATED_PLUGINS.contains(&name.as_str()) => {
            Err(VolumePluginError(format!("no volume plugin matched name: {name}")))
        }
        Some(_) => Ok(VolumeDeleter::External),
        None if spec.is_some_and(|spec| spec.csi.is_some()) => Ok(VolumeDeleter::External),
        None => {
            let why = match host_path {
                Some(path) => return Ok(VolumeDeleter::HostPath(path)),
                None if spec.is_some_and(has_plugin) => "no deletable volume plugin matched",
                None => "no volume plugin matched",
            };
            let message = format!("error getting deleter volume plugin for volume {:?}: {why}", volume.name_any());
            Err(VolumePluginError(message))
        }
    }
}

fn has_plugin(spec: &PersistentVolumeSpec) -> bool {
    spec.nfs.is_some() || spec.fc.is_some() || spec.iscsi.is_some()
}

/// Returns the volume with the finalizers that its reclaim policy needs; `None` if it has them. They are for volumes that
/// one of upstream's own plug-ins provisioned.
pub(super) fn with_deletion_finalizers(volume: &PersistentVolume) -> Option<PersistentVolume> {
    let provisioner = volume.annotations().get(PROVISIONED_BY)?;
    let mut finalizers = volume.finalizers().to_vec();
    if MIGRATED_PLUGINS.contains(&provisioner.as_str()) {
        finalizers.retain(|finalizer| finalizer != IN_TREE_FINALIZER);
    } else if provisioner.starts_with(IN_TREE_PREFIX) {
        let is_protected = finalizers.iter().any(|finalizer| finalizer == IN_TREE_FINALIZER);
        match reclaim_policy(volume) {
            "Delete" if !is_protected => finalizers.push(IN_TREE_FINALIZER.into()),
            "Delete" => {}
            _ => finalizers.retain(|finalizer| finalizer != IN_TREE_FINALIZER),
        }
        finalizers.retain(|finalizer| finalizer != EXTERNAL_FINALIZER);
    }
    if finalizers == volume.finalizers() {
        return None;
    }
    let mut changed = volume.clone();
    changed.metadata.finalizers = Some(finalizers);
    Some(changed)
}

impl PersistentVolumeBinder {
    /// Does what the reclaim policy of a released volume says; returns whether nothing is left to retry.
    pub(super) async fn reclaim_volume(&self, volume: Arc<PersistentVolume>) -> Result<bool, kube::Error> {
        match reclaim_policy(&volume) {
            "Retain" => Ok(true),
            "Delete" => self.delete_volume(volume).await,
            "Recycle" => self.recycle_volume(volume).await,
            _ => {
                let message = "Volume has unrecognized PersistentVolumeReclaimPolicy";
                self.fail_volume(volume, "VolumeUnknownReclaimPolicy", message).await
            }
        }
    }

    async fn delete_volume(&self, volume: Arc<PersistentVolume>) -> Result<bool, kube::Error> {
        let path = match find_deleter(&volume) {
            Ok(VolumeDeleter::External) => return Ok(true),
            Ok(VolumeDeleter::HostPath(path)) => path,
            Err(error) => return self.fail_volume(volume, "VolumeFailedDelete", &error.to_string()).await,
        };
        if let Err(error) = remove_host_path(&path).await {
            return self.fail_volume(volume, "VolumeFailedDelete", &error.to_string()).await;
        }
        let name = volume.name_any();
        if volume.finalizers().iter().any(|finalizer| finalizer == IN_TREE_FINALIZER) {
            let mut changed = (*volume).clone();
            changed.finalizers_mut().retain(|finalizer| finalizer != IN_TREE_FINALIZER);
            self.update_volume(changed).await?;
        }
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        api.delete(&name, &DeleteParams::default()).await?;
        Ok(true)
    }

    /// Marks a volume as failed, with an event if it is a change. The reclaim is retried.
    pub(super) async fn fail_volume(
        &self,
        volume: Arc<PersistentVolume>,
        reason: &str,
        message: &str,
    ) -> Result<bool, kube::Error> {
        if volume_phase(&volume) != "Failed" {
            let written = self.update_volume_phase(volume, "Failed", message).await?;
            self.recorder.record_warning(written.object_ref(&()), reason, message);
        }
        Ok(false)
    }
}

/// Removes the directory of a hostPath volume; only paths below `/tmp` are removed.
async fn remove_host_path(path: &str) -> Result<(), VolumePluginError> {
    let is_allowed = path.strip_prefix("/tmp/").is_some_and(|rest| !rest.is_empty());
    if !is_allowed || path.split('/').any(|part| part == "..") {
        let message = format!("host_path deleter only supports /tmp/.+ but received provided {path}");
        return Err(VolumePluginError(message));
    }
    match tokio::fs::remove_dir_all(path).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(VolumePluginError(error.to_string())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(annotations: Value, spec: Value) -> PersistentVolume {
        serde_json::from_value(json!({"metadata": {"name": "v", "annotations": annotations}, "spec": spec})).unwrap()
    }

    #[test]
    fn provisioners_are_external_or_refused() {
        assert_eq!(external_provisioner("example.com/nfs"), Ok("example.com/nfs"));
        assert_eq!(external_provisioner("kubernetes.io/aws-ebs"), Ok("ebs.csi.aws.com"));
        let refused = external_provisioner("kubernetes.io/no-provisioner");
        let message = "no volume plugin matched name: kubernetes.io/no-provisioner";
        assert_eq!(refused, Err(VolumePluginError(message.into())));
    }

    #[test]
    fn deleter_is_found_by_provisioner_or_source() {
        let csi = json!({"csi": {"driver": "d", "volumeHandle": "h"}});
        assert_eq!(find_deleter(&volume(json!({}), csi)), Ok(VolumeDeleter::External));
        let host = json!({"hostPath": {"path": "/tmp/x"}});
        assert_eq!(find_deleter(&volume(json!({}), host)), Ok(VolumeDeleter::HostPath("/tmp/x".into())));
        let by = json!({PROVISIONED_BY: "example.com/p"});
        assert_eq!(find_deleter(&volume(by, json!({"hostPath": {"path": "/x"}}))), Ok(VolumeDeleter::External));
        let local = find_deleter(&volume(json!({}), json!({"local": {"path": "/x"}})));
        assert!(local.unwrap_err().0.ends_with("no volume plugin matched"));
    }

    #[test]
    fn finalizer_follows_the_reclaim_policy() {
        let by = json!({PROVISIONED_BY: "kubernetes.io/host-path"});
        let protected =
            with_deletion_finalizers(&volume(by, json!({"persistentVolumeReclaimPolicy": "Delete"}))).unwrap();
        assert_eq!(protected.finalizers(), [IN_TREE_FINALIZER]);
        assert_eq!(with_deletion_finalizers(&protected), None);
        let mut kept = protected;
        kept.spec.as_mut().unwrap().persistent_volume_reclaim_policy = Some("Retain".into());
        assert!(with_deletion_finalizers(&kept).unwrap().finalizers().is_empty());
        assert_eq!(with_deletion_finalizers(&volume(json!({}), json!({}))), None);
    }

    #[tokio::test]
    async fn only_directories_below_tmp_are_removed() {
        for path in ["/tmp/", "/tmpx/y", "/var/x", "/tmp/../etc"] {
            assert!(remove_host_path(path).await.unwrap_err().0.contains("only supports /tmp/.+"), "{path}");
        }
        let directory = format!("/tmp/ferry-reclaim-{}", std::process::id());
        std::fs::create_dir(&directory).unwrap();
        assert_eq!(remove_host_path(&directory).await, Ok(()));
        assert!(!std::path::Path::new(&directory).exists());
        assert_eq!(remove_host_path(&directory).await, Ok(()));
    }
}
