//! storage-version-migrator-controller: rewrites all objects of a resource in its current storage version, where the API
//! server has StorageVersionMigrations.
//!
//! Three parts watch the migrations. The runner starts one migration per resource at a time; the resource version
//! controller records up to which version objects are old; the migrator rewrites those with an apply without fields.

mod migration_runner;
mod migration_status;
mod resource_version;

use client::{ApiErrorExt, RequeueAction, ResourceEvent, SharedInformer};
use jiff::Timestamp;
use k8s_openapi::{
    api::storagemigration::v1beta1::StorageVersionMigration, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Client, ResourceExt,
    api::{ApiResource, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use self::{
    migration_runner::{MIGRATION_RUNNER, MigrationRunner},
    migration_status::{
        MigrationError, SUCCEEDED, add_condition, checkpoint, fail_migration, find_resource, is_terminal,
        parse_resource_version, requeue_after_error, write_status,
    },
    resource_version::ResourceVersionController,
};
use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    discovery::{DiscoveredResource, check_served},
};

/// Objects per list request.
const PAGE_SIZE: u32 = 500;

struct StorageVersionMigrator {
    client: Client,
    field_manager: &'static str,
    migrations: SharedInformer<StorageVersionMigration>,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let served = check_served::<StorageVersionMigration>(context.informers.client());
    if context.shutdown.run_until_cancelled(served).await != Some(true) {
        return;
    }
    let migrations: SharedInformer<StorageVersionMigration> = context.informers.informer_for();
    let client = &context.client;
    let (resource_version, runner) = (
        ControllerContext { name: "resource-version-controller", ..context.clone() },
        ControllerContext { name: MIGRATION_RUNNER, ..context.clone() },
    );
    tokio::join!(
        run_controller(&context, |_| StorageVersionMigrator {
            client: client.clone(),
            field_manager: context.name,
            migrations: migrations.clone(),
        }),
        run_controller(&resource_version, |_| ResourceVersionController {
            client: client.clone(),
            migrations: migrations.clone(),
        }),
        run_controller(&runner, |_| MigrationRunner { client: client.clone(), migrations: migrations.clone() }),
    );
}

impl Controller for StorageVersionMigrator {
    type Key = String;
    type Error = MigrationError;
    const WORKERS: usize = 5;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        watches.add(&self.migrations, |_, event, queue| {
            if !matches!(event, ResourceEvent::Deleted(_)) {
                queue.add(event.object().name_any());
            }
        });
    }

    async fn sync(&self, name: &String) -> Result<RequeueAction, MigrationError> {
        let Some(migration) = self.migrations.get("", name) else { return Ok(RequeueAction::AwaitChange) };
        if is_terminal(&migration) || checkpoint(&migration).is_empty() {
            return Ok(RequeueAction::AwaitChange);
        }
        let unknown = "migration encountered unhandled error: unable to obtain GVR from discovery";
        let Some(found) = find_resource(&self.client, &migration, unknown).await? else {
            return Ok(RequeueAction::AwaitChange);
        };
        match self.migrate_objects(&found, checkpoint(&migration)).await {
            Ok(()) => {
                let mut migrated = migration.as_ref().clone();
                let reason = "StorageVersionMigrationSucceeded";
                add_condition(&mut migrated, SUCCEEDED, reason, "", Timestamp::now());
                write_status(&self.client, &migrated).await?;
            }
            Err(ObjectMigrationError::List(error)) => return Err(error.into()),
            Err(ObjectMigrationError::Patch(error)) => match requeue_after_error(&error) {
                Some(action) => return Ok(action),
                None => self.fail(&migration, &error.server_message()).await?,
            },
            Err(error @ ObjectMigrationError::ResourceVersion(_)) => self.fail(&migration, &error.to_string()).await?,
        }
        Ok(RequeueAction::AwaitChange)
    }
}

