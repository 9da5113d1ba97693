//! The history of a DaemonSet's template.

use std::{collections::HashSet, sync::Arc};

use client::{ApiErrorExt, SharedInformer};
use k8s_openapi::{
    api::apps::v1::{ControllerRevision, DaemonSet},
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, runtime::RawExtension},
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    core::Selector,
};
use serde_json::{Value, json};

use super::{
    sync_error::DaemonSetSyncError,
    template::{REVISION_LABEL, pod_label},
};
use crate::{
    controller_history::{RevisionHistory, revision_data, template_patch},
    controller_ref,
    hash::compute_hash,
    pod_view::PodView,
};

/// The revision of a set's template and the older ones.
pub(super) struct DaemonSetRevisions {
    /// The hash of the current revision, which labels its pods.
    pub(super) hash: String,
    /// The other revisions.
    pub(super) old: Vec<Arc<ControllerRevision>>,
}

/// Syncs the revisions of DaemonSets.
pub(super) struct DaemonSetHistory {
    pub(super) history: RevisionHistory,
    pub(super) pods: SharedInformer<PodView>,
}

fn hash_of(meta: &ObjectMeta) -> &str {
    meta.labels.as_ref().and_then(|labels| labels.get(REVISION_LABEL)).map_or("", String::as_str)
}

fn max_revision(revisions: &[Arc<ControllerRevision>]) -> i64 {
    revisions.iter().map(|revision| revision.revision).max().unwrap_or(0).max(0)
}

/// Returns the revision to keep of several with the current template: the last of those with the highest number.
fn revision_to_keep(current: &[Arc<ControllerRevision>]) -> Option<&Arc<ControllerRevision>> {
    current.iter().max_by_key(|revision| revision.revision)
}

/// Returns the oldest revisions above `limit` that no pod uses.
fn revisions_to_delete(
    mut old: Vec<Arc<ControllerRevision>>,
    pods: &[Arc<PodView>],
    limit: usize,
) -> Vec<Arc<ControllerRevision>> {
    let excess = old.len().saturating_sub(limit);
    let live: HashSet<&str> = pods.iter().filter_map(|pod| pod_label(pod, REVISION_LABEL)).collect();
    old.sort_by_key(|revision| revision.revision);
    old.retain(|revision| !live.contains(hash_of(&revision.metadata)));
    old.truncate(excess);
    old
}

impl DaemonSetHistory {
    /// Claims the revisions of a set, and creates or renumbers the current one if necessary.
    pub(super) async fn sync_revisions(
        &self,
        set: &DaemonSet,
        selector: &Selector,
    ) -> Result<DaemonSetRevisions, DaemonSetSyncError> {
        let template = &set.spec.as_ref().ok_or(DaemonSetSyncError::NoSpec)?.template;
        let patch = template_patch(template)?;
        let candidates = controller_ref::claim_candidates(&self.history.revisions, &set.metadata);
        let claimed = controller_ref::claim_objects(&self.history.client, set, selector, candidates).await?;
        let (mut current, mut old) = (Vec::new(), Vec::new());
        for revision in claimed {
            let revision = self.ensure_hash_label(revision).await?;
            if revision_data(&revision) == Some(&patch) { &mut current } else { &mut old }.push(revision);
        }
        let number = max_revision(&old) + 1;
        let hash = match revision_to_keep(&current).cloned() {
            None => self.create_revision(set, patch, number).await?,
            Some(kept) => {
                self.delete_duplicates(set, selector, &kept, &current).await?;
                if kept.revision < number {
                    let update = ControllerRevision { revision: number, ..(*kept).clone() };
                    let api = self.history.api(&set.metadata);
                    api.replace(&update.name_any(), &PostParams::default(), &update).await?;
                }
                hash_of(&kept.metadata).to_owned()
            }
        };
        Ok(DaemonSetRevisions { hash, old })
    }

    /// Labels a revision that has no hash with its name.
    async fn ensure_hash_label(
        &self,
        revision: Arc<ControllerRevision>,
    ) -> Result<Arc<ControllerRevision>, kube::Error> {
        if !hash_of(&revision.metadata).is_empty() {
            return Ok(revision);
        }
        let (name, mut update) = (revision.name_any(), (*revision).clone());
        update.labels_mut().insert(REVISION_LABEL.into(), name.clone());
        let api = self.history.api(&revision.metadata);
        api.replace(&name, &PostParams::default(), &update).await.map(Arc::new)
    }

