//! Lets one migration per resource run at a time, and maintains the condition `StorageMigrating` and the stored versions
//! of CustomResourceDefinitions.

use std::sync::Arc;

use client::{ApiErrorExt, RequeueAction, SharedInformer};
use jiff::Timestamp;
use k8s_openapi::{
    api::storagemigration::v1beta1::StorageVersionMigration,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::migration_status::{RUNNING, SUCCEEDED, add_condition, is_condition_true, is_terminal, write_status};
use crate::{
    conflict_retry::{ConflictRetry, DEFAULT_RETRY},
    controller::{Controller, ControllerWatches},
};

/// Field manager of the status of CustomResourceDefinitions.
pub(super) const MIGRATION_RUNNER: &str = "migration-runner-controller";
/// Index of migrations by their resource.
const MIGRATIONS_BY_RESOURCE: &str = "resource";
const STORAGE_MIGRATING: &str = "StorageMigrating";

/// Starts and ends migrations. The key is a resource as `plural.group`.
pub(super) struct MigrationRunner {
    pub(super) client: Client,
    pub(super) migrations: SharedInformer<StorageVersionMigration>,
}

impl Controller for MigrationRunner {
    type Key = String;
    type Error = kube::Error;
    const WORKERS: usize = 1;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        self.migrations.add_index(MIGRATIONS_BY_RESOURCE, |migration| group_resource(migration).into_iter().collect());
        watches.add(&self.migrations, |_, event, queue| {
            group_resource(event.object()).into_iter().for_each(|resource| queue.add(resource));
        });
    }

    async fn sync(&self, resource: &String) -> Result<RequeueAction, kube::Error> {
        let plan = MigrationPlan::new(&self.migrations.by_index(MIGRATIONS_BY_RESOURCE, resource));
        for migration in &plan.ended {
            self.end_migration(resource, migration).await?;
        }
        if let Some(migration) = plan.next {
            self.start_migration(resource, &migration).await?;
        }
        Ok(RequeueAction::AwaitChange)
    }
}

/// Returns `plural.group`, which is the name of the CustomResourceDefinition if the resource is a custom one.
fn group_resource(migration: &StorageVersionMigration) -> Option<String> {
    let resource = &migration.spec.as_ref()?.resource;
    Some(format!("{}.{}", resource.resource, resource.group))
}

/// The steps for the migrations of one resource.
struct MigrationPlan {
    /// Running migrations that succeeded or failed.
    ended: Vec<Arc<StorageVersionMigration>>,
    /// The migration to start.
    next: Option<Arc<StorageVersionMigration>>,
}

impl MigrationPlan {
    fn new(migrations: &[Arc<StorageVersionMigration>]) -> Self {
        let (running, others): (Vec<_>, Vec<_>) =
            migrations.iter().cloned().partition(|migration| is_condition_true(migration, RUNNING));
        let (ended, active): (Vec<_>, Vec<_>) = running.into_iter().partition(|migration| is_terminal(migration));
        let waiting = others.into_iter().filter(|migration| active.is_empty() && !is_terminal(migration));
        let next = waiting.min_by_key(|migration| {
            (migration.metadata.creation_timestamp.as_ref().map(|time| time.0), migration.name_any())
        });
        Self { ended, next }
    }
}

impl MigrationRunner {
    async fn start_migration(&self, resource: &str, migration: &StorageVersionMigration) -> Result<(), kube::Error> {
        let message = format!("Migration {} is running", migration.name_any());
        self.apply_definition_status(resource, |definition| {
            let condition = storage_migrating(definition, "True", "MigrationRunning", &message, Timestamp::now());
            json!({"conditions": [condition]})
        })
        .await?;
        let mut started = migration.clone();
        add_condition(&mut started, RUNNING, "MigrationRunning", "The migration is running", Timestamp::now());
        write_status(&self.client, &started).await
    }

    async fn end_migration(&self, resource: &str, migration: &StorageVersionMigration) -> Result<(), kube::Error> {
        let succeeded = is_condition_true(migration, SUCCEEDED);
        self.apply_definition_status(resource, |definition| ended_status(definition, succeeded, Timestamp::now()))
            .await?;
        let mut ended = migration.clone();
        set_not_running(&mut ended, Timestamp::now());
        write_status(&self.client, &ended).await
    }

    /// Applies a status to the resource's CustomResourceDefinition, if it has one. The status is computed again from a
    /// fresh read after a conflict.
    async fn apply_definition_status(
        &self,
        name: &str,
        status: impl Fn(&CustomResourceDefinition) -> Value,
    ) -> Result<(), kube::Error> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let mut retry = ConflictRetry::new(DEFAULT_RETRY);
        loop {
            let Some(definition) = api.get_opt(name).await? else { return Ok(()) };
            // The resource version makes the apply fail if the generation that was observed is no longer current.
            let body = json!({
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": name, "resourceVersion": definition.metadata.resource_version},
                "status": status(&definition),
            });
            let params = PatchParams::apply(MIGRATION_RUNNER).force();
            match api.patch_status(name, &params, &Patch::Apply(&body)).await {
                Err(error) if retry.wait_for_retry(error.is_conflict()).await => {}
                applied => return applied.map(drop),
            }
        }
    }
}

