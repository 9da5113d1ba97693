//! Sync of PersistentVolumeClaims.

use std::sync::Arc;

use api::quantity::Quantity;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus},
    storage::v1::StorageClass,
};
use kube::{Api, Resource, ResourceExt, api::PostParams};

use super::{
    PersistentVolumeBinder,
    matching::{
        BETA_STORAGE_PROVISIONER, BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE, STORAGE_PROVISIONER, claim_class,
        find_matching_volume, is_bound_to_claim, mismatch,
    },
    reclaim, volume_name,
};
use crate::{object_key::ObjectKey, pod_node::assigned_node};

/// Annotation of volumes: the capacity of the file system before a resize.
const PRE_RESIZE_CAPACITY: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";

impl PersistentVolumeBinder {
    /// Moves a claim towards `Bound`; returns whether it waits for nothing but events.
    pub(super) async fn sync_claim(&self, claim: Arc<PersistentVolumeClaim>) -> Result<bool, kube::Error> {
        match claim.annotations().contains_key(BIND_COMPLETED) {
            true => self.sync_bound_claim(claim).await,
            false => self.sync_unbound_claim(claim).await,
        }
    }

    async fn sync_unbound_claim(&self, claim: Arc<PersistentVolumeClaim>) -> Result<bool, kube::Error> {
        if let Some(name) = volume_name(&claim).map(str::to_owned) {
            return self.bind_requested_volume(&claim, &name).await;
        }
        let class = self.find_class(claim_class(&claim)).await?;
        let delay_binding = class.as_deref().is_some_and(waits_for_first_consumer);
        if let Some(volume) = find_matching_volume(&claim, &self.candidate_volumes(&claim), delay_binding) {
            self.bind(volume, claim).await?;
            return Ok(true);
        }
        if self.assign_default_class(&claim).await? {
            return Ok(true);
        }
        if delay_binding && !claim.annotations().contains_key(SELECTED_NODE) {
            self.record_waiting(&claim);
        } else if !claim_class(&claim).is_empty() {
            self.provision_claim(claim, class).await?;
            return Ok(false);
        } else {
            let message = "no persistent volumes available for this claim and no storage class is set";
            self.recorder.record_normal(claim.object_ref(&()), "FailedBinding", message);
        }
        self.update_claim_status(claim, "Pending", None).await?;
        Ok(false)
    }

