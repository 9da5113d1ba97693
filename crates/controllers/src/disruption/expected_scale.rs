//! The number of pods that the controllers of a budget's pods should have.

use std::{collections::HashMap, sync::Arc};

use client::{ApiErrorExt, SharedInformer};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, StatefulSet},
        core::v1::ReplicationController,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::ResourceExt;

use super::DisruptionSyncError;
use crate::{
    controller_ref::controller_of,
    pod_view::PodView,
    scale_client::{ScaleClient, ScaleError, parse_group_version},
};

/// Finds the scale of controllers: built-in ones in caches, others by their scale subresource.
pub(super) struct ScaleFinder {
    pub(super) replication_controllers: SharedInformer<ReplicationController>,
    pub(super) replica_sets: SharedInformer<ReplicaSet>,
    pub(super) deployments: SharedInformer<Deployment>,
    pub(super) stateful_sets: SharedInformer<StatefulSet>,
    pub(super) scales: ScaleClient,
}

/// Sum of the scales of controllers.
pub(super) struct ExpectedScale {
    pub(super) replicas: i32,
    /// Whether there are pods without a controller.
    pub(super) has_unmanaged_pods: bool,
}

/// Uid and scale of a controller.
type ControllerScale = (String, i32);

impl ScaleFinder {
    /// Adds up the scales of the controllers of `pods`.
    pub(super) async fn expected_scale(&self, pods: &[Arc<PodView>]) -> Result<ExpectedScale, DisruptionSyncError> {
        let mut scales: HashMap<String, i32> = HashMap::new();
        let mut has_unmanaged_pods = false;
        for pod in pods {
            let Some(owner) = controller_of(&pod.metadata) else {
                has_unmanaged_pods = true;
                continue;
            };
            if scales.contains_key(&owner.uid) {
                continue;
            }
            let namespace = pod.metadata.namespace.as_deref().unwrap_or("");
            let scale = match self.built_in_scale(owner, namespace)? {
                Some(scale) => Some(scale),
                None => self.subresource_scale(owner, namespace).await?,
            };
            let (uid, replicas) = scale.ok_or_else(|| DisruptionSyncError::NoController(pod.name_any()))?;
            scales.insert(uid, replicas);
        }
        Ok(ExpectedScale { replicas: scales.values().sum(), has_unmanaged_pods })
    }

    fn built_in_scale(
        &self,
        owner: &OwnerReference,
        namespace: &str,
    ) -> Result<Option<ControllerScale>, DisruptionSyncError> {
        let (group, _) = parse_group_version(&owner.api_version)?;
        Ok(match (owner.kind.as_str(), group) {
            ("ReplicationController", "") => {
                let found = self.replication_controllers.get(namespace, &owner.name);
                found.and_then(|rc| own_scale(&rc.metadata, owner, rc.spec.as_ref().and_then(|spec| spec.replicas)))
            }
            ("ReplicaSet", "apps" | "extensions") => {
                let found = self.replica_sets.get(namespace, &owner.name);
                found.and_then(|replica_set| self.replica_set_scale(&replica_set, owner, namespace))
            }
            ("StatefulSet", "apps") => {
                let found = self.stateful_sets.get(namespace, &owner.name);
                found.and_then(|set| own_scale(&set.metadata, owner, set.spec.as_ref().and_then(|spec| spec.replicas)))
            }
            _ => None,
        })
    }

    /// Returns the scale of a ReplicaSet, or of the Deployment that controls it.
    fn replica_set_scale(
        &self,
        replica_set: &ReplicaSet,
        owner: &OwnerReference,
        namespace: &str,
    ) -> Option<ControllerScale> {
        let own = own_scale(&replica_set.metadata, owner, replica_set.spec.as_ref().and_then(|spec| spec.replicas))?;
        match controller_of(&replica_set.metadata).filter(|controller| controller.kind == "Deployment") {
            None => Some(own),
            Some(controller) => {
                let group = parse_group_version(&controller.api_version).map(|(group, _)| group);
                let deployment = group.is_ok_and(|group| matches!(group, "apps" | "extensions"));
                let deployment = self.deployments.get(namespace, &controller.name).filter(|_| deployment)?;
                let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
                own_scale(&deployment.metadata, controller, replicas)
            }
        }
    }

    /// Returns the scale of any controller, `None` if the controller is gone.
    async fn subresource_scale(
        &self,
        owner: &OwnerReference,
        namespace: &str,
    ) -> Result<Option<ControllerScale>, DisruptionSyncError> {
        let (group, version) = parse_group_version(&owner.api_version)?;
        let resources = self.scales.resources_of_kind(group, &owner.kind).await?;
        let found = resources.into_iter().find(|found| found.resource.version == version);
        let found = found.ok_or_else(|| ScaleError::NoMatch {
            kind: owner.kind.clone(),
            scope: format!("version {:?}", owner.api_version),
        })?;
        match self.scales.get_scale(&found.resource, namespace, &owner.name).await {
            Ok(scale) => {
                Ok(own_scale(&scale.metadata, owner, Some(scale.spec.and_then(|spec| spec.replicas).unwrap_or(0))))
            }
            Err(ScaleError::Api(error)) if error.is_not_found() && found.has_scale => Ok(None),
            Err(ScaleError::Api(error)) if error.is_not_found() => {
                Err(DisruptionSyncError::NotScalable(found.group_resource()))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the scale of an object if it is the one that `owner` refers to.
fn own_scale(meta: &ObjectMeta, owner: &OwnerReference, replicas: Option<i32>) -> Option<ControllerScale> {
    (meta.uid.as_ref() == Some(&owner.uid)).then(|| (owner.uid.clone(), replicas.unwrap_or(1)))
}
