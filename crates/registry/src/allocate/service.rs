//! What a service needs: an address of each of its families, a port on all nodes for each of its ports where its type says
//! so, and one more for health checks. Values that a client left out of an update stay as they were.

use std::{collections::HashMap, net::IpAddr};

use api::{
    Value, meta,
    status::Status,
    validate::{self, FieldError},
};
use apiserver_core::loopback;
use async_trait::async_trait;
use serde_json::json;

use super::{
    AllocationRequest, Allocator, Holdings, Reservation, addresses, families::Fields, network::Family,
    node_ports::Wishes, ports::Wish,
};
use crate::Registry;

/// The allocator of services.
pub struct Services;

#[async_trait]
impl Allocator for Services {
    async fn begin(&self, registry: &Registry, write: AllocationRequest<'_>) -> Result<Reservation, Status> {
        let AllocationRequest { object, current, dry_run } = write;
        if let Some(current) = current {
            keep_allocated(object, current);
        }
        let mut taking = Taking { registry, current, dry_run, reservation: Reservation::default() };
        let outcome = match taking.cluster_ips(object).await {
            Ok(()) => taking.node_ports(object).await,
            Err(status) => Err(status),
        };
        let reservation = taking.reservation;
        match outcome {
            Ok(()) if dry_run => Ok(Reservation::default()),
            Ok(()) => Ok(reservation),
            Err(status) => {
                super::release(registry, reservation.taken).await;
                Err(status)
            }
        }
    }

    fn held(&self, service: &Value) -> Holdings {
        let fields = Fields::of(service);
        let ips = fields.ips.iter().filter(|_| fields.needs_ip()).filter_map(|ip| ip.parse().ok()).collect();
        let mut ports = node_ports_of(service);
        if needs_health_check(service) {
            ports.extend(port(&service["spec"]["healthCheckNodePort"]));
        }
        Holdings { ips, ports: numbers(ports).collect() }
    }
}

pub(super) fn invalid(service: &Value, errors: &[FieldError]) -> Status {
    match loopback::find_resource("", "v1", "services") {
        Ok(resource) => Status::invalid_object(resource, meta::name(service), errors),
        Err(status) => status,
    }
}

/// What is taken for one write.
struct Taking<'a> {
    registry: &'a Registry,
    current: Option<&'a Value>,
    dry_run: bool,
    reservation: Reservation,
}

