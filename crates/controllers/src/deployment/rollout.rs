//! One sync of one Deployment: its ReplicaSets, what may be done with them, and the status that is written at the end.

use client::{ApiErrorExt, Requeue};
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
    Controller, Error, hash,
    limits::{new_size, replicas, total},
    revision, status,
};
use crate::ownership;

/// Names of objects are at most this long.
const NAME_LENGTH: usize = 253;

/// The state of a sync. Changes to the Deployment's status and revision collect in `deployment` until they are written.
pub(super) struct Rollout<'a> {
    pub(super) controller: &'a Controller,
    original: &'a Deployment,
    pub(super) deployment: Deployment,
    /// The ReplicaSet with the Deployment's template.
    pub(super) new: Option<ReplicaSet>,
    /// All others, oldest first.
    pub(super) old: Vec<ReplicaSet>,
    pub(super) now: Timestamp,
}

impl<'a> Rollout<'a> {
    pub(super) fn new(
        controller: &'a Controller,
        original: &'a Deployment,
        all: Vec<ReplicaSet>,
        now: Timestamp,
    ) -> Self {
        let (new, old) = revision::split(original, all);
        Self { controller, original, deployment: original.clone(), new, old, now }
    }

    /// Brings the new ReplicaSet's annotations and the Deployment's revision up to date, if there is a new one.
    pub(super) async fn sync_revision(&mut self) -> Result<(), Error> {
        let Some(new) = &self.new else { return Ok(()) };
        let mut update = new.clone();
        let mut changed = revision::annotate(&mut update, &self.deployment, revision::next(&self.old));
        let min_ready = self.deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
        if let Some(spec) = &mut update.spec
            && spec.min_ready_seconds.unwrap_or(0) != min_ready.unwrap_or(0)
        {
            spec.min_ready_seconds = min_ready;
            changed = true;
        }
        if changed {
            update = self.replica_sets().replace(&update.name_any(), &PostParams::default(), &update).await?;
        }
        self.set_revision(revision::of(&update.metadata));
        if status::lacks_progress(&self.deployment) {
            let message = format!("Found new replica set {:?}", update.name_any());
            status::note_progress(&mut self.deployment, "True", "FoundNewReplicaSet", &message, self.now);
        }
        self.new = Some(update);
        Ok(())
    }

    fn set_revision(&mut self, revision: i64) {
        let annotations = self.deployment.metadata.annotations.get_or_insert_default();
        annotations.insert(revision::REVISION.into(), revision.to_string());
    }

    /// Creates the new ReplicaSet if there is none.
    pub(super) async fn ensure_new(&mut self) -> Result<(), Error> {
        if self.new.is_some() {
            return Ok(());
        }
        let revision = revision::next(&self.old);
        let wanted = self.describe_new(revision)?;
        let (name, size) = (wanted.name_any(), replicas(&wanted));
        match self.replica_sets().create(&PostParams::default(), &wanted).await {
            Ok(created) => {
                if size > 0 {
                    self.tell_scaling(&name, 0, size);
                }
                let message = format!("Created new replica set {name:?}");
                status::note_progress(&mut self.deployment, "True", "NewReplicaSetCreated", &message, self.now);
                self.new = Some(created);
            }
            Err(error) if error.is_already_exists() => self.new = Some(self.take_existing(&name).await?),
            Err(error) if error.is_namespace_terminating() => return Err(Error::Api(error)),
            Err(error) => return Err(self.creation_failed(&name, error).await),
        }
        self.set_revision(revision);
        Ok(())
    }

