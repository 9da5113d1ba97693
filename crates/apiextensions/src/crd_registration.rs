//! Maintains a local `APIService` for each group-version that CRDs serve (upstream: autoregistration).

use std::collections::{BTreeMap, BTreeSet};

use api::{Value, meta, schema::schema, status::Status};
use apiserver_core::{
    loopback,
    loopback::{LoopbackClient, ObjectKey},
    storage::ObjectStorage,
};
use serde_json::json;

use super::ServedResources;

/// Label of `APIService`s that the server itself adds and removes.
const MANAGED_LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Reconciles the `APIService`s of custom group-versions.
#[derive(Default)]
pub struct CrdRegistration {
    /// Names of the existing `APIService`s; `None` until first listed.
    known: Option<BTreeSet<String>>,
    generation: u64,
}

impl CrdRegistration {
    /// Creates and deletes `APIService`s so that each group-version of `rows` has one.
    pub async fn reconcile(&mut self, storage: &dyn ObjectStorage, served: &ServedResources) -> Result<(), Status> {
        if self.known.is_some() && self.generation == served.generation {
            return Ok(());
        }
        let resource = loopback::find_resource("apiregistration.k8s.io", "v1", "apiservices")?;
        if self.known.is_none() {
            let all = storage.list_objects(resource, "").await?;
            let own = all.iter().filter(|service| is_managed(service));
            self.known = Some(own.map(|service| meta::name(service).to_owned()).collect());
        }
        let wanted = desired_services(served);
        let known = self.known.get_or_insert_default();
        let system = LoopbackClient::new(storage);
        for (name, service) in wanted.iter().filter(|(name, _)| !known.contains(*name)).collect::<Vec<_>>() {
            match system.create_object(ObjectKey { resource, namespace: "", name }, service).await {
                // A user registered this `APIService`; it is left alone.
                Err(status) if status.is_already_exists() => {}
                created => drop(created?),
            }
            known.insert(name.clone());
        }
        for name in known.iter().filter(|name| !wanted.contains_key(*name)).cloned().collect::<Vec<_>>() {
            // `APIService`s without the managed label belong to users and are left alone.
            match storage.read_object(resource, "", &name).await {
                Ok((service, _)) if is_managed(&service) => {
                    system.delete_object(ObjectKey { resource, namespace: "", name: &name }).await?;
                }
                Err(status) if !status.is_not_found() => return Err(status),
                _ => {}
            }
            known.remove(&name);
        }
        self.generation = served.generation;
        Ok(())
    }
}

fn is_managed(service: &Value) -> bool {
    service["metadata"]["labels"][MANAGED_LABEL] == "true"
}

/// Builds the `APIService`s of all custom group-versions, by name.
fn desired_services(served: &ServedResources) -> BTreeMap<String, Value> {
    let pairs =
        served.groups().iter().flat_map(|(group, versions)| versions.iter().map(move |version| (group, version)));
    let built_in = |group: &str, version: &str| {
        schema().resources().iter().any(|resource| resource.group == group && resource.version == version)
    };
    let named = |(group, version): (&&'static str, &&'static str)| {
        let name = format!("{version}.{group}");
        let service = json!({
            "metadata": {"name": name, "labels": {MANAGED_LABEL: "true"}},
            "spec": {"group": group, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 100},
        });
        (name, service)
    };
    pairs.filter(|(group, version)| !built_in(group, version)).map(named).collect()
}