impl Taking<'_> {
    async fn cluster_ips(&mut self, service: &mut Value) -> Result<(), Status> {
        let (mut fields, old) = (Fields::of(service), self.current.map(Fields::of));
        fields.normalize(old.as_ref());
        if !fields.needs_ip() {
            self.unneeded_ips(old.as_ref(), 0);
            fields.write(service);
            return Ok(());
        }
        if old.as_ref().is_some_and(|old| fields.is_settled(old)) {
            fields.write(service);
            return Ok(());
        }
        fields.default_policy(old.as_ref());
        fields.write(service);
        let errors = validate::service_addresses(service, self.current);
        if !errors.is_empty() {
            return Err(invalid(service, &errors));
        }
        let families = &self.registry.pools().families;
        fields.complete(old.as_ref(), families).map_err(|errors| invalid(service, &errors))?;
        self.unneeded_ips(old.as_ref(), fields.families.len().max(1));
        let known = old.filter(Fields::needs_ip).map(|old| old.ips).unwrap_or_default();
        let taken = self.take_ips(service, &mut fields, &known).await;
        fields.write(service);
        taken
    }

    /// The addresses from there on will not be needed any more.
    fn unneeded_ips(&mut self, old: Option<&Fields>, from: usize) {
        let ips = old.filter(|old| old.needs_ip()).into_iter().flat_map(|old| old.ips.iter().skip(from));
        self.reservation.unneeded.ips.extend(ips.filter_map(|ip| ip.parse::<IpAddr>().ok()));
    }

    /// An address for each family that has none yet; `known` are those that the service has already.
    async fn take_ips(&mut self, service: &Value, fields: &mut Fields, known: &[String]) -> Result<(), Status> {
        if fields.is_headless() || known.first().is_some_and(|ip| ip == "None") {
            return Ok(());
        }
        for at in known.len()..fields.families.len() {
            let family = Family::named(&fields.families[at]).unwrap_or(Family::V4);
            let wish = fields.ips.get(at).cloned().filter(|ip| !ip.is_empty());
            let ip = match self.take_ip(service, family, wish.as_deref()).await {
                Ok(ip) => ip,
                Err(error) => {
                    fields.ips.resize(fields.ips.len().max(at + 1), String::new());
                    return Err(no_ip(service, &fields.ips, wish.as_deref(), error));
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

    async fn take_ip(&self, service: &Value, family: Family, wish: Option<&str>) -> Result<IpAddr, addresses::Error> {
        match wish.map(str::parse::<IpAddr>) {
            Some(Ok(ip)) => addresses::take(self.registry, service, ip, self.dry_run).await.map(|()| ip),
            Some(Err(_)) => Err(addresses::Error::OutOfRange),
            None => addresses::take_any(self.registry, service, family, self.dry_run).await,
        }
    }

    async fn node_ports(&mut self, service: &mut Value) -> Result<(), Status> {
        let mut wishes = Wishes::default();
        if matches!(kind(service), "NodePort" | "LoadBalancer") {
            match self.current {
                Some(current) => wishes.change(service, current),
                None => wishes.create(service),
            }
        }
        if needs_health_check(service) && !self.current.is_some_and(needs_health_check) {
            wishes.health(port(&service["spec"]["healthCheckNodePort"]).map_or(Wish::Any, Wish::Port));
        }
        let pool = &self.registry.pools().ports;
        let taken = match self.dry_run {
            true => pool.try_take(self.registry, &wishes.wishes).await,
            false => pool.take(self.registry, &wishes.wishes).await,
        };
        let taken = taken.map_err(|(at, error)| wishes.refused(service, at, &error))?;
        wishes.assign(service, &taken);
        if !self.dry_run {
            self.reservation.taken.ports.extend(numbers(taken));
        }
        if let Some(current) = self.current {
            self.reservation.unneeded.ports.extend(numbers(unneeded_ports(service, current)));
        }
        Ok(())
    }
}

fn no_ip(service: &Value, ips: &[String], wish: Option<&str>, error: addresses::Error) -> Status {
    let name = meta::name(service);
    let message = match (wish, error) {
        (Some(ip), error) => format!("failed to allocate IP {ip}: {error}"),
        (None, addresses::Error::Full) => {
            return Status::internal_error(format!(
                "failed to allocate a serviceIP for Service {name:?}: range is full"
            ));
        }
        (None, error) => format!("failed to allocate IP: {error}"),
    };
    invalid(service, &[FieldError::invalid("spec.clusterIPs", json!(ips), message)])
}

fn unneeded_ports(service: &Value, current: &Value) -> Vec<i64> {
    let keeps = matches!(kind(service), "NodePort" | "LoadBalancer");
    let now = if keeps { node_ports_of(service) } else { Vec::new() };
    let mut unneeded: Vec<i64> = node_ports_of(current).into_iter().filter(|port| !now.contains(port)).collect();
    if needs_health_check(current) && !needs_health_check(service) {
        unneeded.extend(port(&current["spec"]["healthCheckNodePort"]));
    }
    unneeded
}

/// A client that sends again what it created is not meant to give up what it was given.
fn keep_allocated(service: &mut Value, current: &Value) {
    let (mut new, old) = (Fields::of(service), Fields::of(current));
    if old.needs_ip() && new.needs_ip() {
        if new.ip.is_empty() {
            new.ip.clone_from(&old.ip);
        }
        if new.ips.is_empty() {
            new.ips.clone_from(&old.ips);
        }
        new.write(service);
    }
    if needs_node_ports(current) && needs_node_ports(service) {
        keep_node_ports(service, current);
    }
    if needs_health_check(current)
        && needs_health_check(service)
        && port(&service["spec"]["healthCheckNodePort"]).is_none()
    {
        service["spec"]["healthCheckNodePort"] = current["spec"]["healthCheckNodePort"].clone();
    }
}

fn keep_node_ports(service: &mut Value, current: &Value) {
    let (had, now) = (node_ports_of(current), node_ports_of(service));
    let by_name: HashMap<String, i64> = meta::list_at(current, &["spec", "ports"])
        .iter()
        .filter_map(|entry| Some((meta::string_at(entry, &["name"]).to_owned(), port(&entry["nodePort"])?)))
        .collect();
    let Some(list) = service["spec"]["ports"].as_array_mut() else { return };
    for entry in list.iter_mut().filter(|entry| port(&entry["nodePort"]).is_none()) {
        let before = by_name.get(meta::string_at(entry, &["name"]));
        if let Some(before) = before.filter(|port| !(had.contains(port) && now.contains(port))) {
            entry["nodePort"] = (*before).into();
        }
    }
}

fn kind(service: &Value) -> &str {
    meta::string_at(service, &["spec", "type"])
}

/// A port that is set, whether it can be one or not.
pub(super) fn port(value: &Value) -> Option<i64> {
    value.as_i64().filter(|port| *port != 0)
}

/// Those that can be ports.
fn numbers(ports: Vec<i64>) -> impl Iterator<Item = u16> {
    ports.into_iter().filter_map(|port| u16::try_from(port).ok())
}

pub(super) fn node_ports_of(service: &Value) -> Vec<i64> {
    meta::list_at(service, &["spec", "ports"]).iter().filter_map(|entry| port(&entry["nodePort"])).collect()
}

pub(super) fn allocates_node_ports(service: &Value) -> bool {
    kind(service) == "NodePort"
        || kind(service) == "LoadBalancer" && service["spec"]["allocateLoadBalancerNodePorts"] == true
}

/// Whether the type has ports on nodes unless it says otherwise.
pub fn needs_node_ports(service: &Value) -> bool {
    kind(service) == "NodePort"
        || kind(service) == "LoadBalancer" && service["spec"]["allocateLoadBalancerNodePorts"] != false
}

/// Whether a load balancer must be able to ask nodes whether they have endpoints.
pub fn needs_health_check(service: &Value) -> bool {
    kind(service) == "LoadBalancer" && meta::string_at(service, &["spec", "externalTrafficPolicy"]) == "Local"
}
