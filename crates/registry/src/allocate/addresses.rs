//! Addresses of services: an `IPAddress` object per address, whose creation is the allocation. Which addresses there are
//! say the `ServiceCIDR` objects that are ready.

use std::{collections::HashSet, net::IpAddr};

use api::{Value, meta, schema::Resource, status::Status};
use apiserver_core::{
    document, loopback,
    loopback::{LoopbackClient, ObjectKey},
};
use serde_json::json;
use store::ListOptions;

use super::network::{Family, Network};
use crate::Registry;

/// Who manages the objects, as their label says.
pub const MANAGER: &str = "ipallocator.k8s.io";
/// The label with the manager.
pub const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
/// The label with the family.
pub const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";

/// Why no address was to be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// None is free.
    #[error("range is full")]
    Full,
    /// Somebody has it.
    #[error("provided IP is already allocated")]
    Taken,
    /// No range has it.
    #[error("the provided network does not match the current range")]
    OutOfRange,
    /// It could not be written down.
    #[error("{}", .0.message)]
    Failed(Status),
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Error::Failed(status)
    }
}

/// The row of `IPAddress`.
pub fn resource() -> Result<&'static Resource, Status> {
    loopback::find_resource("networking.k8s.io", "v1", "ipaddresses")
}

/// Takes a certain address for a service.
pub async fn take(registry: &Registry, service: &Value, ip: IpAddr, dry_run: bool) -> Result<(), Error> {
    let networks = networks(registry, Family::of(ip)).await?;
    if !networks.iter().any(|network| network.offset(ip).is_some_and(|offset| network.is_usable(offset))) {
        return Err(Error::OutOfRange);
    }
    if dry_run { Ok(()) } else { record(registry, service, ip).await }
}

/// Takes any free address of a family for a service: from the upper part of a range first, so that the lower one is left
/// for addresses that are asked for by number.
pub async fn take_any(registry: &Registry, service: &Value, family: Family, dry_run: bool) -> Result<IpAddr, Error> {
    let mut taken = None;
    for network in networks(registry, family).await? {
        if dry_run {
            return Ok(network.at(0));
        }
        for band in bands(network) {
            match take_from(registry, service, band, &mut taken).await {
                Err(Error::Full) => {}
                outcome => return outcome,
            }
        }
    }
    Err(Error::Full)
}

/// Gives an address back.
pub async fn release(registry: &Registry, ip: IpAddr) -> Result<(), Status> {
    let place = ObjectKey { resource: resource()?, namespace: "", name: &ip.to_string() };
    LoopbackClient::new(registry).delete(place).await.map(drop)
}

/// A part of a network: offsets from the first to before the second.
#[derive(Clone, Copy, Debug)]
struct Band {
    network: Network,
    from: u128,
    to: u128,
}

/// Upstream's two parts of a network, the upper one first.
fn bands(network: Network) -> [Band; 2] {
    let (first, end) = (1, network.size() - u128::from(network.family() == Family::V4));
    let size = network.size();
    let reserved = if size <= 16 { 0 } else { (size / 16).clamp(16, 256) };
    let middle = (first + reserved).min(end.max(first));
    [Band { network, from: middle, to: end.max(middle) }, Band { network, from: first, to: middle }]
}

/// A free address of a band, from a random place on. What is taken is read only once a guess has failed.
async fn take_from(
    registry: &Registry,
    service: &Value,
    band: Band,
    taken: &mut Option<HashSet<IpAddr>>,
) -> Result<IpAddr, Error> {
    let size = band.to - band.from;
    if size == 0 {
        return Err(Error::Full);
    }
    let start = fastrand::u128(..size);
    for step in 0..size {
        let ip = band.network.at(band.from + (start + step) % size);
        if taken.as_ref().is_some_and(|taken| taken.contains(&ip)) {
            continue;
        }
        match record(registry, service, ip).await {
            Ok(()) => return Ok(ip),
            Err(Error::Taken) if taken.is_none() => *taken = Some(all(registry).await?),
            Err(Error::Taken) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::Full)
}

async fn record(registry: &Registry, service: &Value, ip: IpAddr) -> Result<(), Error> {
    let name = ip.to_string();
    let place = ObjectKey { resource: resource()?, namespace: "", name: &name };
    match LoopbackClient::new(registry).create(place, &object(service, ip)).await {
        Ok(_) => Ok(()),
        Err(status) if status.reason == "AlreadyExists" => Err(Error::Taken),
        Err(status) => Err(status.into()),
    }
}

/// The object that says that a service has an address.
pub fn object(service: &Value, ip: IpAddr) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {"name": ip.to_string(), "labels": {FAMILY: Family::of(ip).name(), MANAGED_BY: MANAGER}},
        "spec": {"parentRef": {
            "resource": "services", "namespace": meta::namespace(service), "name": meta::name(service),
        }},
    })
}

/// All addresses that are taken.
async fn all(registry: &Registry) -> Result<HashSet<IpAddr>, Status> {
    let prefix = document::storage_key(resource()?, "", "");
    let range = ListOptions { prefix: prefix.clone(), ..Default::default() };
    let page = registry.store().list(range).await.map_err(Status::internal_error)?;
    Ok(page.records.iter().filter_map(|record| record.key.strip_prefix(&prefix)?.parse().ok()).collect())
}

/// The ranges of a family that are ready.
async fn networks(registry: &Registry, family: Family) -> Result<Vec<Network>, Status> {
    let resource = loopback::find_resource("networking.k8s.io", "v1", "servicecidrs")?;
    let range = ListOptions { prefix: document::storage_key(resource, "", ""), ..Default::default() };
    let page = registry.store().list(range).await.map_err(Status::internal_error)?;
    let mut networks = Vec::new();
    for record in &page.records {
        let object = document::decode_record(record).map_err(Status::internal_error)?;
        if is_ready(&object) {
            let texts = meta::list_at(&object, &["spec", "cidrs"]).iter().filter_map(Value::as_str);
            networks.extend(texts.filter_map(|text| text.parse::<Network>().ok()));
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
    fn the_upper_part_comes_first() {
        let check = |network: &str, want: [(u128, u128); 2]| {
            let got = bands(network.parse().unwrap()).map(|band| (band.from, band.to));
            assert_eq!(got, want, "{network}");
        };
        check("10.96.0.0/16", [(257, 65535), (1, 257)]);
        check("10.0.0.0/24", [(17, 255), (1, 17)]);
        check("10.0.0.0/28", [(1, 15), (1, 1)]);
        check("fd00::/112", [(257, 65536), (1, 257)]);
        check("10.0.0.0/32", [(1, 1), (1, 1)]);
    }
}
