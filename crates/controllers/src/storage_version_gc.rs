//! storageversion-garbage-collector-controller: removes the entries of API servers that are gone from StorageVersions,
//! where the API server has them.

use std::collections::HashSet;

use client::{ApiErrorExt, RequeueAction, ResourceEvent, SharedInformer};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apiserverinternal::v1alpha1::{StorageVersion, StorageVersionCondition},
        coordination::v1::Lease,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    runtime::watcher,
};

use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    discovery::check_served,
};

const IDENTITY_NAMESPACE: &str = "kube-system";
const IDENTITY_LABEL: &str = "apiserver.kubernetes.io/identity";
const API_SERVER: &str = "kube-apiserver";

struct StorageVersionGc {
    client: Client,
    leases: SharedInformer<Lease>,
    versions: SharedInformer<StorageVersion>,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let served = check_served::<StorageVersion>(context.informers.client());
    if context.shutdown.run_until_cancelled(served).await != Some(true) {
        return;
    }
    let identities = watcher::Config::default().labels(&format!("{IDENTITY_LABEL}={API_SERVER}"));
    let leases = Api::namespaced(context.informers.client().clone(), IDENTITY_NAMESPACE);
    let build = |_| StorageVersionGc {
        leases: SharedInformer::start(leases, identities, context.shutdown.clone()),
        versions: context.informers.informer_for(),
        client: context.client.clone(),
    };
    run_controller(&context, build).await;
}

impl Controller for StorageVersionGc {
    type Key = String;
    type Error = kube::Error;
    const WORKERS: usize = 2;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        watches.add(&self.versions, |_, event, queue| {
            if !matches!(event, ResourceEvent::Deleted(_)) {
                queue.add(event.object().name_any());
            }
        });
        watches.add(&self.leases, |this, event, queue| {
            if let ResourceEvent::Deleted(lease) = event {
                let id = lease.name_any();
                let naming = this.versions.list().into_iter().filter(|version| api_servers(version).contains(&id));
                naming.for_each(|version| queue.add(version.name_any()));
            }
        });
    }

    async fn sync(&self, name: &String) -> Result<RequeueAction, kube::Error> {
        let cached = self.versions.get("", name);
        let is_known = |id: &String| self.leases.get(IDENTITY_NAMESPACE, id).is_some();
        if cached.is_none_or(|version| api_servers(&version).iter().all(is_known)) {
            return Ok(RequeueAction::AwaitChange);
        }
        let api: Api<StorageVersion> = Api::all(self.client.clone());
        let Some(mut version) = api.get_opt(name).await? else { return Ok(RequeueAction::AwaitChange) };
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), IDENTITY_NAMESPACE);
        let identities = ListParams::default().labels(&format!("{IDENTITY_LABEL}={API_SERVER}"));
        let live = leases.list(&identities).await?.items.iter().map(|lease| lease.name_any()).collect();
        let written = match retain_api_servers(&mut version, &live, Timestamp::now()) {
            RetainedEntries::All => return Ok(RequeueAction::AwaitChange),
            RetainedEntries::None => api.delete(name, &DeleteParams::default()).await.map(drop),
            RetainedEntries::Some => api.replace_status(name, &PostParams::default(), &version).await.map(drop),
        };
        match written {
            Err(error) if error.is_conflict() => Ok(RequeueAction::Backoff),
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(RequeueAction::AwaitChange),
        }
    }
}

fn api_servers(version: &StorageVersion) -> HashSet<String> {
    let entries = version.status.as_ref().and_then(|status| status.storage_versions.as_deref()).unwrap_or_default();
    entries.iter().map(|entry| entry.api_server_id.clone()).collect()
}

/// Which entries of a StorageVersion are left.
#[derive(Debug, PartialEq, Eq)]
enum RetainedEntries {
    All,
    Some,
    None,
}

/// Removes the entries of other API servers and updates the common encoding version.
fn retain_api_servers(version: &mut StorageVersion, live: &HashSet<String>, now: Timestamp) -> RetainedEntries {
    let generation = version.metadata.generation;
    let status = version.status.get_or_insert_default();
    let entries = status.storage_versions.get_or_insert_default();
    let count = entries.len();
    entries.retain(|entry| live.contains(&entry.api_server_id));
    if entries.len() == count {
        return RetainedEntries::All;
    }
    let Some(first) = entries.first().map(|entry| entry.encoding_version.clone()) else {
        return RetainedEntries::None;
    };
    let common = entries.iter().all(|entry| entry.encoding_version == first).then_some(first);
    let before = std::mem::replace(&mut status.common_encoding_version, common.clone());
    let (value, text) = if common.is_some() { ("True", "Set") } else { ("False", "Unset") };
    let mut condition = StorageVersionCondition {
        type_: "AllEncodingVersionsEqual".into(),
        status: value.into(),
        reason: format!("CommonEncodingVersion{text}"),
        message: format!("Common encoding version {}", text.to_lowercase()),
        observed_generation: generation,
        last_transition_time: Some(Time(now)),
    };
    let conditions = status.conditions.get_or_insert_default();
    let is_forced = before.is_some() && common.is_some() && before != common;
    match conditions.iter_mut().find(|old| old.type_ == condition.type_) {
        None => conditions.push(condition),
        Some(old) => {
            if old.status == condition.status && !is_forced {
                condition.last_transition_time = old.last_transition_time.clone();
            }
            *old = condition;
        }
    }
    RetainedEntries::Some
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entries_of_absent_servers_are_removed() {
        let version = || -> StorageVersion {
            let entry = |id: &str, encoding: &str| json!({"apiServerID": id, "encodingVersion": encoding, "decodableVersions": [encoding]});
            serde_json::from_value(json!({"metadata": {"name": "x"}, "spec": {}, "status": {"storageVersions": [entry("a", "v1"), entry("b", "v2")]}}))
                .unwrap()
        };
        let live = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<HashSet<_>>();
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(retain_api_servers(&mut version(), &live(&["a", "b"]), now), RetainedEntries::All);
        assert_eq!(retain_api_servers(&mut version(), &live(&[]), now), RetainedEntries::None);
        let mut kept = version();
        assert_eq!(retain_api_servers(&mut kept, &live(&["b"]), now), RetainedEntries::Some);
        let status = kept.status.unwrap();
        assert_eq!(status.common_encoding_version.as_deref(), Some("v2"));
        assert_eq!(status.conditions.unwrap()[0].reason, "CommonEncodingVersionSet");
    }
}