fn set_not_running(migration: &mut StorageVersionMigration, now: Timestamp) {
    let generation = migration.metadata.generation;
    let conditions = migration.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten());
    for condition in conditions.filter(|condition| condition.type_ == RUNNING) {
        condition.status = "False".into();
        condition.reason = "MigrationCompleted".into();
        condition.message = "Migration completed".into();
        condition.observed_generation = generation;
        condition.last_transition_time = Time(now);
    }
}

fn storage_migrating(
    definition: &CustomResourceDefinition,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Value {
    json!({
        "type": STORAGE_MIGRATING,
        "status": status,
        "lastTransitionTime": Time(now),
        "reason": reason,
        "message": message,
        "observedGeneration": definition.metadata.generation,
    })
}

/// The status of a CustomResourceDefinition after a migration. If it did not change since the migration started, the
/// storage version is the only stored one.
fn ended_status(definition: &CustomResourceDefinition, succeeded: bool, now: Timestamp) -> Value {
    let mut conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let started = conditions.find(|condition| condition.type_ == STORAGE_MIGRATING);
    let is_unchanged = started.is_some_and(|started| started.observed_generation == definition.metadata.generation);
    let (reason, message) = match (succeeded, is_unchanged) {
        (true, true) => ("MigrationSucceeded", "The migration has succeeded and the stored versions have been updated"),
        (true, false) => (
            "MigrationSucceeded",
            "The migration has succeeded but the stored versions have not been updated due to a generation mismatch",
        ),
        (false, _) => ("MigrationFailed", "The migration has failed"),
    };
    let mut status = json!({"conditions": [storage_migrating(definition, "False", reason, message, now)]});
    // As upstream, a failed migration updates the stored versions too.
    let storage = definition.spec.versions.iter().find(|version| version.storage);
    if let Some(storage) = storage.filter(|_| is_unchanged) {
        status["storedVersions"] = json!([storage.name]);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn migration(name: &str, created: i64, conditions: &[(&str, &str)]) -> Arc<StorageVersionMigration> {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(type_, status)| {
                json!({"type": type_, "status": status, "reason": "r", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z"})
            })
            .collect();
        let created = Time(Timestamp::from_second(created).unwrap());
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name, "creationTimestamp": created},
                "spec": {"resource": {"group": "example.com", "resource": "widgets"}},
                "status": {"conditions": conditions},
            }))
            .unwrap(),
        )
    }

    fn plan(migrations: &[Arc<StorageVersionMigration>]) -> (Vec<String>, Option<String>) {
        let plan = MigrationPlan::new(migrations);
        (plan.ended.iter().map(|ended| ended.name_any()).collect(), plan.next.map(|next| next.name_any()))
    }

    #[test]
    fn oldest_waiting_migration_starts_when_none_runs() {
        let (old, new) = (migration("b", 1, &[]), migration("a", 2, &[]));
        assert_eq!(plan(&[new.clone(), old.clone()]), (vec![], Some("b".into())));
        let running = migration("r", 0, &[("Running", "True")]);
        assert_eq!(plan(&[new, running, old]), (vec![], None));
    }

    #[test]
    fn ended_migration_makes_room_and_terminal_ones_never_start() {
        let ended = migration("e", 0, &[("Running", "True"), ("Succeeded", "True")]);
        let done = migration("d", 0, &[("Running", "False"), ("Failed", "True")]);
        assert_eq!(plan(&[ended, done, migration("n", 5, &[])]), (vec!["e".into()], Some("n".into())));
    }

    #[test]
    fn stored_versions_are_updated_only_without_a_newer_generation() {
        let definition = |generation: i64| -> CustomResourceDefinition {
            let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage});
            serde_json::from_value(json!({
                "metadata": {"name": "widgets.example.com", "generation": generation},
                "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                    "versions": [version("v1", false), version("v2", true)]},
                "status": {"conditions": [{"type": "StorageMigrating", "status": "True", "observedGeneration": 3}]},
            }))
            .unwrap()
        };
        let updated = ended_status(&definition(3), true, Timestamp::UNIX_EPOCH);
        assert_eq!(updated["storedVersions"], json!(["v2"]));
        let kept = ended_status(&definition(4), true, Timestamp::UNIX_EPOCH);
        assert!(kept.get("storedVersions").is_none());
        assert_eq!(kept["conditions"][0]["reason"], "MigrationSucceeded");
        assert_eq!(kept["conditions"][0]["observedGeneration"], 4);
    }

    #[test]
    fn ended_migration_is_no_longer_running() {
        let mut ended = migration("e", 0, &[("Running", "True"), ("Succeeded", "True")]).as_ref().clone();
        set_not_running(&mut ended, Timestamp::UNIX_EPOCH);
        assert!(!is_condition_true(&ended, RUNNING) && is_condition_true(&ended, SUCCEEDED));
    }
}