    /// The new ReplicaSet as it should be: its name is made from the template, so that making it twice makes one.
    fn describe_new(&self, revision: i64) -> Result<ReplicaSet, Error> {
        let spec = self.deployment.spec.as_ref().ok_or(Error::NoSpec)?;
        let collisions = self.deployment.status.as_ref().and_then(|status| status.collision_count);
        let hash = hash::of(&spec.template, collisions)?;
        let mut template = spec.template.clone();
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        labels.insert(revision::HASH_LABEL.into(), hash.clone());
        let labels = labels.clone();
        let mut selector = spec.selector.clone();
        selector.match_labels.get_or_insert_default().insert(revision::HASH_LABEL.into(), hash.clone());
        let mut name = self.deployment.name_any();
        name.truncate(NAME_LENGTH - 1 - hash.len());
        let metadata = ObjectMeta {
            name: Some(format!("{name}-{hash}")),
            namespace: self.deployment.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: Some(vec![ownership::controller_reference(&self.deployment)]),
            ..Default::default()
        };
        let replicas = Some(new_size(&self.deployment, 0, total(&self.old)));
        let spec =
            ReplicaSetSpec { replicas, min_ready_seconds: spec.min_ready_seconds, selector, template: Some(template) };
        let mut new = ReplicaSet { metadata, spec: Some(spec), status: None };
        revision::annotate(&mut new, &self.deployment, revision);
        revision::note_size(&mut new, &self.deployment);
        Ok(new)
    }

    /// The ReplicaSet that has the name already: ours, which the cache does not show yet, or a collision of hashes.
    async fn take_existing(&mut self, name: &str) -> Result<ReplicaSet, Error> {
        let existing = self.replica_sets().get(name).await?;
        let controller = ownership::controller_of(&existing.metadata).map(|controller| &controller.uid);
        let template = existing.spec.as_ref().and_then(|spec| spec.template.as_ref());
        let wanted = self.deployment.spec.as_ref().map(|spec| &spec.template);
        let same = wanted.zip(template).is_some_and(|(a, b)| revision::same_template(a, b));
        if same && controller == self.deployment.metadata.uid.as_ref() {
            return Ok(existing);
        }
        let collisions = self.deployment.status.get_or_insert_default().collision_count.get_or_insert(0);
        *collisions += 1;
        let status = self.deployment.status.clone().unwrap_or_default();
        self.write(status).await?;
        Err(Error::Collision(name.into()))
    }

    async fn creation_failed(&mut self, name: &str, error: kube::Error) -> Error {
        let message = format!("Failed to create new replica set {name:?}: {}", error.reply());
        self.controller.recorder.warning(self.deployment.object_ref(&()), "ReplicaSetCreateError", message.clone());
        status::note_progress(&mut self.deployment, "False", "ReplicaSetCreateError", &message, self.now);
        let status = self.deployment.status.clone().unwrap_or_default();
        if let Err(error) = self.write(status).await {
            tracing::debug!(name, %error, "the failure could not be noted in the status");
        }
        Error::Api(error)
    }

    /// Gives the new ReplicaSet a size; says whether that changed it.
    pub(super) async fn scale_new(&mut self, size: i32) -> Result<bool, Error> {
        let Some(new) = &self.new else { return Ok(false) };
        let (scaled, new) = self.scale(new, size, false).await?;
        self.new = Some(new);
        Ok(scaled)
    }

    /// As [`Rollout::scale_new`], and notes the Deployment's size in it even if its own stays.
    pub(super) async fn scale_new_forced(&mut self, size: i32) -> Result<(), Error> {
        let Some(new) = &self.new else { return Ok(()) };
        self.new = Some(self.scale(new, size, true).await?.1);
        Ok(())
    }

    /// Gives an old ReplicaSet a size; `force` notes the Deployment's size in it even if its own stays.
    pub(super) async fn scale_old(&mut self, index: usize, size: i32, force: bool) -> Result<bool, Error> {
        let (scaled, updated) = self.scale(&self.old[index], size, force).await?;
        self.old[index] = updated;
        Ok(scaled)
    }

    async fn scale(&self, replica_set: &ReplicaSet, size: i32, force: bool) -> Result<(bool, ReplicaSet), Error> {
        let before = replicas(replica_set);
        let mut update = replica_set.clone();
        let renoted = (force || before != size) && revision::note_size(&mut update, &self.deployment);
        if before == size && !renoted {
            return Ok((false, update));
        }
        if let Some(spec) = &mut update.spec {
            spec.replicas = Some(size);
        }
        let name = update.name_any();
        let updated = self.replica_sets().replace(&name, &PostParams::default(), &update).await?;
        if before != size {
            self.tell_scaling(&name, before, size);
        }
        Ok((before != size, updated))
    }

