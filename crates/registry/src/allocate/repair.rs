//! Puts the accounts of addresses and ports right again: at start, and from time to time. Services say what is used; what
//! is used is written down, and what nobody uses any more is given back.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use api::{Value, meta, status::Status};
use apiserver_core::{
    clock, document, loopback,
    loopback::{LoopbackClient, ObjectKey},
};
use store::ListOptions;
use tokio_util::sync::CancellationToken;

use super::{Allocator, addresses, service::Services};
use crate::Registry;

/// How often the accounts are looked at.
const PERIOD: Duration = Duration::from_secs(180);
/// How long a service may take to be written after its address was taken.
const GRACE: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

/// Repairs until `shutdown`.
pub async fn run(registry: Arc<Registry>, shutdown: CancellationToken) {
    let mut suspects = Vec::new();
    loop {
        match repair(&registry, &suspects).await {
            Ok(found) => suspects = found,
            Err(status) => tracing::warn!(error = status.message, "cannot repair the accounts of addresses and ports"),
        }
        if shutdown.run_until_cancelled(tokio::time::sleep(PERIOD)).await.is_none() {
            return;
        }
    }
}

/// Compares what is written down with what services have, and mends it. Ports that nobody has are given back when they
/// were among the suspects of the last time already: their service may not be written yet. Returns the next suspects.
pub async fn repair(registry: &Registry, suspects: &[u16]) -> Result<Vec<u16>, Status> {
    // Read before the services: what is taken later belongs to a service that is not written yet.
    let ports_before = registry.pools().ports.taken(registry).await?;
    let recorded = objects(registry, document::storage_key(addresses::resource()?, "", "")).await?;
    let services =
        objects(registry, document::storage_key(loopback::find_resource("", "v1", "services")?, "", "")).await?;
    let ports: BTreeSet<u16> = services.iter().flat_map(|service| Services.held(service).ports).collect();
    addresses_of(registry, &services, &recorded).await?;
    let unused: Vec<u16> = ports_before.into_iter().filter(|port| !ports.contains(port)).collect();
    let leaked: Vec<u16> = unused.iter().copied().filter(|port| suspects.contains(port)).collect();
    registry.pools().ports.correct(registry, &ports.into_iter().collect::<Vec<_>>(), &leaked).await?;
    Ok(unused)
}

async fn addresses_of(registry: &Registry, services: &[Value], recorded: &[Value]) -> Result<(), Status> {
    let mut used: HashMap<String, &Value> = HashMap::new();
    for service in services {
        for ip in Services.held(service).ips {
            if let Some(other) = used.insert(ip.to_string(), service) {
                let (one, other) = (named(service), named(other));
                tracing::error!(%ip, one, other, "two services have one address; create one of them again");
            }
        }
    }
    let resource = addresses::resource()?;
    for object in recorded {
        let name = meta::name(object);
        let ours = object["metadata"]["labels"][addresses::MANAGED_BY] == addresses::MANAGER;
        if used.remove(name).is_none() && ours && is_old(object) {
            tracing::info!(ip = name, "releasing an address that no service has");
            LoopbackClient::new(registry).delete(ObjectKey { resource, namespace: "", name }).await?;
        }
    }
    for (name, service) in used {
        let Ok(ip) = name.parse() else { continue };
        tracing::info!(ip = name, service = named(service), "writing down an address that a service has");
        let place = ObjectKey { resource, namespace: "", name: &name };
        match LoopbackClient::new(registry).create(place, &addresses::object(service, ip)).await {
            // Whoever wrote it down in between meant the same.
            Err(status) if status.reason == "AlreadyExists" => {}
            outcome => drop(outcome?),
        }
    }
    Ok(())
}

fn named(service: &Value) -> String {
    format!("{}/{}", meta::namespace(service), meta::name(service))
}

fn is_old(object: &Value) -> bool {
    let created = meta::string_at(object, &["metadata", "creationTimestamp"]).parse::<jiff::Timestamp>();
    created.is_ok_and(|created| clock::now().duration_since(created) > GRACE)
}

async fn objects(registry: &Registry, prefix: String) -> Result<Vec<Value>, Status> {
    let page =
        registry.store().list(ListOptions { prefix, ..Default::default() }).await.map_err(Status::internal_error)?;
    page.records.iter().map(|record| document::decode_record(record).map_err(Status::internal_error)).collect()
}
