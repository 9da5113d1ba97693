//! What the cluster hands out only once: addresses of services and ports on nodes.
//!
//! A strategy that names an [`Allocator`] gets what it needs before its object is written ([`reserve`]); what was taken is
//! given back when the write does not happen, and what the object no longer needs when it does ([`commit_or_release`]). It is better
//! to leak than to hand out twice: whoever dies in between leaves something that [`run`] finds later.

pub mod addresses;
mod families;
pub mod network;
mod node_ports;
pub mod ports;
pub mod repair;
pub mod service;

use std::{net::IpAddr, ops::RangeInclusive};

use api::{Value, schema::Resource, status::Status};
use async_trait::async_trait;
use network::{Family, Network};
pub use repair::run;

use crate::{Registry, strategies};

/// What can be handed out.
#[derive(Debug)]
pub struct Pools {
    /// The families that services can have addresses of, the default one first.
    pub families: Vec<Family>,
    /// Ports on nodes.
    pub ports: ports::Ports,
}

impl Pools {
    /// The pools that the settings name.
    pub fn new(networks: &[Network], ports: RangeInclusive<u16>) -> Self {
        Self { families: networks.iter().map(Network::family).collect(), ports: ports::Ports::new(ports) }
    }
}

/// A write that needs something.
pub struct AllocationRequest<'a> {
    /// The object that is to be written.
    pub object: &'a mut Value,
    /// The object that is there.
    pub current: Option<&'a Value>,
    /// Whether nothing is written in the end.
    pub dry_run: bool,
}

/// Who hands out what objects of a resource may have only once.
#[async_trait]
pub trait Allocator: Sync {
    /// Called once for a write, before its object is prepared and validated; may change it.
    async fn begin(&self, registry: &Registry, write: AllocationRequest<'_>) -> Result<Reservation, Status>;

    /// What a removed object held.
    fn held(&self, object: &Value) -> Holdings;
}

/// Things that are held by one object.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    /// Addresses.
    pub ips: Vec<IpAddr>,
    /// Ports on nodes.
    pub ports: Vec<u16>,
}

impl Holdings {
    fn is_empty(&self) -> bool {
        self.ips.is_empty() && self.ports.is_empty()
    }
}

/// What a write took, and what it will no longer need.
#[derive(Debug, Default)]
pub struct Reservation {
    taken: Holdings,
    unneeded: Holdings,
}

/// Takes what a write needs.
pub async fn reserve(
    registry: &Registry,
    resource: &Resource,
    write: AllocationRequest<'_>,
) -> Result<Reservation, Status> {
    match strategies::of(resource).allocator() {
        Some(allocator) => allocator.begin(registry, write).await,
        None => Ok(Reservation::default()),
    }
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It is done.
    Written,
    /// It is not, and will not be.
    Refused,
    /// Nobody knows.
    Unknown,
}

impl WriteOutcome {
    /// That of a write which came to this.
    pub fn of<T>(outcome: &Result<T, Status>) -> Self {
        match outcome {
            Ok(_) => WriteOutcome::Written,
            Err(status) if status.code >= 500 => WriteOutcome::Unknown,
            Err(_) => WriteOutcome::Refused,
        }
    }
}

/// Gives back what is not needed now that the fate of the write is known. Where it is not, what was taken stays taken until
/// the next repair.
pub async fn commit_or_release(registry: &Registry, reservation: Reservation, fate: WriteOutcome) {
    match fate {
        WriteOutcome::Written => release(registry, reservation.unneeded).await,
        WriteOutcome::Refused => release(registry, reservation.taken).await,
        WriteOutcome::Unknown => {}
    }
}

/// Gives back what a removed object held.
pub async fn removed(registry: &Registry, resource: &Resource, object: &Value) {
    if let Some(allocator) = strategies::of(resource).allocator() {
        release(registry, allocator.held(object)).await;
    }
}

/// Gives things back; what cannot be given back now is left to the next repair.
async fn release(registry: &Registry, holdings: Holdings) {
    if holdings.is_empty() {
        return;
    }
    for ip in holdings.ips {
        if let Err(status) = addresses::release(registry, ip).await {
            tracing::warn!(%ip, error = status.message, "cannot release an address");
        }
    }
    if let Err(status) = registry.pools().ports.release(registry, &holdings.ports).await {
        tracing::warn!(ports = ?holdings.ports, error = status.message, "cannot release node ports");
    }
}
