//! Writes of a StatefulSet's pods and claims, with their events.

use std::sync::Arc;

use client::{ApiErrorExt, ConsistencyStore, EventRecorder, SharedInformer};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::StatefulSet,
        core::v1::{PersistentVolumeClaim, Pod},
    },
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, PostParams},
};

use super::{StatefulSetSyncError, identity, retention};
use crate::{
    conflict_retry::{ConflictRetry, DEFAULT_BACKOFF},
    object_key::ObjectKey,
    pod_view::PodView,
};

/// Creates, updates and deletes the pods of StatefulSets and their claims.
pub(super) struct StatefulPodWriter {
    pub(super) client: Client,
    pub(super) pods: SharedInformer<PodView>,
    pub(super) claims: SharedInformer<PersistentVolumeClaim>,
    pub(super) consistency: Arc<ConsistencyStore>,
    pub(super) recorder: EventRecorder,
}

/// An action on a pod or claim, as events name it.
#[derive(Clone, Copy)]
enum WriteVerb {
    Create,
    Update,
    Delete,
}

impl WriteVerb {
    fn name(self) -> &'static str {
        match self {
            WriteVerb::Create => "Create",
            WriteVerb::Update => "Update",
            WriteVerb::Delete => "Delete",
        }
    }
}

impl StatefulPodWriter {
    /// Creates a pod after its claims; `pod` is the view of the new one.
    pub(super) async fn create_pod(
        &self,
        set: &StatefulSet,
        pod: &PodView,
        new: &Pod,
    ) -> Result<(), StatefulSetSyncError> {
        if let Err(error) = self.create_claims(set, pod).await {
            self.record_pod_event(WriteVerb::Create, set, pod, Some(&error));
            return Err(error);
        }
        let failure = match self.api::<Pod>(set).create(&PostParams::default(), new).await {
            Ok(created) => {
                self.consistency.record_write(&ObjectKey::from_object(set).to_string(), &self.pods, &created.metadata);
                None
            }
            Err(error) if error.is_already_exists() => return Err(error.into()),
            Err(error) => Some(StatefulSetSyncError::Api(error)),
        };
        // The new pod has no uid here; a claim that it must own follows when it is scaled down.
        self.report_update_failure(set, pod, self.update_claim_owners(set, pod).await)?;
        self.record_pod_event(WriteVerb::Create, set, pod, failure.as_ref());
        failure.map_or(Ok(()), Err)
    }

    /// Restores the identity and the claims of a pod.
    pub(super) async fn update_pod(&self, set: &StatefulSet, pod: &PodView) -> Result<(), StatefulSetSyncError> {
        let (mut attempted, mut retry) = (false, ConflictRetry::new(DEFAULT_BACKOFF));
        let result = loop {
            let result = self.try_update_pod(set, pod, &mut attempted).await;
            let is_conflict = result.as_ref().is_err_and(StatefulSetSyncError::is_conflict);
            if !retry.wait_for_retry(is_conflict).await {
                break result;
            }
        };
        if attempted {
            self.record_pod_event(WriteVerb::Update, set, pod, result.as_ref().err());
        }
        result
    }

    /// Updates the pod as it is now: the view of it cannot be written.
    async fn try_update_pod(
        &self,
        set: &StatefulSet,
        pod: &PodView,
        attempted: &mut bool,
    ) -> Result<(), StatefulSetSyncError> {
        let identity_matches = identity::identity_matches(set, &pod.metadata);
        let storage_matches = identity::storage_matches(set, pod);
        if !storage_matches {
            self.report_update_failure(set, pod, self.create_claims(set, pod).await)?;
        }
        let owners_match = self.claim_owners_match(set, pod);
        if !owners_match {
            self.report_update_failure(set, pod, self.update_claim_owners(set, pod).await)?;
        }
        if identity_matches && storage_matches && owners_match {
            return Ok(());
        }
        *attempted = true;
        let api = self.api::<Pod>(set);
        let mut current = api.get(&pod.name_any()).await?;
        if !identity_matches {
            identity::update_identity(set, &mut current);
        }
        if !storage_matches {
            identity::update_storage(set, &mut current);
        }
        let updated = api.replace(&pod.name_any(), &PostParams::default(), &current).await?;
        self.consistency.record_write(&ObjectKey::from_object(set).to_string(), &self.pods, &updated.metadata);
        Ok(())
    }

    fn report_update_failure(
        &self,
        set: &StatefulSet,
        pod: &PodView,
        result: Result<(), StatefulSetSyncError>,
    ) -> Result<(), StatefulSetSyncError> {
        if let Err(error) = &result {
            self.record_pod_event(WriteVerb::Update, set, pod, Some(error));
        }
        result
    }

    /// Deletes a pod; one that is gone counts as deleted.
    pub(super) async fn delete_pod(&self, set: &StatefulSet, pod: &PodView) -> Result<(), StatefulSetSyncError> {
        let deleted = self.api::<Pod>(set).delete(&pod.name_any(), &DeleteParams::default()).await;
        let failure = deleted.err().filter(|error| !error.is_not_found()).map(StatefulSetSyncError::Api);
        self.record_pod_event(WriteVerb::Delete, set, pod, failure.as_ref());
        failure.map_or(Ok(()), Err)
    }