/// The objects of a resource were not all migrated.
#[derive(Debug, thiserror::Error)]
enum ObjectMigrationError {
    #[error("{0}")]
    List(kube::Error),
    #[error("{0}")]
    Patch(kube::Error),
    #[error("resource version is not well formed: {0}")]
    ResourceVersion(String),
}

impl StorageVersionMigrator {
    async fn fail(&self, migration: &StorageVersionMigration, error: &str) -> Result<(), kube::Error> {
        fail_migration(&self.client, migration, format!("migration encountered unhandled error: {error}")).await
    }

    /// Rewrites every object that is not newer than the checkpoint.
    async fn migrate_objects(&self, found: &DiscoveredResource, checkpoint: &str) -> Result<(), ObjectMigrationError> {
        let all = kube::Api::<kube::api::DynamicObject>::all_with(self.client.clone(), &found.resource);
        let mut params = ListParams::default().limit(PAGE_SIZE);
        loop {
            let page = all.list_metadata(&params).await.map_err(ObjectMigrationError::List)?;
            for object in &page.items {
                if is_old(&object.metadata, checkpoint)? {
                    self.migrate_object(found, &object.metadata).await.map_err(ObjectMigrationError::Patch)?;
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(()),
            }
        }
    }

    /// Rewrites an object. A conflict means that it was written, in the current version, or deleted since the list.
    async fn migrate_object(&self, found: &DiscoveredResource, meta: &ObjectMeta) -> Result<(), kube::Error> {
        let api = found.dynamic_api(&self.client, meta.namespace.as_deref().unwrap_or_default());
        let name = meta.name.as_deref().unwrap_or_default();
        let patch = migration_patch(&found.resource, meta);
        match api.patch(name, &PatchParams::apply(self.field_manager), &Patch::Apply(&patch)).await {
            Err(error) if !error.is_conflict() => Err(error),
            _ => Ok(()),
        }
    }
}

fn is_old(meta: &ObjectMeta, checkpoint: &str) -> Result<bool, ObjectMigrationError> {
    let parse =
        |text: &str| parse_resource_version(text).ok_or_else(|| ObjectMigrationError::ResourceVersion(text.to_owned()));
    Ok(parse(meta.resource_version.as_deref().unwrap_or_default())? <= parse(checkpoint)?)
}

/// An apply that changes nothing. The uid keeps it from creating a deleted object, the resource version from writing one
/// that was recreated.
fn migration_patch(resource: &ApiResource, meta: &ObjectMeta) -> Value {
    json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_up_to_the_checkpoint_are_old() {
        let object = |version: &str| ObjectMeta { resource_version: Some(version.into()), ..Default::default() };
        assert!(is_old(&object("9"), "10").unwrap() && is_old(&object("10"), "10").unwrap());
        assert!(!is_old(&object("11"), "10").unwrap());
        for malformed in ["", "0", "01", "x", "+1"] {
            assert!(is_old(&object(malformed), "10").is_err(), "{malformed}");
        }
    }

    #[test]
    fn throttled_and_unavailable_servers_are_tried_again() {
        let error = |code: u16, delay: u32| {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "m",
                "reason": "r", "code": code, "details": {"retryAfterSeconds": delay}});
            kube::Error::Api(serde_json::from_value(status).unwrap())
        };
        assert!(
            matches!(requeue_after_error(&error(429, 3)), Some(RequeueAction::After(delay)) if delay.as_secs() == 3)
        );
        assert!(matches!(requeue_after_error(&error(503, 0)), Some(RequeueAction::Backoff)));
        assert!(requeue_after_error(&error(422, 0)).is_none());
    }

    #[test]
    fn migration_patch_names_one_version_of_one_object() {
        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&());
        let meta = ObjectMeta { uid: Some("u".into()), resource_version: Some("7".into()), ..Default::default() };
        let want = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"uid": "u", "resourceVersion": "7"}});
        assert_eq!(migration_patch(&resource, &meta), want);
    }
}
