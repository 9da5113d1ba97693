//! The status of a StorageVersionMigration, shared by the parts of the controller.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::storagemigration::v1beta1::StorageVersionMigration,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::{Api, Client, ResourceExt, api::PostParams};

use client::{ApiErrorExt, RequeueAction};

use crate::discovery::{DiscoveredResource, discover_api};

pub(super) const RUNNING: &str = "Running";
pub(super) const SUCCEEDED: &str = "Succeeded";
pub(super) const FAILED: &str = "Failed";
/// Reason of the condition `Failed`.
pub(super) const FAILED_REASON: &str = "StorageVersionMigrationFailed";
/// Time that discovery has to show a new resource before its migration fails.
const DISCOVERY_GRACE: SignedDuration = SignedDuration::from_mins(1);

/// A sync failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MigrationError {
    #[error("resource does not exist in discovery, requeuing to attempt again")]
    ResourceUnknown,
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// Returns the condition of a type.
pub(super) fn condition<'a>(migration: &'a StorageVersionMigration, type_: &str) -> Option<&'a Condition> {
    let mut conditions = migration.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|condition| condition.type_ == type_)
}

/// Whether a condition has the status `True`.
pub(super) fn is_condition_true(migration: &StorageVersionMigration, type_: &str) -> bool {
    condition(migration, type_).is_some_and(|condition| condition.status == "True")
}

/// Whether the migration succeeded or failed.
pub(super) fn is_terminal(migration: &StorageVersionMigration) -> bool {
    is_condition_true(migration, SUCCEEDED) || is_condition_true(migration, FAILED)
}

/// The resource version up to which objects are migrated; empty before it is known.
pub(super) fn checkpoint(migration: &StorageVersionMigration) -> &str {
    migration.status.as_ref().and_then(|status| status.resource_version.as_deref()).unwrap_or_default()
}

/// Parses a well-formed resource version: a decimal number without leading zeros.
pub(super) fn parse_resource_version(text: &str) -> Option<u128> {
    let is_well_formed = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_well_formed)
}

/// Adds a condition with the status `True`, unless the migration has one of the type.
pub(super) fn add_condition(
    migration: &mut StorageVersionMigration,
    type_: &str,
    reason: &str,
    message: impl Into<String>,
    now: Timestamp,
) {
    if condition(migration, type_).is_some_and(|old| old.status == "True" || old.status == "False") {
        return;
    }
    let added = Condition {
        type_: type_.into(),
        status: "True".into(),
        reason: reason.into(),
        message: message.into(),
        last_transition_time: Time(now),
        observed_generation: None,
    };
    migration.status.get_or_insert_default().conditions.get_or_insert_default().push(added);
}

/// Writes the status.
pub(super) async fn write_status(client: &Client, migration: &StorageVersionMigration) -> Result<(), kube::Error> {
    let api: Api<StorageVersionMigration> = Api::all(client.clone());
    api.replace_status(&migration.name_any(), &PostParams::default(), migration).await.map(drop)
}

/// Ends the migration with the condition `Failed`.
pub(super) async fn fail_migration(
    client: &Client,
    migration: &StorageVersionMigration,
    message: String,
) -> Result<(), kube::Error> {
    let mut failed = migration.clone();
    add_condition(&mut failed, FAILED, FAILED_REASON, message, Timestamp::now());
    write_status(client, &failed).await
}

/// Discovers the resource of a migration. The migration fails with `message` if the resource stays unknown.
pub(super) async fn find_resource(
    client: &Client,
    migration: &StorageVersionMigration,
    message: &str,
) -> Result<Option<DiscoveredResource>, MigrationError> {
    let Some(wanted) = migration.spec.as_ref().map(|spec| &spec.resource) else { return Ok(None) };
    let api = discover_api(client).await?;
    let is_wanted =
        |found: &DiscoveredResource| found.resource.group == wanted.group && found.resource.plural == wanted.resource;
    if let Some(found) = api.resources.into_iter().find(is_wanted) {
        return Ok(Some(found));
    }
    let created = migration.metadata.creation_timestamp.as_ref().map(|time| time.0);
    if created.is_some_and(|created| Timestamp::now().duration_since(created) < DISCOVERY_GRACE) {
        return Err(MigrationError::ResourceUnknown);
    }
    fail_migration(client, migration, message.into()).await?;
    Ok(None)
}

/// The requeue that an error of a request asks for, if sending it again may succeed.
pub(super) fn requeue_after_error(error: &kube::Error) -> Option<RequeueAction> {
    match error {
        kube::Error::Api(status) => {
            let delay = status.details.as_ref().map(|details| u64::from(details.retry_after_seconds));
            let is_retriable = matches!(status.code, 429 | 500 | 503 | 504) || error.is_timeout();
            let action = match delay.filter(|delay| *delay > 0) {
                Some(delay) => RequeueAction::After(Duration::from_secs(delay)),
                None => RequeueAction::Backoff,
            };
            is_retriable.then_some(action)
        }
        kube::Error::HyperError(_) | kube::Error::Service(_) => Some(RequeueAction::Backoff),
        _ => None,
    }
}
