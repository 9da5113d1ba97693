//! State and operations of one Deployment sync.

use client::{ApiErrorExt, RequeueAction};
use jiff::Timestamp;
use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet, ReplicaSetSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, PostParams},
};

use super::{
    DeploymentController, DeploymentSyncError,
    limits::{new_replica_set_size, spec_replicas, total_replicas},
    revision, status,
};
use crate::{controller_ref, hash};

/// Maximum length of an object name.
const MAX_NAME_LENGTH: usize = 253;

/// The state of a sync. Changes to status and revision accumulate in `deployment` until they are written.
pub(super) struct DeploymentRollout<'a> {
    pub(super) controller: &'a DeploymentController,
    original: &'a Deployment,
    pub(super) deployment: Deployment,
    /// The ReplicaSet with the Deployment's template.
    pub(super) new: Option<ReplicaSet>,
    /// All others, oldest first.
    pub(super) old: Vec<ReplicaSet>,
    pub(super) now: Timestamp,
}

impl<'a> DeploymentRollout<'a> {
    pub(super) fn new(
        controller: &'a DeploymentController,
        original: &'a Deployment,
        all: Vec<ReplicaSet>,
        now: Timestamp,
    ) -> Self {
        let (new, old) = revision::split_replica_sets(original, all);
        Self { controller, original, deployment: original.clone(), new, old, now }
    }

    /// Updates the new ReplicaSet's annotations and the Deployment's revision.
    pub(super) async fn sync_revision(&mut self) -> Result<(), DeploymentSyncError> {
        let Some(new) = &self.new else { return Ok(()) };
        let mut update = new.clone();
        let mut changed =
            revision::set_replica_set_annotations(&mut update, &self.deployment, revision::next_revision(&self.old));
        let min_ready = self.deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
        if let Some(spec) = &mut update.spec
            && spec.min_ready_seconds.unwrap_or(0) != min_ready.unwrap_or(0)
        {
            spec.min_ready_seconds = min_ready;
            changed = true;
        }
        if changed {
            update = self.replica_set_api().replace(&update.name_any(), &PostParams::default(), &update).await?;
        }
        self.set_revision(revision::revision_of(&update.metadata));
        if status::lacks_progressing_condition(&self.deployment) {
            let message = format!("Found new replica set {:?}", update.name_any());
            status::set_progressing_condition(&mut self.deployment, "True", "FoundNewReplicaSet", &message, self.now);
        }
        self.new = Some(update);
        Ok(())
    }

    fn set_revision(&mut self, revision: i64) {
        let annotations = self.deployment.metadata.annotations.get_or_insert_default();
        annotations.insert(revision::REVISION_ANNOTATION.into(), revision.to_string());
    }

    /// Creates the new ReplicaSet if it does not exist.
    pub(super) async fn ensure_new_replica_set(&mut self) -> Result<(), DeploymentSyncError> {
        if self.new.is_some() {
            return Ok(());
        }
        let revision = revision::next_revision(&self.old);
        let desired = self.build_new_replica_set(revision)?;
        let (name, size) = (desired.name_any(), spec_replicas(&desired));
        match self.replica_set_api().create(&PostParams::default(), &desired).await {
            Ok(created) => {
                if size > 0 {
                    self.record_scaling_event(&name, 0, size);
                }
                let message = format!("Created new replica set {name:?}");
                status::set_progressing_condition(
                    &mut self.deployment,
                    "True",
                    "NewReplicaSetCreated",
                    &message,
                    self.now,
                );
                self.new = Some(created);
            }
            Err(error) if error.is_already_exists() => self.new = Some(self.resolve_name_conflict(&name).await?),
            Err(error) if error.is_namespace_terminating() => return Err(DeploymentSyncError::Api(error)),
            Err(error) => return Err(self.report_create_failure(&name, error).await),
        }
        self.set_revision(revision);
        Ok(())
    }

