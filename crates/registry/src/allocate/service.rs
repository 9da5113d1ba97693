//! The allocator of services: a cluster IP per family, a node port per port if the type needs one, and a health check
//! node port. Values that an update omits are kept.

use std::{collections::HashMap, net::IpAddr};

use api::{
    Value, meta,
    status::Status,
    validate::{self, FieldError},
};
use async_trait::async_trait;
use serde_json::json;

use super::{
    AllocatedValues, AllocationRequest, Allocator, Reservation, ip_addresses,
    ip_families::ServiceIpFields,
    ip_network::IpFamily,
    node_port_allocator::PortRequest,
    node_port_plan::NodePortPlan,
    service_fields::{
        invalid_service, needs_health_check, needs_node_ports, node_ports_of, nonzero_port, service_type,
    },
};
use crate::Registry;

/// The allocator of services.
pub struct ServiceAllocator;

#[async_trait]
impl Allocator for ServiceAllocator {
    async fn allocate_values(&self, registry: &Registry, write: AllocationRequest<'_>) -> Result<Reservation, Status> {
        let AllocationRequest { object, current, dry_run } = write;
        if let Some(current) = current {
            keep_allocated(object, current);
        }
        let mut taking = ServiceAllocation { registry, current, dry_run, reservation: Reservation::default() };
        let outcome = match taking.allocate_cluster_ips(object).await {
            Ok(()) => taking.allocate_node_ports(object).await,
            Err(status) => Err(status),
        };
        let reservation = taking.reservation;
        match outcome {
            Ok(()) if dry_run => Ok(Reservation::default()),
            Ok(()) => Ok(reservation),
            Err(status) => {
                super::release_values(registry, reservation.taken).await;
                Err(status)
            }
        }
    }

    fn allocated_values(&self, service: &Value) -> AllocatedValues {
        let fields = ServiceIpFields::from_service(service);
        let ips = fields.ips.iter().filter(|_| fields.needs_ip()).filter_map(|ip| ip.parse().ok()).collect();
        let mut ports = node_ports_of(service);
        if needs_health_check(service) {
            ports.extend(nonzero_port(&service["spec"]["healthCheckNodePort"]));
        }
        AllocatedValues { ips, ports: valid_ports(ports).collect() }
    }
}

/// The allocations of one write.
struct ServiceAllocation<'a> {
    registry: &'a Registry,
    current: Option<&'a Value>,
    dry_run: bool,
    reservation: Reservation,
}

impl ServiceAllocation<'_> {
    async fn allocate_cluster_ips(&mut self, service: &mut Value) -> Result<(), Status> {
        let (mut fields, old) =
            (ServiceIpFields::from_service(service), self.current.map(ServiceIpFields::from_service));
        fields.normalize_cluster_ips(old.as_ref());
        if !fields.needs_ip() {
            self.release_ips_from(old.as_ref(), 0);
            fields.write_to(service);
            return Ok(());
        }
        if old.as_ref().is_some_and(|old| fields.keeps_addresses(old)) {
            fields.write_to(service);
            return Ok(());
        }
        fields.default_policy(old.as_ref());
        fields.write_to(service);
        let errors = validate::service_addresses(service, self.current);
        if !errors.is_empty() {
            return Err(invalid_service(service, &errors));
        }
        let families = &self.registry.pools().families;
        fields.complete_families(old.as_ref(), families).map_err(|errors| invalid_service(service, &errors))?;
        self.release_ips_from(old.as_ref(), fields.families.len().max(1));
        let known = old.filter(ServiceIpFields::needs_ip).map(|old| old.ips).unwrap_or_default();
        let taken = self.allocate_ips(service, &mut fields, &known).await;
        fields.write_to(service);
        taken
    }

    /// Marks the old addresses from index `from` on for release.
    fn release_ips_from(&mut self, old: Option<&ServiceIpFields>, from: usize) {
        let ips = old.filter(|old| old.needs_ip()).into_iter().flat_map(|old| old.ips.iter().skip(from));
        self.reservation.unneeded.ips.extend(ips.filter_map(|ip| ip.parse::<IpAddr>().ok()));
    }

    /// Allocates an address for each family without one; `known` are the current addresses.
    async fn allocate_ips(
        &mut self,
        service: &Value,
        fields: &mut ServiceIpFields,
        known: &[String],
    ) -> Result<(), Status> {
        if fields.is_headless() || known.first().is_some_and(|ip| ip == "None") {
            return Ok(());
        }
        for at in known.len()..fields.families.len() {
            let family = IpFamily::from_name(&fields.families[at]).unwrap_or(IpFamily::V4);
            let wish = fields.ips.get(at).cloned().filter(|ip| !ip.is_empty());
            let ip = match self.allocate_ip(service, family, wish.as_deref()).await {
                Ok(ip) => ip,
                Err(error) => {
                    fields.ips.resize(fields.ips.len().max(at + 1), String::new());
                    return Err(ip_allocation_failure(service, &fields.ips, wish.as_deref(), error));
                }
            };
            if !self.dry_run {
                self.reservation.taken.ips.push(ip);
            }
            if wish.is_none() {
                fields.ips.resize(at, String::new());
                fields.ips.push(ip.to_string());
            }
        }
        if let Some(first) = fields.ips.first() {
            fields.ip.clone_from(first);
        }
        Ok(())
    }

    async fn allocate_ip(
        &self,
        service: &Value,
        family: IpFamily,
        wish: Option<&str>,
    ) -> Result<IpAddr, ip_addresses::AddressError> {
        match wish.map(str::parse::<IpAddr>) {
            Some(Ok(ip)) => ip_addresses::allocate_address(self.registry, service, ip, self.dry_run).await.map(|()| ip),
            Some(Err(_)) => Err(ip_addresses::AddressError::OutOfRange),
            None => ip_addresses::allocate_any_address(self.registry, service, family, self.dry_run).await,
        }
    }

    async fn allocate_node_ports(&mut self, service: &mut Value) -> Result<(), Status> {
        let mut wishes = NodePortPlan::default();
        if matches!(service_type(service), "NodePort" | "LoadBalancer") {
            match self.current {
                Some(current) => wishes.plan_update(service, current),
                None => wishes.plan_create(service),
            }
        }
        if needs_health_check(service) && !self.current.is_some_and(needs_health_check) {
            wishes.add_health_check(
                nonzero_port(&service["spec"]["healthCheckNodePort"]).map_or(PortRequest::Any, PortRequest::Port),
            );
        }
        let pool = &self.registry.pools().ports;
        let taken = match self.dry_run {
            true => pool.preview_ports(self.registry, &wishes.requests).await,
            false => pool.allocate_ports(self.registry, &wishes.requests).await,
        };
        let taken = taken.map_err(|(at, error)| wishes.failure_status(service, at, &error))?;
        wishes.assign_ports(service, &taken);
        if !self.dry_run {
            self.reservation.taken.ports.extend(valid_ports(taken));
        }
        if let Some(current) = self.current {
            self.reservation.unneeded.ports.extend(valid_ports(unneeded_ports(service, current)));
        }
        Ok(())
    }
}

