//! Rollback to the template of an earlier revision, as the annotation `deprecated.deployment.rollback.to` asks for.

use client::RequeueAction;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::{Api, Resource, ResourceExt, api::PostParams};

use super::{DeploymentSyncError, revision, rollout::DeploymentRollout};

/// Result of looking for the revision of a rollback.
#[derive(Debug, PartialEq)]
enum RollbackTarget<'a> {
    /// This ReplicaSet has the revision and another template.
    Restore(i64, &'a ReplicaSet),
    /// The revision has the current template.
    Unchanged,
    /// There is no earlier revision.
    NoLastRevision,
    /// No ReplicaSet has the revision.
    NotFound,
}

/// Finds the ReplicaSet of a revision; zero stands for the last one.
fn find_rollback_target<'a>(deployment: &Deployment, all: &[&'a ReplicaSet], revision: i64) -> RollbackTarget<'a> {
    let revision = if revision == 0 { revision::last_revision(all.iter().copied()) } else { revision };
    if revision == 0 {
        return RollbackTarget::NoLastRevision;
    }
    let found = all.iter().find(|replica_set| revision::revision_of(&replica_set.metadata) == revision);
    let Some(replica_set) = found else { return RollbackTarget::NotFound };
    let template = replica_set.spec.as_ref().and_then(|spec| spec.template.as_ref());
    let current = deployment.spec.as_ref().map(|spec| &spec.template);
    match current.zip(template).is_some_and(|(a, b)| revision::is_same_template(a, b)) {
        true => RollbackTarget::Unchanged,
        false => RollbackTarget::Restore(revision, replica_set),
    }
}

impl DeploymentRollout<'_> {
    /// Restores the template of a revision and removes the annotation; the rollout follows in the next sync.
    pub(super) async fn roll_back(&mut self, revision: i64) -> Result<RequeueAction, DeploymentSyncError> {
        self.ensure_new_replica_set().await?;
        let all: Vec<&ReplicaSet> = self.old.iter().chain(&self.new).collect();
        let (name, mut update) = (self.deployment.name_any(), self.deployment.clone());
        let (recorder, about) = (&self.controller.recorder, self.deployment.object_ref(&()));
        let warn = |reason: &str, message: String| recorder.record_warning(about.clone(), reason, message);
        let mut restored = None;
        match find_rollback_target(&self.deployment, &all, revision) {
            RollbackTarget::Restore(revision, replica_set) => {
                revision::restore_replica_set(&mut update, replica_set);
                restored = Some(revision);
            }
            RollbackTarget::Unchanged => {
                let message =
                    format!("The rollback revision contains the same template as current deployment {name:?}");
                warn("DeploymentRollbackTemplateUnchanged", message);
            }
            RollbackTarget::NoLastRevision => {
                warn("DeploymentRollbackRevisionNotFound", "Unable to find last revision.".into());
            }
            RollbackTarget::NotFound => {
                warn("DeploymentRollbackRevisionNotFound", "Unable to find the revision to rollback to.".into());
            }
        }
        revision::clear_rollback(&mut update);
        let api: Api<Deployment> = self.controller.namespaced_api(&self.deployment.metadata);
        api.replace(&name, &PostParams::default(), &update).await?;
        if let Some(revision) = restored {
            let message = format!("Rolled back deployment {name:?} to revision {revision}");
            recorder.record_normal(about, "DeploymentRollback", message);
        }
        Ok(RequeueAction::AwaitChange)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn replica_set(image: &str, revision: &str) -> ReplicaSet {
        let annotations = json!({"deployment.kubernetes.io/revision": revision});
        let template = json!({"spec": {"containers": [{"name": "c", "image": image}]}});
        serde_json::from_value(
            json!({"metadata": {"annotations": annotations}, "spec": {"selector": {}, "template": template}}),
        )
        .unwrap()
    }

    #[test]
    fn revision_or_the_last_one_is_found() {
        let template = json!({"spec": {"containers": [{"name": "c", "image": "b"}]}});
        let deployment: Deployment =
            serde_json::from_value(json!({"spec": {"selector": {}, "template": template}})).unwrap();
        let (a, b) = (replica_set("a", "1"), replica_set("b", "2"));
        let find = |revision: i64| find_rollback_target(&deployment, &[&a, &b], revision);
        assert_eq!(find(1), RollbackTarget::Restore(1, &a));
        assert_eq!(find(0), RollbackTarget::Restore(1, &a));
        assert_eq!(find(2), RollbackTarget::Unchanged);
        assert_eq!(find(9), RollbackTarget::NotFound);
        assert_eq!(find_rollback_target(&deployment, &[&b], 0), RollbackTarget::NoLastRevision);
    }
}
