//! Revisions of a StatefulSet: which one is current and which one it updates to.

use std::{collections::HashSet, sync::Arc};

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};

use super::{StatefulSetSyncError, identity};
use crate::{
    controller_history::{RevisionHistory, new_controller_revision, revision_data, template_of, template_patch},
    pod_view::PodView,
};

/// The revisions of a sync.
pub(super) struct StatefulSetRevisions {
    /// The revision that the set comes from.
    pub(super) current: Arc<ControllerRevision>,
    /// The revision of the set's template.
    pub(super) update: Arc<ControllerRevision>,
    /// `status.collisionCount` after a creation.
    pub(super) collisions: i32,
}

/// Way to get the update revision from a sorted history.
#[derive(Debug, PartialEq)]
enum UpdateRevision {
    /// The newest revision has the set's template.
    Newest(Arc<ControllerRevision>),
    /// An older revision has it and gets the next number: a rollback.
    Rollback(Arc<ControllerRevision>),
    /// No revision has it.
    Create,
}

fn find_update_revision(
    set: &StatefulSet,
    proposed: &ControllerRevision,
    history: &[Arc<ControllerRevision>],
) -> UpdateRevision {
    let Some(newest) = history.last() else { return UpdateRevision::Create };
    let is_equal = |revision: &Arc<ControllerRevision>| revision_data(revision) == revision_data(proposed);
    match history.iter().rfind(|revision| is_equal(revision)) {
        Some(_) if is_equal(newest) => UpdateRevision::Newest(newest.clone()),
        Some(equal) => UpdateRevision::Rollback(equal.clone()),
        None if restores_same_template(set, proposed, newest) => UpdateRevision::Newest(newest.clone()),
        None => UpdateRevision::Create,
    }
}

/// Whether restoring a revision and defaulting the set gives the proposed data. Revisions written by other versions
/// differ in defaults that did not exist then.
fn restores_same_template(set: &StatefulSet, proposed: &ControllerRevision, revision: &ControllerRevision) -> bool {
    let restore = || {
        let mut restored = serde_json::to_value(apply_revision(set, revision)?).ok()?;
        let ty = api::schema::schema().type_of_kind("apps", "v1", "StatefulSet")?;
        api::defaults::apply_defaults(ty, &mut restored);
        let restored: StatefulSet = serde_json::from_value(restored).ok()?;
        template_patch(&restored.spec?.template).ok()
    };
    restore().as_ref() == revision_data(proposed)
}

/// Returns the set with the template of a revision.
pub(super) fn apply_revision(set: &StatefulSet, revision: &ControllerRevision) -> Option<StatefulSet> {
    let mut restored = set.clone();
    restored.spec.as_mut()?.template = template_of(revision)?;
    Some(restored)
}

/// Determines the current and the update revision; creates or renumbers the latter if necessary.
pub(super) async fn sync_revisions(
    history: &RevisionHistory,
    set: &StatefulSet,
    revisions: &[Arc<ControllerRevision>],
) -> Result<StatefulSetRevisions, StatefulSetSyncError> {
    let status = set.status.as_ref();
    let mut collisions = status.and_then(|status| status.collision_count).unwrap_or(0);
    let template = set.spec.as_ref().map(|spec| &spec.template).ok_or(StatefulSetSyncError::NoSpec)?;
    let number = revisions.last().map_or(0, |newest| newest.revision) + 1;
    let proposed = new_controller_revision(set, template, number, collisions)?;
    let update = match find_update_revision(set, &proposed, revisions) {
        UpdateRevision::Newest(revision) => revision,
        UpdateRevision::Rollback(revision) => Arc::new(history.set_number(&revision, number).await?),
        UpdateRevision::Create => Arc::new(history.create(set, &proposed, &mut collisions).await?),
    };
    let current_name = status.and_then(|status| status.current_revision.as_ref());
    let current = revisions.iter().find(|revision| revision.metadata.name.as_ref() == current_name);
    Ok(StatefulSetRevisions { current: current.unwrap_or(&update).clone(), update, collisions })
}

