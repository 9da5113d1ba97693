//! Cluster IPs of services: creating an `IPAddress` object allocates its address. Ready `ServiceCIDR` objects define
//! the networks.

use std::{collections::HashSet, net::IpAddr};

use api::{Value, meta, schema::Resource, status::Status};
use apiserver_core::{
    document,
    loopback::{self, LoopbackClient, ObjectKey},
};
use serde_json::json;
use store::ListOptions;

use super::ip_network::{IpFamily, IpNetwork};
use crate::Registry;

/// The value of the label [`MANAGED_BY`].
pub const MANAGER: &str = "ipallocator.k8s.io";
/// The label of the allocator that manages an `IPAddress`.
pub const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
/// The label of the IP family.
pub const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";

/// A failed address allocation.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// No value is free.
    #[error("range is full")]
    Full,
    /// The requested value is allocated.
    #[error("provided IP is already allocated")]
    Taken,
    /// No network contains the requested address.
    #[error("the provided network does not match the current range")]
    OutOfRange,
    /// The allocation could not be stored.
    #[error("{}", .0.message)]
    Failed(Status),
}

impl From<Status> for AddressError {
    fn from(status: Status) -> Self {
        AddressError::Failed(status)
    }
}

/// The resource `ipaddresses`.
pub fn ip_address_resource() -> Result<&'static Resource, Status> {
    loopback::find_resource("networking.k8s.io", "v1", "ipaddresses")
}

/// Allocates a requested address for a service.
pub async fn allocate_address(
    registry: &Registry,
    service: &Value,
    ip: IpAddr,
    dry_run: bool,
) -> Result<(), AddressError> {
    let networks = ready_networks(registry, IpFamily::from_ip(ip)).await?;
    if !networks.iter().any(|network| network.offset_of(ip).is_some_and(|offset| network.is_usable(offset))) {
        return Err(AddressError::OutOfRange);
    }
    if dry_run { Ok(()) } else { create_ip_address(registry, service, ip).await }
}

/// Allocates any free address of a family for a service, from the upper band of a network first, so that the lower one
/// is left for requested addresses.
pub async fn allocate_any_address(
    registry: &Registry,
    service: &Value,
    family: IpFamily,
    dry_run: bool,
) -> Result<IpAddr, AddressError> {
    let mut taken = None;
    for network in ready_networks(registry, family).await? {
        if dry_run {
            return Ok(network.address_at(0));
        }
        for band in address_bands(network) {
            match allocate_from_band(registry, service, band, &mut taken).await {
                Err(AddressError::Full) => {}
                outcome => return outcome,
            }
        }
    }
    Err(AddressError::Full)
}

/// Releases an address.
pub async fn release_address(registry: &Registry, ip: IpAddr) -> Result<(), Status> {
    let key = ObjectKey { resource: ip_address_resource()?, namespace: "", name: &ip.to_string() };
    LoopbackClient::new(registry).delete_object(key).await.map(drop)
}

/// A half-open range of offsets of a network.
#[derive(Clone, Copy, Debug)]
struct AddressBand {
    network: IpNetwork,
    from: u128,
    to: u128,
}

/// The two bands of a network, as upstream splits it, the upper one first.
fn address_bands(network: IpNetwork) -> [AddressBand; 2] {
    let (first, end) = (1, network.size() - u128::from(network.family() == IpFamily::V4));
    let size = network.size();
    let reserved = if size <= 16 { 0 } else { (size / 16).clamp(16, 256) };
    let middle = (first + reserved).min(end.max(first));
    [AddressBand { network, from: middle, to: end.max(middle) }, AddressBand { network, from: first, to: middle }]
}

/// Allocates a free address of a band from a random offset on. The allocated addresses are listed after the first
/// collision.
async fn allocate_from_band(
    registry: &Registry,
    service: &Value,
    band: AddressBand,
    taken: &mut Option<HashSet<IpAddr>>,
) -> Result<IpAddr, AddressError> {
    let size = band.to - band.from;
    if size == 0 {
        return Err(AddressError::Full);
    }
    let start = fastrand::u128(..size);
    for step in 0..size {
        let ip = band.network.address_at(band.from + (start + step) % size);
        if taken.as_ref().is_some_and(|taken| taken.contains(&ip)) {
            continue;
        }
        match create_ip_address(registry, service, ip).await {
            Ok(()) => return Ok(ip),
            Err(AddressError::Taken) if taken.is_none() => *taken = Some(allocated_addresses(registry).await?),
            Err(AddressError::Taken) => {}
            Err(error) => return Err(error),
        }
    }
    Err(AddressError::Full)
}

async fn create_ip_address(registry: &Registry, service: &Value, ip: IpAddr) -> Result<(), AddressError> {
    let name = ip.to_string();
    let key = ObjectKey { resource: ip_address_resource()?, namespace: "", name: &name };
    match LoopbackClient::new(registry).create_object(key, &ip_address_object(service, ip)).await {
        Ok(_) => Ok(()),
        Err(status) if status.is_already_exists() => Err(AddressError::Taken),
        Err(status) => Err(status.into()),
    }
}

/// The `IPAddress` object of a service's address.
pub fn ip_address_object(service: &Value, ip: IpAddr) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {"name": ip.to_string(), "labels": {FAMILY: IpFamily::from_ip(ip).name(), MANAGED_BY: MANAGER}},
        "spec": {"parentRef": {
            "resource": "services", "namespace": meta::namespace(service), "name": meta::name(service),
        }},
    })
}

/// Lists all allocated addresses.
async fn allocated_addresses(registry: &Registry) -> Result<HashSet<IpAddr>, Status> {
    let prefix = document::storage_key(ip_address_resource()?, "", "");
    let range = ListOptions { prefix: prefix.clone(), ..Default::default() };
    let page = registry.store().list(range).await.map_err(Status::internal_error)?;
    Ok(page.records.iter().filter_map(|record| record.key.strip_prefix(&prefix)?.parse().ok()).collect())
}

/// Lists the networks of a family in ready `ServiceCIDR` objects.
async fn ready_networks(registry: &Registry, family: IpFamily) -> Result<Vec<IpNetwork>, Status> {
    let resource = loopback::find_resource("networking.k8s.io", "v1", "servicecidrs")?;
    let range = ListOptions { prefix: document::storage_key(resource, "", ""), ..Default::default() };
    let page = registry.store().list(range).await.map_err(Status::internal_error)?;
    let mut networks = Vec::new();
    for record in &page.records {
        let object = document::decode_record(record).map_err(Status::internal_error)?;
        if is_ready(&object) {
            let texts = meta::list_at(&object, &["spec", "cidrs"]).iter().filter_map(Value::as_str);
            networks.extend(texts.filter_map(|text| text.parse::<IpNetwork>().ok()));
        }
    }
    networks.retain(|network| network.family() == family);
    Ok(networks)
}

fn is_ready(object: &Value) -> bool {
    let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    !meta::is_deleting(object) && meta::list_at(object, &["status", "conditions"]).iter().any(ready)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_band_comes_first() {
        let check = |network: &str, want: [(u128, u128); 2]| {
            let got = address_bands(network.parse().unwrap()).map(|band| (band.from, band.to));
            assert_eq!(got, want, "{network}");
        };
        check("10.96.0.0/16", [(257, 65535), (1, 257)]);
        check("10.0.0.0/24", [(17, 255), (1, 17)]);
        check("10.0.0.0/28", [(1, 15), (1, 1)]);
        check("fd00::/112", [(257, 65536), (1, 257)]);
        check("10.0.0.0/32", [(1, 1), (1, 1)]);
    }
}