    /// Creates the current revision and returns its hash.
    async fn create_revision(&self, set: &DaemonSet, patch: Value, number: i64) -> Result<String, DaemonSetSyncError> {
        let template = &set.spec.as_ref().ok_or(DaemonSetSyncError::NoSpec)?.template;
        let collisions = set.status.as_ref().and_then(|status| status.collision_count);
        let hash = compute_hash(template, collisions)?;
        let mut labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
        labels.insert(REVISION_LABEL.into(), hash.clone());
        let name = format!("{}-{hash}", set.name_any());
        let metadata = ObjectMeta {
            name: Some(name.clone()),
            namespace: set.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: set.metadata.annotations.clone(),
            owner_references: Some(vec![controller_ref::new_controller_ref(set)]),
            ..Default::default()
        };
        let revision = ControllerRevision { metadata, data: Some(RawExtension(patch)), revision: number };
        let api = self.history.api(&set.metadata);
        match api.create(&PostParams::default(), &revision).await {
            Ok(created) => Ok(hash_of(&created.metadata).to_owned()),
            Err(error) if error.is_already_exists() => {
                let existing = api.get(&name).await?;
                if revision_data(&existing) == revision_data(&revision) {
                    return Ok(hash_of(&existing.metadata).to_owned());
                }
                self.count_collision(set, collisions).await?;
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Raises `status.collisionCount`, unless the cached one is stale.
    async fn count_collision(&self, set: &DaemonSet, collisions: Option<i32>) -> Result<(), DaemonSetSyncError> {
        let namespace = set.metadata.namespace.as_deref().unwrap_or("");
        let api: Api<DaemonSet> = Api::namespaced(self.history.client.clone(), namespace);
        let mut live = api.get(&set.name_any()).await?;
        let status = live.status.get_or_insert_default();
        if status.collision_count != collisions {
            return Err(DaemonSetSyncError::StaleCollisionCount);
        }
        status.collision_count = Some(collisions.unwrap_or(0) + 1);
        api.replace_status(&set.name_any(), &PostParams::default(), &live).await?;
        Ok(())
    }

    /// Moves the pods of duplicates of the current revision to the kept one and deletes the duplicates.
    async fn delete_duplicates(
        &self,
        set: &DaemonSet,
        selector: &Selector,
        kept: &ControllerRevision,
        current: &[Arc<ControllerRevision>],
    ) -> Result<(), kube::Error> {
        if current.len() < 2 {
            return Ok(());
        }
        let (client, hash) = (&self.history.client, hash_of(&kept.metadata));
        let api: Api<PodView> = Api::namespaced(client.clone(), set.metadata.namespace.as_deref().unwrap_or(""));
        let pods = controller_ref::claim_candidates(&self.pods, &set.metadata);
        for pod in controller_ref::claim_objects(client, set, selector, pods).await? {
            if pod_label(&pod, REVISION_LABEL) != Some(hash) {
                let patch = json!({"metadata": {"labels": {REVISION_LABEL: hash}}});
                api.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
            }
        }
        for duplicate in current.iter().filter(|revision| revision.metadata.name != kept.metadata.name) {
            self.history.delete(duplicate).await?;
        }
        Ok(())
    }

    /// Deletes the oldest revisions above `spec.revisionHistoryLimit` that no pod uses.
    pub(super) async fn cleanup_history(
        &self,
        set: &DaemonSet,
        old: Vec<Arc<ControllerRevision>>,
        pods: &[Arc<PodView>],
    ) -> Result<(), kube::Error> {
        let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
        for revision in revisions_to_delete(old, pods, usize::try_from(limit).unwrap_or(0)) {
            self.history.delete(&revision).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(name: &str, number: i64) -> Arc<ControllerRevision> {
        let labels = json!({REVISION_LABEL: name});
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "revision": number})).unwrap(),
        )
    }

    fn names(revisions: &[Arc<ControllerRevision>]) -> Vec<String> {
        revisions.iter().map(|revision| revision.name_any()).collect()
    }

    #[test]
    fn unused_revisions_above_the_limit_are_deleted() {
        let old = vec![revision("c", 3), revision("a", 1), revision("b", 2), revision("d", 4)];
        let pod: PodView = serde_json::from_value(json!({"metadata": {"labels": {REVISION_LABEL: "a"}}})).unwrap();
        let check = |limit: usize, expected: &[&str]| {
            assert_eq!(names(&revisions_to_delete(old.clone(), &[Arc::new(pod.clone())], limit)), expected);
        };
        check(0, &["b", "c", "d"]);
        check(2, &["b", "c"]);
        check(3, &["b"]);
        check(4, &[]);
    }

    #[test]
    fn newest_duplicate_is_kept() {
        let current = [revision("a", 2), revision("b", 5), revision("c", 5)];
        assert_eq!(revision_to_keep(&current).unwrap().name_any(), "c");
        assert_eq!((max_revision(&current), max_revision(&[])), (5, 0));
    }
}
