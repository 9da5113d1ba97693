//! Endpoints of the service `kubernetes`: the addresses of all API servers that share a store. Each server renews a
//! lease under `/registry/masterleases`, as upstream's do.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use api::{Value, status::Status};
use apiserver_core::{
    document,
    loopback::{self, LoopbackClient, ObjectKey},
};
use serde_json::json;
use store::{ListOptions, Precondition, WriteRequest};
use tokio_util::sync::CancellationToken;

use crate::Server;

const LEASE_PREFIX: &str = "/registry/masterleases/";
const LEASE_TTL: Duration = Duration::from_secs(15);
const PERIOD: Duration = Duration::from_secs(10);
const NAME: &str = "kubernetes";

/// Updates the endpoints until `shutdown`, then removes this server's address.
pub async fn run_endpoint_leases(server: &Server, shutdown: &CancellationToken) {
    let Some((ip, port)) = server.shared.options.advertise else { return };
    loop {
        if let Err(status) = update_endpoints(server, ip, port, true).await {
            tracing::warn!(
                error = status.message,
                "bootstrap: updating the endpoints of the service kubernetes failed, retrying"
            );
        }
        if shutdown.run_until_cancelled(tokio::time::sleep(PERIOD)).await.is_none() {
            break;
        }
    }
    // Without a shared store no other server is left, and the next start needs the same endpoints.
    if server.shared.options.shared_store
        && let Err(status) = update_endpoints(server, ip, port, false).await
    {
        tracing::warn!(error = status.message, "bootstrap: removing this server from the endpoints failed");
    }
}

/// Writes the lease of this server and the endpoints of all live servers.
pub async fn update_endpoints(server: &Server, ip: IpAddr, port: u16, serving: bool) -> Result<(), Status> {
    let mut alive = BTreeSet::new();
    if server.shared.options.shared_store {
        write_lease(server, ip, serving).await?;
        alive = leased_addresses(server).await?;
    }
    if serving {
        alive.insert(ip);
    } else {
        alive.remove(&ip);
    }
    let ips: Vec<String> = alive.iter().map(IpAddr::to_string).collect();
    write_if_changed(server, "", "endpoints", &endpoints_object(&ips, port)).await?;
    write_if_changed(server, "discovery.k8s.io", "endpointslices", &endpoint_slice_object(&ips, ip, port)).await
}

async fn write_lease(server: &Server, ip: IpAddr, serving: bool) -> Result<(), Status> {
    let store = server.registry().store();
    let key = format!("{LEASE_PREFIX}{ip}");
    let current = store.get(&key).await.map_err(Status::internal_error)?;
    let guard = current.as_ref().map_or(Precondition::Absent, |record| Precondition::Revision(record.revision));
    if current.is_none() && !serving {
        return Ok(());
    }
    let object = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": ip.to_string()},
        "subsets": [{"addresses": [{"ip": ip.to_string()}]}]});
    let value = serving.then(|| document::encode_document(&object));
    match store.write(WriteRequest { key: key.into(), precondition: guard, value, ttl: Some(LEASE_TTL) }).await {
        // The lease expired or another server with this address was faster: the next update retries.
        Ok(_) | Err(store::StoreError::Conflict { .. }) => Ok(()),
        Err(error) => Err(Status::internal_error(error)),
    }
}

async fn leased_addresses(server: &Server) -> Result<BTreeSet<IpAddr>, Status> {
    let range = ListOptions { prefix: LEASE_PREFIX.into(), ..Default::default() };
    let page = server.registry().store().list(range).await.map_err(Status::internal_error)?;
    Ok(page.records.iter().filter_map(|record| record.key.strip_prefix(LEASE_PREFIX)?.parse().ok()).collect())
}

fn endpoints_object(ips: &[String], port: u16) -> Value {
    let addresses: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    let mut object = json!({"metadata": {"name": NAME, "namespace": "default",
        "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}});
    if !addresses.is_empty() {
        object["subsets"] = json!([{"addresses": addresses, "ports": ports}]);
    }
    object
}

fn endpoint_slice_object(ips: &[String], own: IpAddr, port: u16) -> Value {
    let family = |ip: &String| ip.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv4() == own.is_ipv4());
    let endpoint = |ip: &String| json!({"addresses": [ip], "conditions": {"ready": true}});
    let endpoints: Vec<Value> = ips.iter().filter(|ip| family(ip)).map(endpoint).collect();
    json!({
        "metadata": {"name": NAME, "namespace": "default", "labels": {"kubernetes.io/service-name": NAME}},
        "addressType": if own.is_ipv4() { "IPv4" } else { "IPv6" }, "endpoints": endpoints,
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    })
}

/// Writes an object unless the stored one is equal.
async fn write_if_changed(server: &Server, group: &str, resource: &str, wanted: &Value) -> Result<(), Status> {
    let system = LoopbackClient::new(&**server.registry());
    let place =
        ObjectKey { resource: loopback::find_resource(group, "v1", resource)?, namespace: "default", name: NAME };
    let Some(mut current) = system.read_object(place).await? else {
        return super::create_missing(system, place, wanted).await.map(drop);
    };
    let fields = ["subsets", "endpoints", "ports", "addressType"];
    if fields.iter().all(|field| current.get(*field) == wanted.get(*field)) {
        return Ok(());
    }
    for field in fields {
        match wanted.get(field) {
            Some(value) => current[field] = value.clone(),
            None => drop(api::meta::object_mut(&mut current).remove(field)),
        }
    }
    system.update_object(place, &current).await.map(drop)
}