/// Returns the revisions of `history` that neither the set nor a pod uses, oldest first, above the history limit.
pub(super) fn excess_revisions(
    set: &StatefulSet,
    pods: &[Arc<PodView>],
    history: &[Arc<ControllerRevision>],
    used: Option<&StatefulSetRevisions>,
) -> Vec<Arc<ControllerRevision>> {
    let name = |revision: &ControllerRevision| revision.metadata.name.clone().unwrap_or_default();
    let mut live: HashSet<String> = pods.iter().map(|pod| identity::revision_of(pod).to_owned()).collect();
    live.extend(used.into_iter().flat_map(|used| [name(&used.current), name(&used.update)]));
    let mut unused: Vec<_> = history.iter().filter(|revision| !live.contains(&name(revision))).cloned().collect();
    let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
    // A negative limit keeps all.
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    unused.truncate(unused.len().saturating_sub(limit));
    unused
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(image: &str, limit: i32) -> StatefulSet {
        let container = json!({"name": "c", "image": image, "imagePullPolicy": "Always", "resources": {},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"});
        let spec = json!({"containers": [container], "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30});
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": spec});
        serde_json::from_value(
            json!({"metadata": {"name": "web"}, "spec": {"revisionHistoryLimit": limit, "selector": {},
            "template": template}}),
        )
        .unwrap()
    }

    fn revision(image: &str, number: i64) -> Arc<ControllerRevision> {
        let set = set(image, 0);
        Arc::new(new_controller_revision(&set, &set.spec.as_ref().unwrap().template, number, 0).unwrap())
    }

    #[test]
    fn template_finds_its_revision() {
        let history = [revision("a", 1), revision("b", 2)];
        let find = |image: &str, history: &[Arc<ControllerRevision>]| {
            find_update_revision(&set(image, 0), &revision(image, 3), history)
        };
        assert_eq!(find("b", &history), UpdateRevision::Newest(history[1].clone()));
        assert_eq!(find("a", &history), UpdateRevision::Rollback(history[0].clone()));
        assert_eq!(find("c", &history), UpdateRevision::Create);
        assert_eq!(find("c", &[]), UpdateRevision::Create);
    }

    #[test]
    fn revision_of_another_version_is_compared_after_defaulting() {
        let mut older = (*revision("a", 1)).clone();
        let data: &mut Value = &mut older.data.as_mut().unwrap().0;
        data["spec"]["template"]["metadata"]["creationTimestamp"] = Value::Null;
        data["spec"]["template"]["spec"].as_object_mut().unwrap().remove("schedulerName");
        let older = Arc::new(older);
        let found = find_update_revision(&set("a", 0), &revision("a", 2), std::slice::from_ref(&older));
        assert_eq!(found, UpdateRevision::Newest(older.clone()));
        let found = find_update_revision(&set("b", 0), &revision("b", 2), std::slice::from_ref(&older));
        assert_eq!(found, UpdateRevision::Create);
    }

    #[test]
    fn unused_revisions_above_the_limit_are_deleted_oldest_first() {
        let history: Vec<_> = (0..5).map(|number| revision(&number.to_string(), number)).collect();
        let used = StatefulSetRevisions { current: history[3].clone(), update: history[4].clone(), collisions: 0 };
        let labels = json!({"controller-revision-hash": history[0].metadata.name});
        let pod: PodView = serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap();
        let pods = [Arc::new(pod)];
        let check = |limit: i32, expected: &[usize]| {
            let excess = excess_revisions(&set("x", limit), &pods, &history, Some(&used));
            assert_eq!(excess, expected.iter().map(|index| history[*index].clone()).collect::<Vec<_>>());
        };
        check(0, &[1, 2]);
        check(1, &[1]);
        check(2, &[]);
        check(-1, &[]);
    }
}
