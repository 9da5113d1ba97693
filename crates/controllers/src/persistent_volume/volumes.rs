//! Sync of PersistentVolumes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeStatus};
use kube::{Api, Resource, ResourceExt, api::PostParams};

use super::{
    BinderKey, PersistentVolumeBinder,
    matching::{BOUND_BY_CONTROLLER, PROVISIONED_BY, reclaim_policy, volume_modes_match, volume_phase},
    reclaim, volume_name,
};
use crate::pod_claims::claim_ref_key;

impl PersistentVolumeBinder {
    /// Moves a volume towards the phase of its binding; returns whether it waits for nothing but events.
    pub(super) async fn sync_volume(&self, volume: Arc<PersistentVolume>) -> Result<bool, kube::Error> {
        let volume = match reclaim::with_deletion_finalizers(&volume) {
            Some(changed) => self.update_volume(changed).await?,
            None => volume,
        };
        let reserved_for = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        if reserved_for.is_none_or(|claim| claim.uid.as_deref().unwrap_or("").is_empty()) {
            self.update_volume_phase(volume, "Available", "").await?;
            return Ok(true);
        }
        let Some(claim) = self.claim_of_volume(&volume).await? else { return self.release_volume(volume).await };
        match volume_name(&claim) {
            None => {
                self.request_binding(&volume, &claim);
                Ok(true)
            }
            Some(name) if name == volume.name_any() => {
                self.update_volume_phase(volume, "Bound", "").await?;
                Ok(true)
            }
            Some(_) if volume.annotations().contains_key(PROVISIONED_BY) && reclaim_policy(&volume) == "Delete" => {
                self.release_volume(volume).await
            }
            Some(_) => {
                self.unbind_volume(&volume).await?;
                Ok(true)
            }
        }
    }

    /// Returns the claim that the volume refers to, if it exists with the same uid. A cached claim that does not fit is
    /// read again from the server, so that no volume is reclaimed because of an old cache.
    async fn claim_of_volume(
        &self,
        volume: &PersistentVolume,
    ) -> Result<Option<Arc<PersistentVolumeClaim>>, kube::Error> {
        let Some(key) = claim_ref_key(volume) else { return Ok(None) };
        let uid = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.as_ref());
        let has_uid = |claim: &PersistentVolumeClaim| claim.metadata.uid.as_ref() == uid;
        match self.claims.get(&key) {
            Some(claim) if has_uid(&claim) => Ok(Some(claim)),
            None if matches!(volume_phase(volume), "Released" | "Failed") => Ok(None),
            _ => Ok(self.read_claim(&key).await?.filter(has_uid).map(Arc::new)),
        }
    }

    /// Marks a volume whose claim is gone as released, and reclaims it.
    async fn release_volume(&self, volume: Arc<PersistentVolume>) -> Result<bool, kube::Error> {
        let volume = match volume_phase(&volume) {
            "Released" | "Failed" => volume,
            _ => self.update_volume_phase(volume, "Released", "").await?,
        };
        self.reclaim_volume(volume).await
    }

    /// Lets the sync of the claim complete a binding that began with the volume.
    fn request_binding(&self, volume: &PersistentVolume, claim: &PersistentVolumeClaim) {
        if volume_modes_match(claim, volume) {
            claim_ref_key(volume).into_iter().for_each(|key| self.queue.add(BinderKey::Claim(key)));
            return;
        }
        let to_volume = format!(
            "Cannot bind PersistentVolume to requested PersistentVolumeClaim {:?} due to incompatible volumeMode.",
            claim.name_any()
        );
        self.recorder.record_warning(volume.object_ref(&()), "VolumeMismatch", to_volume);
        let to_claim = format!(
            "Cannot bind PersistentVolume {:?} to requested PersistentVolumeClaim due to incompatible volumeMode.",
            volume.name_any()
        );
        self.recorder.record_warning(claim.object_ref(&()), "VolumeMismatch", to_claim);
    }

    /// Undoes a binding: removes the reference that the controller wrote, or the uid in one of the user's.
    pub(super) async fn unbind_volume(&self, volume: &PersistentVolume) -> Result<(), kube::Error> {
        let mut changed = volume.clone();
        let was_ours = changed.annotations_mut().remove(BOUND_BY_CONTROLLER).is_some();
        let spec = changed.spec.get_or_insert_default();
        match &mut spec.claim_ref {
            Some(reference) if !was_ours => reference.uid = None,
            reference => *reference = None,
        }
        let written = self.update_volume(changed).await?;
        self.update_volume_phase(written, "Available", "").await?;
        Ok(())
    }

    pub(super) async fn update_volume_phase(
        &self,
        volume: Arc<PersistentVolume>,
        phase: &str,
        message: &str,
    ) -> Result<Arc<PersistentVolume>, kube::Error> {
        if volume_phase(&volume) == phase {
            return Ok(volume);
        }
        let status = PersistentVolumeStatus {
            phase: Some(phase.to_owned()),
            message: Some(message.to_owned()).filter(|message| !message.is_empty()),
            ..volume.status.clone().unwrap_or_default()
        };
        let changed = PersistentVolume { status: Some(status), ..(*volume).clone() };
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        let written = api.replace_status(&volume.name_any(), &PostParams::default(), &changed).await?;
        Ok(self.volumes.record(written))
    }
}