fn ip_allocation_failure(
    service: &Value,
    ips: &[String],
    wish: Option<&str>,
    error: ip_addresses::AddressError,
) -> Status {
    let name = meta::name(service);
    let message = match (wish, error) {
        (Some(ip), error) => format!("failed to allocate IP {ip}: {error}"),
        (None, ip_addresses::AddressError::Full) => {
            return Status::internal_error(format!(
                "failed to allocate a serviceIP for Service {name:?}: range is full"
            ));
        }
        (None, error) => format!("failed to allocate IP: {error}"),
    };
    invalid_service(service, &[FieldError::invalid("spec.clusterIPs", json!(ips), message)])
}

fn unneeded_ports(service: &Value, current: &Value) -> Vec<i64> {
    let keeps = matches!(service_type(service), "NodePort" | "LoadBalancer");
    let now = if keeps { node_ports_of(service) } else { Vec::new() };
    let mut unneeded: Vec<i64> = node_ports_of(current).into_iter().filter(|port| !now.contains(port)).collect();
    if needs_health_check(current) && !needs_health_check(service) {
        unneeded.extend(nonzero_port(&current["spec"]["healthCheckNodePort"]));
    }
    unneeded
}

/// Copies allocated values that an update omits.
fn keep_allocated(service: &mut Value, current: &Value) {
    let (mut new, old) = (ServiceIpFields::from_service(service), ServiceIpFields::from_service(current));
    if old.needs_ip() && new.needs_ip() {
        if new.ip.is_empty() {
            new.ip.clone_from(&old.ip);
        }
        if new.ips.is_empty() {
            new.ips.clone_from(&old.ips);
        }
        new.write_to(service);
    }
    if needs_node_ports(current) && needs_node_ports(service) {
        keep_node_ports(service, current);
    }
    if needs_health_check(current)
        && needs_health_check(service)
        && nonzero_port(&service["spec"]["healthCheckNodePort"]).is_none()
    {
        service["spec"]["healthCheckNodePort"] = current["spec"]["healthCheckNodePort"].clone();
    }
}

fn keep_node_ports(service: &mut Value, current: &Value) {
    let (had, now) = (node_ports_of(current), node_ports_of(service));
    let by_name: HashMap<String, i64> = meta::list_at(current, &["spec", "ports"])
        .iter()
        .filter_map(|entry| Some((meta::string_at(entry, &["name"]).to_owned(), nonzero_port(&entry["nodePort"])?)))
        .collect();
    let Some(list) = service["spec"]["ports"].as_array_mut() else { return };
    for entry in list.iter_mut().filter(|entry| nonzero_port(&entry["nodePort"]).is_none()) {
        let before = by_name.get(meta::string_at(entry, &["name"]));
        if let Some(before) = before.filter(|port| !(had.contains(port) && now.contains(port))) {
            entry["nodePort"] = (*before).into();
        }
    }
}

/// The numbers that are valid ports.
fn valid_ports(ports: Vec<i64>) -> impl Iterator<Item = u16> {
    ports.into_iter().filter_map(|port| u16::try_from(port).ok())
}
