//! An `APIService` for each group and version of custom resources, for as long as a definition serves it: what clients find in
//! discovery comes from API services. One that somebody made by hand is left alone.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    time::Duration,
};

use api::{Value, meta, status::Status};
use serde_json::json;
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::{OWN_GROUP, follow};
use crate::{
    Server,
    live::{Live, View},
    system::{self, Place, System},
};

/// What says that an API service is kept here.
pub const LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";
const GROUP: &str = "apiextensions.k8s.io";
const DEFINITIONS: &str = "customresourcedefinitions";
/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// Keeps them in step with the definitions until `shutdown`.
pub async fn run(server: &Server, shutdown: &CancellationToken) {
    shutdown.run_until_cancelled(work(server)).await;
}

async fn work(server: &Server) {
    let cache = server.registry().cache();
    let (Ok(mut definitions), Ok(mut apis)) =
        (follow(cache, GROUP, DEFINITIONS), follow(cache, OWN_GROUP, "apiservices"))
    else {
        return tracing::error!("definitions of custom resources cannot be followed");
    };
    let served = system::resource(GROUP, "v1", DEFINITIONS).map_err(|status| status.message);
    let served = served.and_then(|row| Live::new(cache, &[row], Served::default()).map_err(|error| error.to_string()));
    let served = match served {
        Ok(served) => served,
        Err(why) => return tracing::error!(why, "definitions of custom resources cannot be read"),
    };
    loop {
        let done = step(server, &served.read(Served::all)).await;
        if let Err(status) = &done {
            tracing::debug!(why = status.message, "cannot register the groups of custom resources");
        }
        tokio::select! {
            () = definitions.changed() => {}
            () = apis.changed() => {}
            () = time::sleep(PAUSE), if done.is_err() => {}
        }
    }
}

/// Creates what is missing, and deletes what was made here and is no longer served.
async fn step(server: &Server, wanted: &BTreeSet<Version>) -> Result<(), Status> {
    let (system, resource) = (System::new(server.registry()), super::services()?);
    let present = server.aggregator().all();
    let names: HashSet<&str> = present.iter().map(|api| api.name.as_str()).collect();
    for (group, version) in wanted {
        let name = format!("{version}.{group}");
        if names.contains(name.as_str()) {
            continue;
        }
        match system.create(Place { resource, namespace: "", name: &name }, &object(group, version)).await {
            // Another server was faster.
            Err(status) if status.reason == "AlreadyExists" => {}
            created => drop(created?),
        }
    }
    for api in present.iter().filter(|api| api.kept) {
        if !wanted.contains(&(api.group.clone(), api.version.clone())) {
            system.delete(Place { resource, namespace: "", name: &api.name }).await?;
        }
    }
    Ok(())
}

/// A group and a version of it.
type Version = (String, String);

/// What each definition serves.
#[derive(Default)]
struct Served(BTreeMap<String, Vec<Version>>);

impl Served {
    fn all(&self) -> BTreeSet<Version> {
        self.0.values().flatten().cloned().collect()
    }
}

impl View for Served {
    fn put(&mut self, place: Place<'_>, object: &Value) {
        let group = meta::text(object, &["spec", "group"]);
        let served = meta::list(object, &["spec", "versions"]).iter().filter(|version| version["served"] == true);
        let named = served.map(|version| (group.to_owned(), meta::text(version, &["name"]).to_owned()));
        self.0.insert(place.name.to_owned(), named.collect());
    }

    fn remove(&mut self, place: Place<'_>) {
        self.0.remove(place.name);
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// Custom groups come after built-in ones, and their versions in the usual order.
fn object(group: &str, version: &str) -> Value {
    json!({
        "metadata": {"name": format!("{version}.{group}"), "labels": {LABEL: "true"}},
        "spec": {"group": group, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 100},
    })
}