    /// Binds a claim to the volume that it names.
    async fn bind_requested_volume(&self, claim: &Arc<PersistentVolumeClaim>, name: &str) -> Result<bool, kube::Error> {
        let Some(volume) = self.volumes.get(&ObjectKey::new("", name)) else {
            self.update_claim_status(claim.clone(), "Pending", None).await?;
            return Ok(false);
        };
        let is_claimed = volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_some());
        let refusal = match is_claimed {
            false => mismatch(&volume, claim).map(|reason| {
                ("VolumeMismatch", format!("Cannot bind to requested volume {:?}: {reason}", volume.name_any()))
            }),
            true if is_bound_to_claim(&volume, claim) => None,
            true => {
                let message = format!("volume {:?} already bound to a different claim.", volume.name_any());
                Some(("FailedBinding", message))
            }
        };
        match refusal {
            None => {
                self.bind(volume, claim.clone()).await?;
                Ok(true)
            }
            Some((reason, message)) => {
                self.recorder.record_warning(claim.object_ref(&()), reason, message);
                self.update_claim_status(claim.clone(), "Pending", None).await?;
                Ok(false)
            }
        }
    }

    async fn sync_bound_claim(&self, claim: Arc<PersistentVolumeClaim>) -> Result<bool, kube::Error> {
        let lost = |message: &'static str| ("ClaimLost", message);
        let Some(name) = volume_name(&claim) else {
            let why = lost("Bound claim has lost reference to PersistentVolume. Data on the volume is lost!");
            return self.lose_claim(claim, why).await;
        };
        let Some(volume) = self.volumes.get(&ObjectKey::new("", name)) else {
            let why = lost("Bound claim has lost its PersistentVolume. Data on the volume is lost!");
            return self.lose_claim(claim, why).await;
        };
        let claimed_by = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        if claimed_by.is_none_or(|claimed| claimed.uid == claim.metadata.uid) {
            self.bind(volume, claim).await?;
            return Ok(true);
        }
        let message = "Two claims are bound to the same volume, this one is bound incorrectly";
        self.lose_claim(claim, ("ClaimMisbound", message)).await
    }

    /// Sets the phase `Lost`, with an event if it is a change.
    async fn lose_claim(
        &self,
        claim: Arc<PersistentVolumeClaim>,
        (reason, message): (&str, &str),
    ) -> Result<bool, kube::Error> {
        if claim_phase(&claim) != "Lost" {
            let written = self.update_claim_status(claim, "Lost", None).await?;
            self.recorder.record_warning(written.object_ref(&()), reason, message);
        }
        Ok(true)
    }

    /// Binds volume and claim: the volume's reference and phase first, then the claim's.
    pub(super) async fn bind(
        &self,
        volume: Arc<PersistentVolume>,
        claim: Arc<PersistentVolumeClaim>,
    ) -> Result<(), kube::Error> {
        let volume = match bound_volume(&volume, &claim) {
            Some(changed) => self.update_volume(changed).await?,
            None => volume,
        };
        let volume = self.update_volume_phase(volume, "Bound", "").await?;
        let claim = match bound_claim(&claim, &volume.name_any()) {
            Some(changed) => self.update_claim(changed).await?,
            None => claim,
        };
        self.update_claim_status(claim, "Bound", Some(&volume)).await?;
        Ok(())
    }

    pub(super) async fn update_claim_status(
        &self,
        claim: Arc<PersistentVolumeClaim>,
        phase: &str,
        volume: Option<&PersistentVolume>,
    ) -> Result<Arc<PersistentVolumeClaim>, kube::Error> {
        let current = claim.status.clone().unwrap_or_default();
        let wanted = claim_status(&current, phase, volume);
        if wanted == current {
            return Ok(claim);
        }
        let changed = PersistentVolumeClaim { status: Some(wanted), ..(*claim).clone() };
        let api: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client.clone(), claim.metadata.namespace.as_deref().unwrap_or(""));
        let written = api.replace_status(&claim.name_any(), &PostParams::default(), &changed).await?;
        Ok(self.claims.record(written))
    }

    /// Tells what a claim of a class with `WaitForFirstConsumer` waits for.
    fn record_waiting(&self, claim: &PersistentVolumeClaim) {
        let pods = self.pods_of_claim(&ObjectKey::from_object(claim));
        let unscheduled = pods.iter().filter(|pod| assigned_node(pod).is_none());
        let names: Vec<String> = unscheduled.map(|pod| pod.name_any()).collect();
        let (reason, message) = match names.as_slice() {
            [] => ("WaitForFirstConsumer", "waiting for first consumer to be created before binding".to_owned()),
            [name] => ("WaitForPodScheduled", format!("waiting for pod {name} to be scheduled")),
            names => ("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", names.join(","))),
        };
        self.recorder.record_normal(claim.object_ref(&()), reason, message);
    }

    /// Finds a storage class. The cache may lag behind the one that the claim came from: what it lacks is read from the
    /// API server.
    async fn find_class(&self, name: &str) -> Result<Option<Arc<StorageClass>>, kube::Error> {
        match self.classes.get("", name) {
            None if !name.is_empty() => {
                Ok(Api::all(self.client.clone()).get_opt(name).await?.map(|class: StorageClass| Arc::new(class)))
            }
            class => Ok(class),
        }
    }

    /// Asks the class's external provisioner for a volume.
    async fn provision_claim(
        &self,
        claim: Arc<PersistentVolumeClaim>,
        class: Option<Arc<StorageClass>>,
    ) -> Result<(), kube::Error> {
        if !self.dynamic_provisioning {
            return Ok(());
        }
        let provisioner = match &class {
            None => Err(format!("storageclass.storage.k8s.io {:?} not found", claim_class(&claim))),
            Some(class) => reclaim::external_provisioner(&class.provisioner).map_err(|error| error.to_string()),
        };
        let provisioner = match provisioner {
            Ok(provisioner) => provisioner,
            Err(message) => {
                self.recorder.record_warning(claim.object_ref(&()), "ProvisioningFailed", message);
                return Ok(());
            }
        };
        let is_set = claim.annotations().get(STORAGE_PROVISIONER).is_some_and(|set| set == provisioner);
        let claim = if is_set {
            claim
        } else {
            let mut changed = (*claim).clone();
            for name in [BETA_STORAGE_PROVISIONER, STORAGE_PROVISIONER] {
                changed.annotations_mut().insert(name.into(), provisioner.into());
            }
            self.update_claim(changed).await?
        };
        let message = format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
             system administrator. If volume creation is delayed, please verify that the provisioner is running and \
             correctly registered."
        );
        self.recorder.record_normal(claim.object_ref(&()), "ExternalProvisioning", message);
        Ok(())
    }
}

fn waits_for_first_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

fn claim_phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("")
}