    /// Builds the new ReplicaSet; its name derives from the template, so that creating it is idempotent.
    fn build_new_replica_set(&self, revision: i64) -> Result<ReplicaSet, DeploymentSyncError> {
        let spec = self.deployment.spec.as_ref().ok_or(DeploymentSyncError::NoSpec)?;
        let collisions = self.deployment.status.as_ref().and_then(|status| status.collision_count);
        let hash = hash::compute_hash(&spec.template, collisions)?;
        let mut template = spec.template.clone();
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        labels.insert(revision::HASH_LABEL.into(), hash.clone());
        let labels = labels.clone();
        let mut selector = spec.selector.clone();
        selector.match_labels.get_or_insert_default().insert(revision::HASH_LABEL.into(), hash.clone());
        let mut name = self.deployment.name_any();
        name.truncate(MAX_NAME_LENGTH - 1 - hash.len());
        let metadata = ObjectMeta {
            name: Some(format!("{name}-{hash}")),
            namespace: self.deployment.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: Some(vec![controller_ref::new_controller_ref(&self.deployment)]),
            ..Default::default()
        };
        let replicas = Some(new_replica_set_size(&self.deployment, 0, total_replicas(&self.old)));
        let spec =
            ReplicaSetSpec { replicas, min_ready_seconds: spec.min_ready_seconds, selector, template: Some(template) };
        let mut new = ReplicaSet { metadata, spec: Some(spec), status: None };
        revision::set_replica_set_annotations(&mut new, &self.deployment, revision);
        revision::set_replicas_annotations(&mut new, &self.deployment);
        Ok(new)
    }

    /// Returns the existing ReplicaSet if it is this Deployment's own, which the cache lacks; otherwise counts a hash
    /// collision.
    async fn resolve_name_conflict(&mut self, name: &str) -> Result<ReplicaSet, DeploymentSyncError> {
        let existing = self.replica_set_api().get(name).await?;
        let controller = controller_ref::controller_of(&existing.metadata).map(|controller| &controller.uid);
        let template = existing.spec.as_ref().and_then(|spec| spec.template.as_ref());
        let desired = self.deployment.spec.as_ref().map(|spec| &spec.template);
        let same = desired.zip(template).is_some_and(|(a, b)| revision::is_same_template(a, b));
        if same && controller == self.deployment.metadata.uid.as_ref() {
            return Ok(existing);
        }
        let collisions = self.deployment.status.get_or_insert_default().collision_count.get_or_insert(0);
        *collisions += 1;
        let status = self.deployment.status.clone().unwrap_or_default();
        self.write_status(status).await?;
        Err(DeploymentSyncError::Collision(name.into()))
    }

    async fn report_create_failure(&mut self, name: &str, error: kube::Error) -> DeploymentSyncError {
        let message = format!("Failed to create new replica set {name:?}: {}", error.server_message());
        self.controller.recorder.record_warning(
            self.deployment.object_ref(&()),
            "ReplicaSetCreateError",
            message.clone(),
        );
        status::set_progressing_condition(&mut self.deployment, "False", "ReplicaSetCreateError", &message, self.now);
        let status = self.deployment.status.clone().unwrap_or_default();
        if let Err(error) = self.write_status(status).await {
            tracing::debug!(name, %error, "deployment controller: failure not written to status");
        }
        DeploymentSyncError::Api(error)
    }

    /// Scales the new ReplicaSet; returns whether its size changed.
    pub(super) async fn scale_new_replica_set(&mut self, size: i32) -> Result<bool, DeploymentSyncError> {
        let Some(new) = &self.new else { return Ok(false) };
        let (scaled, new) = self.scale_replica_set(new, size, false).await?;
        self.new = Some(new);
        Ok(scaled)
    }

    /// Scales the new ReplicaSet and updates its size annotations even if its size is unchanged.
    pub(super) async fn rescale_new_replica_set(&mut self, size: i32) -> Result<(), DeploymentSyncError> {
        let Some(new) = &self.new else { return Ok(()) };
        self.new = Some(self.scale_replica_set(new, size, true).await?.1);
        Ok(())
    }

    /// Scales an old ReplicaSet; `force` updates its size annotations even if its size is unchanged.
    pub(super) async fn scale_old_replica_set(
        &mut self,
        index: usize,
        size: i32,
        force: bool,
    ) -> Result<bool, DeploymentSyncError> {
        let (scaled, updated) = self.scale_replica_set(&self.old[index], size, force).await?;
        self.old[index] = updated;
        Ok(scaled)
    }

