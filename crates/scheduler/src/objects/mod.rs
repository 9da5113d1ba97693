//! The objects besides pods and nodes that plug-ins read, each kept by an informer.

pub mod device_classes;
pub mod namespaces;
pub mod workload_selectors;

use client::{SharedInformer, SharedInformerFactory};
use futures::future::BoxFuture;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    policy::v1::PodDisruptionBudget,
    resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
    scheduling::v1alpha2::PodGroup,
    storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment},
};

use crate::config::feature_gates::SchedulerFeatures;

use self::{device_classes::DeviceClassResolver, namespaces::NamespaceLister, workload_selectors::WorkloadSelectors};

/// Index of volume attachments by node.
pub const ATTACHMENTS_BY_NODE: &str = "node";

/// The informers.
#[derive(Clone)]
pub struct ClusterObjects {
    /// Namespaces with their labels.
    pub namespaces: NamespaceLister,
    /// Selectors of services and workloads.
    pub workloads: WorkloadSelectors,
    /// Disruption budgets.
    pub budgets: SharedInformer<PodDisruptionBudget>,
    /// PersistentVolumes.
    pub volumes: SharedInformer<PersistentVolume>,
    /// PersistentVolumeClaims.
    pub claims: SharedInformer<PersistentVolumeClaim>,
    /// Storage classes.
    pub storage_classes: SharedInformer<StorageClass>,
    /// CSINodes.
    pub csi_nodes: SharedInformer<CSINode>,
    /// CSIDrivers.
    pub csi_drivers: SharedInformer<CSIDriver>,
    /// Storage capacities.
    pub capacities: SharedInformer<CSIStorageCapacity>,
    /// Volume attachments, with the index [`ATTACHMENTS_BY_NODE`].
    pub attachments: SharedInformer<VolumeAttachment>,
    /// Claims of dynamic resources.
    pub resource_claims: SharedInformer<ResourceClaim>,
    /// Devices.
    pub resource_slices: SharedInformer<ResourceSlice>,
    /// Device classes.
    pub device_classes: DeviceClassResolver,
    /// Pod groups, with the feature gate GenericWorkload.
    pub pod_groups: Option<SharedInformer<PodGroup>>,
}

impl ClusterObjects {
    /// Starts the informers.
    pub fn new(informers: &SharedInformerFactory, features: &SchedulerFeatures) -> Self {
        let has_extended = features.is_enabled("DRAExtendedResource");
        let attachments = informers.informer_for::<VolumeAttachment>();
        attachments.add_index(ATTACHMENTS_BY_NODE, |attachment| vec![attachment.spec.node_name.clone()]);
        Self {
            namespaces: NamespaceLister::new(informers.informer_for()),
            workloads: WorkloadSelectors::new(informers),
            budgets: informers.informer_for(),
            volumes: informers.informer_for(),
            claims: informers.informer_for(),
            storage_classes: informers.informer_for(),
            csi_nodes: informers.informer_for(),
            csi_drivers: informers.informer_for(),
            capacities: informers.informer_for(),
            attachments,
            resource_claims: informers.informer_for(),
            resource_slices: informers.informer_for(),
            device_classes: DeviceClassResolver::new(informers.informer_for::<DeviceClass>(), has_extended),
            pod_groups: features.is_enabled("GenericWorkload").then(|| informers.informer_for()),
        }
    }

    /// Waits until all informers have their first list.
    pub async fn wait_for_sync(&self) {
        let mut waits: Vec<BoxFuture<'_, ()>> = vec![
            Box::pin(self.namespaces.wait_for_sync()),
            Box::pin(self.workloads.wait_for_sync()),
            Box::pin(self.budgets.wait_for_cache_sync()),
            Box::pin(self.volumes.wait_for_cache_sync()),
            Box::pin(self.claims.wait_for_cache_sync()),
            Box::pin(self.storage_classes.wait_for_cache_sync()),
            Box::pin(self.csi_nodes.wait_for_cache_sync()),
            Box::pin(self.csi_drivers.wait_for_cache_sync()),
            Box::pin(self.capacities.wait_for_cache_sync()),
            Box::pin(self.attachments.wait_for_cache_sync()),
            Box::pin(self.resource_claims.wait_for_cache_sync()),
            Box::pin(self.resource_slices.wait_for_cache_sync()),
            Box::pin(self.device_classes.wait_for_sync()),
        ];
        if let Some(groups) = &self.pod_groups {
            waits.push(Box::pin(groups.wait_for_cache_sync()));
        }
        futures::future::join_all(waits).await;
    }
}
