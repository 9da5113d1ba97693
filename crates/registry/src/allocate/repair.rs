//! Repairs the allocation of cluster IPs and node ports from the existing services, at start and periodically:
//! allocates used values, releases unused ones.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use api::{Value, meta, status::Status};
use apiserver_core::{
    clock, document,
    loopback::{self, LoopbackClient, ObjectKey},
};
use store::ListOptions;
use tokio_util::sync::CancellationToken;

use super::{Allocator, ip_addresses, service::ServiceAllocator};
use crate::Registry;

/// Time between repairs.
const PERIOD: Duration = Duration::from_secs(180);
/// Minimum age of an unused address before it is released, because its service may not be written yet.
const GRACE: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

/// Repairs allocations until `shutdown`.
pub async fn run_repair(registry: Arc<Registry>, shutdown: CancellationToken) {
    let mut suspects = Vec::new();
    loop {
        match repair_allocations(&registry, &suspects).await {
            Ok(found) => suspects = found,
            Err(status) => {
                tracing::warn!(error = status.message, "allocator: repair failed, retrying after the period")
            }
        }
        if shutdown.run_until_cancelled(tokio::time::sleep(PERIOD)).await.is_none() {
            return;
        }
    }
}

/// Repairs once and returns the unused ports. An unused port is released if it is among `suspects`, the unused ports
/// of the previous repair, because its service may not be written yet.
pub async fn repair_allocations(registry: &Registry, suspects: &[u16]) -> Result<Vec<u16>, Status> {
    // Read before the services: later allocations belong to services that are not written yet.
    let ports_before = registry.pools().ports.allocated_ports(registry).await?;
    let recorded = read_objects(registry, document::storage_key(ip_addresses::ip_address_resource()?, "", "")).await?;
    let services =
        read_objects(registry, document::storage_key(loopback::find_resource("", "v1", "services")?, "", "")).await?;
    let ports: BTreeSet<u16> =
        services.iter().flat_map(|service| ServiceAllocator.allocated_values(service).ports).collect();
    repair_addresses(registry, &services, &recorded).await?;
    let unused: Vec<u16> = ports_before.into_iter().filter(|port| !ports.contains(port)).collect();
    let leaked: Vec<u16> = unused.iter().copied().filter(|port| suspects.contains(port)).collect();
    registry.pools().ports.reconcile_ports(registry, &ports.into_iter().collect::<Vec<_>>(), &leaked).await?;
    Ok(unused)
}

async fn repair_addresses(registry: &Registry, services: &[Value], recorded: &[Value]) -> Result<(), Status> {
    let mut used: HashMap<String, &Value> = HashMap::new();
    for service in services {
        for ip in ServiceAllocator.allocated_values(service).ips {
            if let Some(other) = used.insert(ip.to_string(), service) {
                let (one, other) = (namespaced_name(service), namespaced_name(other));
                tracing::error!(%ip, one, other, "allocator: two services have one cluster IP, recreate one of them");
            }
        }
    }
    let resource = ip_addresses::ip_address_resource()?;
    for object in recorded {
        let name = meta::name(object);
        let ours = object["metadata"]["labels"][ip_addresses::MANAGED_BY] == ip_addresses::MANAGER;
        if used.remove(name).is_none() && ours && is_old(object) {
            tracing::info!(ip = name, "allocator: releasing an unused cluster IP");
            LoopbackClient::new(registry).delete_object(ObjectKey { resource, namespace: "", name }).await?;
        }
    }
    for (name, service) in used {
        let Ok(ip) = name.parse() else { continue };
        tracing::info!(
            ip = name,
            service = namespaced_name(service),
            "allocator: recording the cluster IP of a service"
        );
        let key = ObjectKey { resource, namespace: "", name: &name };
        match LoopbackClient::new(registry).create_object(key, &ip_addresses::ip_address_object(service, ip)).await {
            // Another server recorded it first.
            Err(status) if status.is_already_exists() => {}
            outcome => drop(outcome?),
        }
    }
    Ok(())
}

fn namespaced_name(service: &Value) -> String {
    format!("{}/{}", meta::namespace(service), meta::name(service))
}

fn is_old(object: &Value) -> bool {
    let created = meta::string_at(object, &["metadata", "creationTimestamp"]).parse::<jiff::Timestamp>();
    created.is_ok_and(|created| clock::now().duration_since(created) > GRACE)
}

async fn read_objects(registry: &Registry, prefix: String) -> Result<Vec<Value>, Status> {
    let page =
        registry.store().list(ListOptions { prefix, ..Default::default() }).await.map_err(Status::internal_error)?;
    page.records.iter().map(|record| document::decode_record(record).map_err(Status::internal_error)).collect()
}
