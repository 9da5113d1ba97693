//! PersistentVolumes of upstream's old in-tree plug-ins, as the CSI volumes that they are today.
//!
//! The plug-ins are gone from Kubernetes; their volumes belong to CSI drivers, which find them by a handle that is made of the old
//! source as upstream's translation makes it. A source that cannot be translated is no CSI volume and is not attached.

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;

/// Labels of a volume's zones, the first that is not empty counts.
const ZONE_LABELS: [&str; 2] = ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];
/// Separates the zones of a regional disk.
const ZONE_SEPARATOR: &str = "__";
const UNSPECIFIED: &str = "UNSPECIFIED";

/// Returns the CSI driver of an in-tree source, and the handle by which it finds the volume.
pub(super) fn driver_and_handle(volume: &PersistentVolume) -> Option<(&'static str, String)> {
    let spec = volume.spec.as_ref()?;
    let csi = |driver: &'static str, handle: String| Some((driver, handle));
    if let Some(source) = &spec.aws_elastic_block_store {
        csi("ebs.csi.aws.com", ebs_handle(&source.volume_id)?)
    } else if let Some(source) = &spec.gce_persistent_disk {
        csi("pd.csi.storage.gke.io", gce_handle(volume, &source.pd_name)?)
    } else if let Some(source) = &spec.cinder {
        csi("cinder.csi.openstack.org", source.volume_id.clone())
    } else if let Some(source) = &spec.azure_disk {
        let is_managed = source.kind.as_deref().is_none_or(|kind| kind.eq_ignore_ascii_case("Managed"));
        csi("disk.csi.azure.com", source.disk_uri.clone()).filter(|_| is_managed)
    } else if let Some(source) = &spec.vsphere_volume {
        csi("csi.vsphere.vmware.com", source.volume_path.clone())
    } else if let Some(source) = &spec.portworx_volume {
        csi("pxd.portworx.com", source.volume_id.clone())
    } else {
        None
    }
}

/// The id in `aws://zone/vol-0123`, or the bare id.
fn ebs_handle(volume_id: &str) -> Option<String> {
    let Some(url) = volume_id.strip_prefix("aws://") else { return Some(volume_id.into()) };
    let (_, path) = url.split_once('/')?;
    let id = path.trim_matches('/');
    (id.starts_with("vol-") && !id.contains('/')).then(|| id.into())
}

fn gce_handle(volume: &PersistentVolume, disk: &str) -> Option<String> {
    let label = |name: &&str| volume.labels().get(*name).filter(|zones| !zones.is_empty());
    let zones = ZONE_LABELS.iter().find_map(label).map_or(UNSPECIFIED, String::as_str);
    let zones: Vec<&str> = zones.split(ZONE_SEPARATOR).collect();
    let location = match zones.as_slice() {
        [zone] => format!("zones/{zone}"),
        zones => format!("regions/{}", common_region(zones)?),
    };
    Some(format!("projects/{UNSPECIFIED}/{location}/disks/{disk}"))
}

/// The region of zones such as `us-central1-a`, which must be one.
fn common_region<'a>(zones: &[&'a str]) -> Option<&'a str> {
    let region = |zone: &&'a str| zone.rsplit_once('-').map(|(region, _)| region);
    let first = zones.first().and_then(region)?;
    zones.iter().all(|zone| region(zone) == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(labels: Value, source: Value, expected: Option<(&str, &str)>) {
        let mut volume = json!({"metadata": {"labels": labels}, "spec": {}});
        json_patch::merge(&mut volume["spec"], &source);
        let csi = driver_and_handle(&serde_json::from_value(volume).unwrap());
        assert_eq!(csi.as_ref().map(|(driver, handle)| (*driver, handle.as_str())), expected, "{source}");
    }

    #[test]
    fn sources_are_translated_to_drivers_and_handles() {
        let ebs = |id: &str| json!({"awsElasticBlockStore": {"volumeID": id}});
        check(json!({}), ebs("vol-01"), Some(("ebs.csi.aws.com", "vol-01")));
        check(json!({}), ebs("aws://us-east-1a/vol-01"), Some(("ebs.csi.aws.com", "vol-01")));
        check(json!({}), ebs("aws:///vol-01"), Some(("ebs.csi.aws.com", "vol-01")));
        check(json!({}), ebs("aws://us-east-1a/snap-01"), None);
        check(json!({}), json!({"cinder": {"volumeID": "c"}}), Some(("cinder.csi.openstack.org", "c")));
        let azure = |kind: &str| json!({"azureDisk": {"diskName": "d", "diskURI": "/uri", "kind": kind}});
        check(json!({}), azure("Managed"), Some(("disk.csi.azure.com", "/uri")));
        check(json!({}), azure("Dedicated"), None);
        check(json!({}), json!({"vsphereVolume": {"volumePath": "[d] v"}}), Some(("csi.vsphere.vmware.com", "[d] v")));
        check(json!({}), json!({"portworxVolume": {"volumeID": "p"}}), Some(("pxd.portworx.com", "p")));
        check(json!({}), json!({"hostPath": {"path": "/x"}}), None);
    }

    #[test]
    fn zones_of_a_disk_are_in_its_handle() {
        let disk = || json!({"gcePersistentDisk": {"pdName": "d"}});
        let check = |labels: Value, handle: Option<&str>| {
            check(labels, disk(), handle.map(|handle| ("pd.csi.storage.gke.io", handle)));
        };
        check(json!({}), Some("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"));
        let zone = |zones: &str| json!({"topology.kubernetes.io/zone": zones});
        check(zone("us-central1-a"), Some("projects/UNSPECIFIED/zones/us-central1-a/disks/d"));
        check(zone("us-central1-a__us-central1-b"), Some("projects/UNSPECIFIED/regions/us-central1/disks/d"));
        check(zone("us-central1-a__europe-west1-b"), None);
        let old = json!({"failure-domain.beta.kubernetes.io/zone": "z-a", "topology.kubernetes.io/zone": "z-b"});
        check(old, Some("projects/UNSPECIFIED/zones/z-a/disks/d"));
    }
}