/// Returns the volume with a reference to the claim; `None` if it has it.
fn bound_volume(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<PersistentVolume> {
    let mut changed = volume.clone();
    let spec = changed.spec.get_or_insert_default();
    let is_same = spec.claim_ref.as_ref().is_some_and(|reference| {
        let wanted = (&claim.metadata.name, &claim.metadata.namespace, &claim.metadata.uid);
        (&reference.name, &reference.namespace, &reference.uid) == wanted
    });
    if !is_same {
        let mut reference = claim.object_ref(&());
        reference.resource_version = claim.metadata.resource_version.clone();
        spec.claim_ref = Some(reference);
    }
    let is_new = !is_bound_to_claim(volume, claim) && !volume.annotations().contains_key(BOUND_BY_CONTROLLER);
    if is_new {
        changed.annotations_mut().insert(BOUND_BY_CONTROLLER.into(), "yes".into());
    }
    (!is_same || is_new).then_some(changed)
}

/// Returns the claim with the volume's name and the binding's annotations; `None` if it has them.
fn bound_claim(claim: &PersistentVolumeClaim, volume: &str) -> Option<PersistentVolumeClaim> {
    let is_named = volume_name(claim) == Some(volume);
    if is_named && claim.annotations().contains_key(BIND_COMPLETED) {
        return None;
    }
    let mut changed = claim.clone();
    if !is_named {
        changed.spec.get_or_insert_default().volume_name = Some(volume.to_owned());
        changed.annotations_mut().entry(BOUND_BY_CONTROLLER.into()).or_insert_with(|| "yes".into());
    }
    changed.annotations_mut().entry(BIND_COMPLETED.into()).or_insert_with(|| "yes".into());
    Some(changed)
}

/// Returns the status of a claim in `phase`, bound to `volume` if any. The capacity follows the volume only when the
/// claim enters the phase: afterwards the resizer writes it.
fn claim_status(
    current: &PersistentVolumeClaimStatus,
    phase: &str,
    volume: Option<&PersistentVolume>,
) -> PersistentVolumeClaimStatus {
    let mut status = current.clone();
    status.phase = Some(phase.to_owned());
    let Some(volume) = volume else {
        status.access_modes = None;
        status.capacity = None;
        status.current_volume_attributes_class_name = None;
        return status;
    };
    let Some(spec) = &volume.spec else { return status };
    status.access_modes = spec.access_modes.clone();
    let entered = current.phase.as_deref() != Some(phase);
    if let Some(capacity) = spec.capacity.as_ref().filter(|_| entered) {
        match volume.annotations().get(PRE_RESIZE_CAPACITY).filter(|text| Quantity::parse(text).is_some()) {
            Some(before) => {
                let before = k8s_openapi::apimachinery::pkg::api::resource::Quantity(before.clone());
                status.capacity.get_or_insert_default().insert("storage".into(), before);
            }
            None => status.capacity = Some(capacity.clone()),
        }
    }
    if current.phase.as_deref() == Some("Pending") && phase == "Bound" {
        status.current_volume_attributes_class_name = spec.volume_attributes_class_name.clone();
    }
    status
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(annotations: Value, volume: &str) -> PersistentVolumeClaim {
        serde_json::from_value(json!({"metadata": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "7",
            "annotations": annotations}, "spec": {"volumeName": volume}}))
        .unwrap()
    }

    fn volume(spec: Value) -> PersistentVolume {
        serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": spec})).unwrap()
    }

    #[test]
    fn binding_marks_what_the_controller_did() {
        let bound = bound_volume(&volume(json!({})), &claim(json!({}), "")).unwrap();
        assert_eq!(bound.annotations()[BOUND_BY_CONTROLLER], "yes");
        let reference = bound.spec.as_ref().unwrap().claim_ref.clone().unwrap();
        assert_eq!((reference.name.as_deref(), reference.uid.as_deref()), (Some("c"), Some("u")));
        assert_eq!(bound_volume(&bound, &claim(json!({}), "")), None);
        let reserved = volume(json!({"claimRef": {"name": "c", "namespace": "ns"}}));
        let bound = bound_volume(&reserved, &claim(json!({}), "")).unwrap();
        assert!(!bound.annotations().contains_key(BOUND_BY_CONTROLLER));

        let bound = bound_claim(&claim(json!({}), ""), "v").unwrap();
        assert_eq!(bound.annotations().len(), 2);
        assert_eq!(bound_claim(&bound, "v"), None);
        assert_eq!(bound_claim(&claim(json!({}), "v"), "v").unwrap().annotations().len(), 1);
    }

    #[test]
    fn capacity_follows_the_volume_when_the_claim_becomes_bound() {
        let big = volume(json!({"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"]}));
        let pending = PersistentVolumeClaimStatus { phase: Some("Pending".into()), ..Default::default() };
        let bound = claim_status(&pending, "Bound", Some(&big));
        assert_eq!(bound.capacity.as_ref().unwrap()["storage"].0, "5Gi");
        let bigger = volume(json!({"capacity": {"storage": "6Gi"}, "accessModes": ["ReadWriteOnce"]}));
        assert_eq!(claim_status(&bound, "Bound", Some(&bigger)), bound);
        assert_eq!(claim_status(&bound, "Lost", None).capacity, None);
    }
}