    fn tell_scaling(&self, name: &str, from: i32, to: i32) {
        let direction = if from < to { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {name} from {from} to {to}");
        self.controller.recorder.normal(self.deployment.object_ref(&()), "ScalingReplicaSet", message);
    }

    pub(super) async fn clean_up_if_complete(&self) -> Result<(), Error> {
        match status::is_complete(&self.deployment, self.deployment.status.as_ref()) {
            true => self.clean_up().await,
            false => Ok(()),
        }
    }

    /// Deletes the oldest empty ReplicaSets above the history limit.
    pub(super) async fn clean_up(&self) -> Result<(), Error> {
        let limit = self.deployment.spec.as_ref().and_then(|spec| spec.revision_history_limit);
        let Some(limit) = limit.filter(|limit| *limit != i32::MAX).and_then(|limit| usize::try_from(limit).ok()) else {
            return Ok(());
        };
        let mut alive: Vec<_> = self.old.iter().filter(|rs| rs.metadata.deletion_timestamp.is_none()).collect();
        alive.sort_by(|a, b| {
            revision::of(&a.metadata).cmp(&revision::of(&b.metadata)).then_with(|| revision::oldest_first(a, b))
        });
        for replica_set in alive.iter().take(alive.len().saturating_sub(limit)).filter(|rs| is_empty(rs)) {
            match self.replica_sets().delete(&replica_set.name_any(), &DeleteParams::default()).await {
                Err(error) if !error.is_not_found() => return Err(Error::Api(error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the status; `rolling` says whether the rollout's progress is judged too. Says when to look again.
    pub(super) async fn finish(mut self, rolling: bool) -> Result<Requeue, Error> {
        let mut status = status::calculate(&self.deployment, &self.old, self.new.as_ref(), self.now);
        if rolling {
            status::progress(&self.deployment, self.new.as_ref(), &mut status, self.now);
            status::failures(&self.old, self.new.as_ref(), &mut status);
        }
        let next = if rolling { status::next_check(&self.deployment, &status, self.now) } else { None };
        self.write(status).await?;
        Ok(next.map_or(Requeue::No, Requeue::After))
    }

    /// Writes status and revision if they say something new.
    async fn write(&mut self, status: DeploymentStatus) -> Result<(), Error> {
        let revision = |deployment: &Deployment| deployment.annotations().get(revision::REVISION).cloned();
        let same_status = self.original.status.as_ref().is_some_and(|old| status::same(old, &status));
        if same_status && revision(self.original) == revision(&self.deployment) {
            return Ok(());
        }
        self.deployment.status = Some(status);
        let name = self.deployment.name_any();
        let api: Api<Deployment> = self.controller.namespaced(&self.deployment.metadata);
        let written = api.replace_status(&name, &PostParams::default(), &self.deployment).await?;
        // Upstream's server takes annotations along with the status; one that does not is told separately.
        if revision(&written) != revision(&self.deployment) {
            let mut whole = written;
            whole
                .annotations_mut()
                .extend(revision(&self.deployment).map(|text| (revision::REVISION.to_owned(), text)));
            api.replace(&name, &PostParams::default(), &whole).await?;
        }
        Ok(())
    }

    fn replica_sets(&self) -> Api<ReplicaSet> {
        self.controller.namespaced(&self.deployment.metadata)
    }
}

/// Nothing runs in it, and its controller has seen that nothing should.
fn is_empty(replica_set: &ReplicaSet) -> bool {
    let observed = replica_set.status.as_ref().and_then(|status| status.observed_generation);
    status::actual(replica_set) == 0 && replicas(replica_set) == 0 && observed >= replica_set.metadata.generation
}
