//! Allocation of cluster-unique values: service cluster IPs and node ports.
//!
//! A strategy with an [`Allocator`] allocates before its object is written ([`reserve`]). A failed write releases the
//! new allocations, a successful one those that the object no longer uses ([`commit_or_release`]). A crash in between
//! leaks values and never allocates one twice; [`run_repair`] releases leaked values.

pub mod ip_addresses;
mod ip_families;
pub mod ip_network;
pub mod node_port_allocator;
mod node_port_plan;
pub mod repair;
pub mod service;
pub mod service_fields;

use std::{net::IpAddr, ops::RangeInclusive};

use api::{Value, status::Status};
use async_trait::async_trait;
use ip_network::{IpFamily, IpNetwork};
pub use repair::run_repair;

use crate::Registry;

/// The allocation pools of the cluster.
#[derive(Debug)]
pub struct AllocationPools {
    /// The IP families of the cluster, the default one first.
    pub families: Vec<IpFamily>,
    /// Node ports.
    pub ports: node_port_allocator::NodePortAllocator,
}

impl AllocationPools {
    /// Creates the configured pools.
    pub fn new(networks: &[IpNetwork], ports: RangeInclusive<u16>) -> Self {
        Self {
            families: networks.iter().map(IpNetwork::family).collect(),
            ports: node_port_allocator::NodePortAllocator::new(ports),
        }
    }
}

/// A write whose object needs allocated values.
pub struct AllocationRequest<'a> {
    /// The new object.
    pub object: &'a mut Value,
    /// The current object; `None` for a create.
    pub current: Option<&'a Value>,
    /// Whether nothing is stored.
    pub dry_run: bool,
}

/// Allocates the cluster-unique values of a resource's objects.
#[async_trait]
pub trait Allocator: Sync {
    /// Called once for a write, before its object is prepared and validated; may change it.
    async fn allocate_values(&self, registry: &Registry, write: AllocationRequest<'_>) -> Result<Reservation, Status>;

    /// The values that a removed object releases.
    fn allocated_values(&self, object: &Value) -> AllocatedValues;
}

/// The allocated values of one object.
#[derive(Clone, Debug, Default)]
pub struct AllocatedValues {
    /// Addresses.
    pub ips: Vec<IpAddr>,
    /// Node ports.
    pub ports: Vec<u16>,
}

impl AllocatedValues {
    fn is_empty(&self) -> bool {
        self.ips.is_empty() && self.ports.is_empty()
    }
}

/// The values that a write allocated and those that it no longer uses.
#[derive(Debug, Default)]
pub struct Reservation {
    taken: AllocatedValues,
    unneeded: AllocatedValues,
}

/// Allocates the values of a write.
pub async fn reserve(
    registry: &Registry,
    allocator: Option<&dyn Allocator>,
    write: AllocationRequest<'_>,
) -> Result<Reservation, Status> {
    match allocator {
        Some(allocator) => allocator.allocate_values(registry, write).await,
        None => Ok(Reservation::default()),
    }
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The object was written.
    Written,
    /// The object was not written.
    Rejected,
    /// The store did not report a result.
    Unknown,
}

impl WriteOutcome {
    /// The outcome of a write with this result; server errors are unknown.
    pub fn from_result<T>(outcome: &Result<T, Status>) -> Self {
        match outcome {
            Ok(_) => WriteOutcome::Written,
            Err(status) if status.code >= 500 => WriteOutcome::Unknown,
            Err(_) => WriteOutcome::Rejected,
        }
    }
}

/// Releases the values that are unused after the write. After an unknown outcome all stay allocated until the next
/// repair.
pub async fn commit_or_release(registry: &Registry, reservation: Reservation, fate: WriteOutcome) {
    match fate {
        WriteOutcome::Written => release_values(registry, reservation.unneeded).await,
        WriteOutcome::Rejected => release_values(registry, reservation.taken).await,
        WriteOutcome::Unknown => {}
    }
}

/// Releases the values of a removed object.
pub async fn release_removed(registry: &Registry, allocator: Option<&dyn Allocator>, object: &Value) {
    if let Some(allocator) = allocator {
        release_values(registry, allocator.allocated_values(object)).await;
    }
}

/// Releases values; failures are left to the next repair.
async fn release_values(registry: &Registry, holdings: AllocatedValues) {
    if holdings.is_empty() {
        return;
    }
    for ip in holdings.ips {
        if let Err(status) = ip_addresses::release_address(registry, ip).await {
            tracing::warn!(%ip, error = status.message, "allocator: releasing a cluster IP failed, the next repair retries");
        }
    }
    if let Err(status) = registry.pools().ports.release_ports(registry, &holdings.ports).await {
        tracing::warn!(ports = ?holdings.ports, error = status.message, "allocator: releasing node ports failed, the next repair retries");
    }
}
