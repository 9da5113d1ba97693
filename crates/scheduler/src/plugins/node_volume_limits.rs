//! NodeVolumeLimits: a node can attach as many volumes of a CSI driver as its CSINode says.

use std::collections::HashMap;

use k8s_openapi::api::{core::v1::PersistentVolumeClaim, storage::v1::CSINode};

use crate::{
    framework::{
        cluster_event::{ActionType, ClusterEvent, EventObject, EventResource, QueueingHint},
        cycle_state::CycleState,
        extension_points::{CycleContext, EnqueueExtensions, FilterPlugin, Plugin, PreFilterPlugin, PreFilterResult},
        status::Status,
    },
    objects::{ATTACHMENTS_BY_NODE, ClusterObjects},
    plugins::{
        volume_binding::{check_owner, claim_class},
        volume_restrictions::claim_not_found,
    },
    views::node_info::NodeInfo,
    views::pod_info::PodInfo,
    views::pod_volumes::PodVolume,
};

/// Drivers by the unique names of volumes.
type AttachedVolumes = HashMap<String, String>;

/// The plug-in.
pub struct NodeVolumeLimits {
    objects: ClusterObjects,
    /// Distinguishes volumes that do not exist yet from all that do.
    unbound_prefix: String,
}

impl NodeVolumeLimits {
    /// Creates the plug-in.
    pub fn new(objects: ClusterObjects) -> Self {
        Self { objects, unbound_prefix: format!("{:032x}", fastrand::u128(..)) }
    }

    /// Adds the volumes of a pod that a CSI driver attaches.
    fn add_volumes(
        &self,
        pod: &PodInfo,
        csi_node: Option<&CSINode>,
        is_new: bool,
        volumes: &mut AttachedVolumes,
    ) -> Result<(), Status> {
        for volume in &pod.class.volumes {
            if let PodVolume::ExclusiveDisk(disk) = volume {
                if let Some((plugin, driver, handle)) = disk.migrated_driver()
                    && is_migrated(csi_node, plugin)
                {
                    volumes.insert(format!("{driver}/{handle}"), driver.to_owned());
                }
                continue;
            }
            let Some(name) = volume.claim_name(&pod.name) else { continue };
            let namespace = &pod.class.namespace;
            let Some(claim) = self.objects.claims.get(namespace, &name) else {
                if is_new {
                    let message = format!("looking up PVC {namespace}/{name}: {}", claim_not_found(&name));
                    return Err(Status::unresolvable(message));
                }
                continue;
            };
            if matches!(volume, PodVolume::Ephemeral(_)) {
                check_owner(pod, &claim).map_err(Status::error)?;
            }
            if let Some((driver, handle)) = self.driver_of(&claim, csi_node) {
                volumes.insert(format!("{driver}/{handle}"), driver);
            }
        }
        Ok(())
    }

    /// Returns the driver and handle of a claim's volume, or of the one that would be provisioned.
    fn driver_of(&self, claim: &PersistentVolumeClaim, csi_node: Option<&CSINode>) -> Option<(String, String)> {
        let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or("");
        if let Some(volume) = self.objects.volumes.get("", name).filter(|_| !name.is_empty()) {
            let spec = volume.spec.as_ref()?;
            if let Some(csi) = &spec.csi {
                return Some((csi.driver.clone(), csi.volume_handle.clone()));
            }
            let disk = spec.aws_elastic_block_store.as_ref().map(|disk| {
                ("kubernetes.io/aws-ebs", "ebs.csi.aws.com", disk.volume_id.rsplit('/').next().unwrap_or("").to_owned())
            });
            let disk = disk.or_else(|| {
                let disk = spec.gce_persistent_disk.as_ref()?;
                let handle = format!("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/{}", disk.pd_name);
                Some(("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", handle))
            });
            let (plugin, driver, handle) = disk?;
            return is_migrated(csi_node, plugin).then(|| (driver.to_owned(), handle));
        }
        let class = self.objects.storage_classes.get("", &claim_class(claim))?;
        let meta = &claim.metadata;
        let key = format!("{}/{}", meta.namespace.as_deref().unwrap_or(""), meta.name.as_deref().unwrap_or(""));
        let handle = format!("{}-{key}", self.unbound_prefix);
        match migrated_provisioner(&class.provisioner) {
            Some(driver) => is_migrated(csi_node, &class.provisioner).then(|| (driver.to_owned(), handle)),
            None => Some((class.provisioner.clone(), handle)),
        }
    }