    /// Creates the missing claims of a pending pod.
    pub(super) async fn create_missing_claims(
        &self,
        set: &StatefulSet,
        pod: &PodView,
    ) -> Result<(), StatefulSetSyncError> {
        self.create_claims(set, pod).await?;
        self.report_update_failure(set, pod, self.update_claim_owners(set, pod).await)
    }

    /// Whether a claim of a pod that is to be created still belongs to an earlier pod of this name.
    pub(super) fn has_stale_claim(&self, set: &StatefulSet, pod: &PodView) -> bool {
        retention::deletes_when_scaled(set)
            && self.cached_claims(set, pod).iter().any(|claim| retention::has_stale_owner(claim, pod))
    }

    /// Whether the owners of the pod's claims follow the retention policy. Missing claims are created later.
    pub(super) fn claim_owners_match(&self, set: &StatefulSet, pod: &PodView) -> bool {
        self.cached_claims(set, pod).iter().all(|claim| retention::is_claim_up_to_date(claim, set, pod))
    }

    /// Updates the owners of the pod's claims according to the retention policy.
    pub(super) async fn update_claim_owners(
        &self,
        set: &StatefulSet,
        pod: &PodView,
    ) -> Result<(), StatefulSetSyncError> {
        for claim in self.cached_claims(set, pod) {
            let name = claim.name_any();
            if retention::has_unexpected_controller(&claim, set, pod) {
                // The misspelling is upstream's.
                let message = format!(
                    "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller, \
                     the retention policy is ignored for this claim"
                );
                self.recorder.record_warning(set.object_ref(&()), "ConflictingController", message);
            }
            if retention::is_claim_up_to_date(&claim, set, pod) {
                continue;
            }
            let mut update = (*claim).clone();
            retention::update_claim_owners(&mut update, set, pod);
            let updated = self.api::<PersistentVolumeClaim>(set).replace(&name, &PostParams::default(), &update).await;
            let updated = updated.map_err(|source| StatefulSetSyncError::ClaimOwners { name, source })?;
            self.consistency.record_write(&ObjectKey::from_object(set).to_string(), &self.claims, &updated.metadata);
        }
        Ok(())
    }

    /// Returns those of the pod's claims that exist.
    fn cached_claims(&self, set: &StatefulSet, pod: &PodView) -> Vec<Arc<PersistentVolumeClaim>> {
        let ordinal = identity::ordinal_of(&pod.metadata).unwrap_or(-1);
        let namespace = set.metadata.namespace.as_deref().unwrap_or("");
        let names = identity::claim_templates(set).iter().map(|template| identity::claim_name(set, template, ordinal));
        names.filter_map(|name| self.claims.get(namespace, &name)).collect()
    }

    /// Creates the pod's claims that do not exist; every one is tried.
    async fn create_claims(&self, set: &StatefulSet, pod: &PodView) -> Result<(), StatefulSetSyncError> {
        let ordinal = identity::ordinal_of(&pod.metadata).unwrap_or(-1);
        let namespace = set.metadata.namespace.as_deref().unwrap_or("");
        let mut failures = Vec::new();
        for claim in identity::claims_of(set, ordinal) {
            let name = claim.name_any();
            match self.claims.get(namespace, &name) {
                None => failures.extend(self.create_claim(set, pod, &claim).await.err()),
                Some(existing) if existing.metadata.deletion_timestamp.is_some() => {
                    failures.push(format!("pvc {name} is being deleted"));
                }
                Some(_) => {}
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(StatefulSetSyncError::Claims(failures)) }
    }

    async fn create_claim(
        &self,
        set: &StatefulSet,
        pod: &PodView,
        claim: &PersistentVolumeClaim,
    ) -> Result<(), String> {
        let (name, pod, set_name) = (claim.name_any(), pod.name_any(), set.name_any());
        match self.api::<PersistentVolumeClaim>(set).create(&PostParams::default(), claim).await {
            Ok(created) => {
                self.consistency.record_write(
                    &ObjectKey::from_object(set).to_string(),
                    &self.claims,
                    &created.metadata,
                );
                let message = format!("Create Claim {name} Pod {pod} in StatefulSet {set_name} success");
                self.recorder.record_normal(set.object_ref(&()), "SuccessfulCreate", message);
                Ok(())
            }
            Err(error) => {
                let reason = error.server_message();
                if !error.is_already_exists() {
                    let message =
                        format!("Create Claim {name} for Pod {pod} in StatefulSet {set_name} failed error: {reason}");
                    self.recorder.record_warning(set.object_ref(&()), "FailedCreate", message);
                }
                Err(format!("failed to create PVC {name}: {reason}"))
            }
        }
    }

    fn record_pod_event(
        &self,
        verb: WriteVerb,
        set: &StatefulSet,
        pod: &PodView,
        error: Option<&StatefulSetSyncError>,
    ) {
        let (verb, about) = (verb.name(), set.object_ref(&()));
        let subject = format!("{verb} Pod {} in StatefulSet {}", pod.name_any(), set.name_any());
        match error {
            None => {
                self.recorder.record_normal(about, &format!("Successful{verb}"), format!("{subject} successful"));
            }
            Some(error) => {
                let message = format!("{subject} failed error: {error}");
                self.recorder.record_warning(about, &format!("Failed{verb}"), message);
            }
        }
    }

    fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self, set: &StatefulSet) -> Api<K> {
        Api::namespaced(self.client.clone(), set.metadata.namespace.as_deref().unwrap_or(""))
    }
}
