//! Records in a running migration's status the resource version up to which objects are migrated.

use client::{RequeueAction, ResourceEvent, SharedInformer};
use k8s_openapi::api::storagemigration::v1beta1::StorageVersionMigration;
use kube::{Client, ResourceExt, api::ListParams};

use super::migration_status::{
    MigrationError, RUNNING, checkpoint, fail_migration, find_resource, is_condition_true, is_terminal,
    parse_resource_version, write_status,
};
use crate::{
    controller::{Controller, ControllerWatches},
    discovery::DiscoveredResource,
};

/// A namespace that cannot exist, so that a list of it is empty and cheap.
const NO_NAMESPACE: &str = "@fake:svm_ns!";
const REQUIRED_VERBS: [&str; 3] = ["update", "patch", "list"];

/// Sets `status.resourceVersion`.
pub(super) struct ResourceVersionController {
    pub(super) client: Client,
    pub(super) migrations: SharedInformer<StorageVersionMigration>,
}

impl Controller for ResourceVersionController {
    type Key = String;
    type Error = MigrationError;
    const WORKERS: usize = 1;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        watches.add(&self.migrations, |_, event, queue| {
            if !matches!(event, ResourceEvent::Deleted(_)) {
                queue.add(event.object().name_any());
            }
        });
    }

    async fn sync(&self, name: &String) -> Result<RequeueAction, MigrationError> {
        if let Some(migration) = self.migrations.get("", name).filter(|migration| needs_checkpoint(migration)) {
            self.record_checkpoint(&migration).await?;
        }
        Ok(RequeueAction::AwaitChange)
    }
}

fn needs_checkpoint(migration: &StorageVersionMigration) -> bool {
    is_condition_true(migration, RUNNING) && !is_terminal(migration) && checkpoint(migration).is_empty()
}

impl ResourceVersionController {
    async fn record_checkpoint(&self, migration: &StorageVersionMigration) -> Result<(), MigrationError> {
        let unknown = "resource does not exist in discovery";
        let Some(found) = find_resource(&self.client, migration, unknown).await? else { return Ok(()) };
        if !found.supports_verbs(&REQUIRED_VERBS) {
            let verbs = REQUIRED_VERBS.join(" ");
            let message = format!("resource {:?} does not support discovery operations: [{verbs}]", format_gvr(&found));
            return Ok(fail_migration(&self.client, migration, message).await?);
        }
        let list = found.dynamic_api(&self.client, NO_NAMESPACE).list_metadata(&ListParams::default().limit(1)).await?;
        let version = list.metadata.resource_version.unwrap_or_default();
        if parse_resource_version(&version).is_none() {
            let message = format!(
                "latest resourceVersion for {} is not valid: resource version is not well formed: {version}",
                format_gvr(&found)
            );
            return Ok(fail_migration(&self.client, migration, message).await?);
        }
        let mut updated = migration.clone();
        updated.status.get_or_insert_default().resource_version = Some(version);
        Ok(write_status(&self.client, &updated).await?)
    }
}

/// Formats a resource as upstream's `GroupVersionResource` does.
fn format_gvr(found: &DiscoveredResource) -> String {
    let resource = &found.resource;
    format!("{}/{}, Resource={}", resource.group, resource.version, resource.plural)
}