    /// Adds volumes that are attached to a node, though no pod there uses them.
    fn add_attachments(&self, node: &str, volumes: &AttachedVolumes, counts: &mut HashMap<String, i64>) {
        for attachment in self.objects.attachments.by_index(ATTACHMENTS_BY_NODE, node) {
            let driver = &attachment.spec.attacher;
            let Some(name) = &attachment.spec.source.persistent_volume_name else { continue };
            let Some(volume) = self.objects.volumes.get("", name) else { continue };
            let Some(csi) = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()) else { continue };
            if !driver.is_empty() && !volumes.contains_key(&format!("{driver}/{}", csi.volume_handle)) {
                *counts.entry(driver.clone()).or_insert(0) += 1;
            }
        }
    }
}

/// Drivers that took over provisioners of in-tree plug-ins.
fn migrated_provisioner(provisioner: &str) -> Option<&'static str> {
    Some(match provisioner {
        "kubernetes.io/aws-ebs" => "ebs.csi.aws.com",
        "kubernetes.io/gce-pd" => "pd.csi.storage.gke.io",
        "kubernetes.io/azure-disk" => "disk.csi.azure.com",
        "kubernetes.io/azure-file" => "file.csi.azure.com",
        "kubernetes.io/cinder" => "cinder.csi.openstack.org",
        "kubernetes.io/vsphere-volume" => "csi.vsphere.vmware.com",
        "kubernetes.io/portworx-volume" => "pxd.portworx.com",
        _ => return None,
    })
}

/// Whether the node's CSI drivers serve the volumes of an in-tree plug-in.
fn is_migrated(csi_node: Option<&CSINode>, plugin: &str) -> bool {
    let annotations = csi_node.and_then(|node| node.metadata.annotations.as_ref());
    let plugins = annotations.and_then(|all| all.get("storage.alpha.kubernetes.io/migrated-plugins"));
    plugins.is_some_and(|plugins| plugins.split(',').any(|name| name == plugin))
}

fn limits(csi_node: &CSINode) -> HashMap<&str, i64> {
    let limit = |driver: &k8s_openapi::api::storage::v1::CSINodeDriver| {
        driver.allocatable.as_ref().and_then(|allocatable| allocatable.count)
    };
    let drivers = csi_node.spec.drivers.iter();
    drivers.filter_map(|driver| Some((driver.name.as_str(), i64::from(limit(driver)?)))).collect()
}

fn may_be_attached(volume: &PodVolume) -> bool {
    match volume {
        PodVolume::Claim(_) | PodVolume::Ephemeral(_) => true,
        PodVolume::ExclusiveDisk(disk) => disk.migrated_driver().is_some(),
        PodVolume::Csi(_) | PodVolume::Image(_) => false,
    }
}

impl Plugin for NodeVolumeLimits {
    fn name(&self) -> &'static str {
        "NodeVolumeLimits"
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilterPlugin> {
        Some(self)
    }

    fn as_filter(&self) -> Option<&dyn FilterPlugin> {
        Some(self)
    }

    fn as_enqueue_extensions(&self) -> Option<&dyn EnqueueExtensions> {
        Some(self)
    }
}

/// Number of volumes of the pod, where they are the same on every node.
#[derive(Clone, Copy)]
struct WantedVolumes(usize);

impl NodeVolumeLimits {
    /// Counts the volumes of a pod; `None` if they depend on the node or one is missing.
    fn count_wanted(&self, pod: &PodInfo) -> Option<usize> {
        let mut wanted = 0;
        for volume in pod.class.volumes.iter().filter(|volume| may_be_attached(volume)) {
            let PodVolume::Claim(name) = volume else { return None };
            let claim = self.objects.claims.get(&pod.class.namespace, name)?;
            let name = claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())?;
            self.objects.volumes.get("", name)?.spec.as_ref()?.csi.as_ref()?;
            wanted += 1;
        }
        Some(wanted)
    }

    /// Whether the node's limits hold even if all volumes there were of one driver. Spares looking them up.
    fn is_far_below_limits(&self, node: &NodeInfo, wanted: usize) -> bool {
        let Some(csi_node) = self.objects.csi_nodes.get("", node.name()) else { return true };
        let mut total = wanted + self.objects.attachments.by_index(ATTACHMENTS_BY_NODE, node.name()).len();
        for count in &node.classes {
            if count.class.volumes.iter().any(|volume| matches!(volume, PodVolume::Ephemeral(_))) {
                return false;
            }
            let attached = count.class.volumes.iter().filter(|volume| may_be_attached(volume)).count();
            total += attached * usize::try_from(count.pods).unwrap_or(0);
        }
        let limits = csi_node.spec.drivers.iter().filter_map(|driver| driver.allocatable.as_ref()?.count);
        limits.min().is_none_or(|least| usize::try_from(least).is_ok_and(|least| total <= least))
    }
}