    async fn scale_replica_set(
        &self,
        replica_set: &ReplicaSet,
        size: i32,
        force: bool,
    ) -> Result<(bool, ReplicaSet), DeploymentSyncError> {
        let before = spec_replicas(replica_set);
        let mut update = replica_set.clone();
        let renoted = (force || before != size) && revision::set_replicas_annotations(&mut update, &self.deployment);
        if before == size && !renoted {
            return Ok((false, update));
        }
        if let Some(spec) = &mut update.spec {
            spec.replicas = Some(size);
        }
        let name = update.name_any();
        let updated = self.replica_set_api().replace(&name, &PostParams::default(), &update).await?;
        if before != size {
            self.record_scaling_event(&name, before, size);
        }
        Ok((before != size, updated))
    }

    fn record_scaling_event(&self, name: &str, from: i32, to: i32) {
        let direction = if from < to { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {name} from {from} to {to}");
        self.controller.recorder.record_normal(self.deployment.object_ref(&()), "ScalingReplicaSet", message);
    }

    pub(super) async fn cleanup_if_complete(&self) -> Result<(), DeploymentSyncError> {
        match status::is_complete(&self.deployment, self.deployment.status.as_ref()) {
            true => self.cleanup_deployment().await,
            false => Ok(()),
        }
    }

    /// Deletes the oldest empty ReplicaSets above the revision history limit.
    pub(super) async fn cleanup_deployment(&self) -> Result<(), DeploymentSyncError> {
        let limit = self.deployment.spec.as_ref().and_then(|spec| spec.revision_history_limit);
        let Some(limit) = limit.filter(|limit| *limit != i32::MAX).and_then(|limit| usize::try_from(limit).ok()) else {
            return Ok(());
        };
        let mut alive: Vec<_> = self.old.iter().filter(|rs| rs.metadata.deletion_timestamp.is_none()).collect();
        alive.sort_by(|a, b| {
            revision::revision_of(&a.metadata)
                .cmp(&revision::revision_of(&b.metadata))
                .then_with(|| revision::compare_by_age(a, b))
        });
        for replica_set in alive.iter().take(alive.len().saturating_sub(limit)).filter(|rs| is_scaled_to_zero(rs)) {
            match self.replica_set_api().delete(&replica_set.name_any(), &DeleteParams::default()).await {
                Err(error) if !error.is_not_found() => return Err(DeploymentSyncError::Api(error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the status, with progress if `rolling`; returns when to check again.
    pub(super) async fn finish_sync(mut self, rolling: bool) -> Result<RequeueAction, DeploymentSyncError> {
        let mut status = status::calculate_status(&self.deployment, &self.old, self.new.as_ref(), self.now);
        if rolling {
            status::update_progress_condition(&self.deployment, self.new.as_ref(), &mut status, self.now);
            status::update_failure_condition(&self.old, self.new.as_ref(), &mut status);
        }
        let next = if rolling { status::next_progress_check(&self.deployment, &status, self.now) } else { None };
        self.write_status(status).await?;
        Ok(next.map_or(RequeueAction::AwaitChange, RequeueAction::After))
    }

    /// Writes status and revision if they changed.
    async fn write_status(&mut self, status: DeploymentStatus) -> Result<(), DeploymentSyncError> {
        let revision = |deployment: &Deployment| deployment.annotations().get(revision::REVISION_ANNOTATION).cloned();
        let same_status = self.original.status.as_ref().is_some_and(|old| status::is_same_status(old, &status));
        if same_status && revision(self.original) == revision(&self.deployment) {
            return Ok(());
        }
        self.deployment.status = Some(status);
        let name = self.deployment.name_any();
        let api: Api<Deployment> = self.controller.namespaced_api(&self.deployment.metadata);
        let written = api.replace_status(&name, &PostParams::default(), &self.deployment).await?;
        // Upstream's status strategy keeps annotations; a server that drops them gets a second write.
        if revision(&written) != revision(&self.deployment) {
            let mut whole = written;
            whole
                .annotations_mut()
                .extend(revision(&self.deployment).map(|text| (revision::REVISION_ANNOTATION.to_owned(), text)));
            api.replace(&name, &PostParams::default(), &whole).await?;
        }
        Ok(())
    }

    fn replica_set_api(&self) -> Api<ReplicaSet> {
        self.controller.namespaced_api(&self.deployment.metadata)
    }
}

/// Whether no pod runs and the ReplicaSet's controller has observed its size of zero.
fn is_scaled_to_zero(replica_set: &ReplicaSet) -> bool {
    let observed = replica_set.status.as_ref().and_then(|status| status.observed_generation);
    status::actual_replicas(replica_set) == 0
        && spec_replicas(replica_set) == 0
        && observed >= replica_set.metadata.generation
}