impl PreFilterPlugin for NodeVolumeLimits {
    fn pre_filter(&self, cycle: CycleContext<'_>, state: &mut CycleState) -> Result<PreFilterResult, Status> {
        if let Some(wanted) = self.count_wanted(cycle.pod) {
            state.write_for_search(WantedVolumes(wanted));
        }
        Ok(match cycle.pod.class.volumes.iter().any(may_be_attached) {
            true => PreFilterResult::AllNodes,
            false => PreFilterResult::Skip,
        })
    }
}

impl FilterPlugin for NodeVolumeLimits {
    fn filter(&self, cycle: CycleContext<'_>, state: &CycleState, node: &NodeInfo) -> Result<(), Status> {
        if let Some(WantedVolumes(wanted)) = state.get()
            && self.is_far_below_limits(node, *wanted)
        {
            return Ok(());
        }
        let csi_node = self.objects.csi_nodes.get("", node.name());
        let mut wanted = AttachedVolumes::new();
        self.add_volumes(cycle.pod, csi_node.as_deref(), true, &mut wanted)?;
        let limits = csi_node.as_deref().map(limits).unwrap_or_default();
        if wanted.is_empty() || limits.is_empty() {
            return Ok(());
        }
        let mut attached = AttachedVolumes::new();
        for pod in node.pods.iter().filter(|pod| !pod.class.volumes.is_empty()) {
            self.add_volumes(pod, csi_node.as_deref(), false, &mut attached)?;
        }
        let mut counts: HashMap<String, i64> = HashMap::new();
        for (volume, driver) in &attached {
            wanted.remove(volume);
            *counts.entry(driver.clone()).or_insert(0) += 1;
        }
        self.add_attachments(node.name(), &attached, &mut counts);
        wanted.into_values().for_each(|driver| *counts.entry(format!("+{driver}")).or_insert(0) += 1);
        let exceeds = |(driver, limit): (&&str, &i64)| {
            let new = counts.get(&format!("+{driver}")).copied().unwrap_or(0);
            new > 0 && counts.get(*driver).copied().unwrap_or(0) + new > *limit
        };
        match limits.iter().any(exceeds) {
            false => Ok(()),
            true => Err(Status::unschedulable("node(s) exceed max volume count")),
        }
    }
}

impl EnqueueExtensions for NodeVolumeLimits {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![
            ClusterEvent::new(EventResource::CsiNode, ActionType::ADD.or(ActionType::UPDATE)),
            ClusterEvent::new(EventResource::Pod, ActionType::DELETE),
            ClusterEvent::new(EventResource::PersistentVolumeClaim, ActionType::ADD),
            ClusterEvent::new(EventResource::VolumeAttachment, ActionType::DELETE),
        ]
    }

    fn hint(&self, _event: ClusterEvent, pod: &PodInfo, object: &EventObject) -> QueueingHint {
        QueueingHint::queue_if(match object {
            EventObject::CsiNode(change) => match (&change.old, &change.new) {
                (Some(old), Some(new)) => {
                    let old = limits(old);
                    limits(new).iter().any(|(driver, limit)| *limit > old.get(driver).copied().unwrap_or(0))
                }
                _ => true,
            },
            EventObject::Pod(change) => change.old.as_ref().is_some_and(|deleted| {
                let was_placed = deleted.node_name.is_some() || deleted.nominated_node_name.is_some();
                was_placed && deleted.class.volumes.iter().any(may_be_attached)
            }),
            EventObject::PersistentVolumeClaim(change) => change.new.as_ref().is_some_and(|claim| {
                let is_own = |volume: &PodVolume| volume.claim_name(&pod.name) == claim.metadata.name;
                claim.metadata.namespace.as_deref() == Some(&*pod.class.namespace)
                    && pod.class.volumes.iter().filter(|volume| may_be_attached(volume)).any(is_own)
            }),
            EventObject::VolumeAttachment(_) => pod
                .class
                .volumes
                .iter()
                .any(|volume| matches!(volume, PodVolume::Claim(_) | PodVolume::ExclusiveDisk(_))),
            _ => true,
        })
    }

    fn hints_by_class(&self) -> bool {
        false
    }
}
