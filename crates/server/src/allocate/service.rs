//! What a service needs: an address of each of its families, a port on all nodes for each of its ports where its type says
//! so, and one more for health checks. Values that a client left out of an update stay as they were.

use std::{collections::HashMap, net::IpAddr};

use api::{
    Value, meta,
    status::Status,
    validate::{self, FieldError},
};
use async_trait::async_trait;
use serde_json::json;

use super::{
    Allocator, Begin, Holdings, Reservation, addresses,
    families::Fields,
    network::Family,
    ports::{self, Wish},
};
use crate::{registry::Registry, system};

/// The allocator of services.
pub struct Services;

#[async_trait]
impl Allocator for Services {
    async fn begin(&self, registry: &Registry, write: Begin<'_>) -> Result<Reservation, Status> {
        let Begin { object, current, dry_run } = write;
        if let Some(current) = current {
            keep_allocated(object, current);
        }
        let mut reservation = Reservation::default();
        let outcome = match cluster_ips(registry, object, current, dry_run, &mut reservation).await {
            Ok(()) => node_ports(registry, object, current, dry_run, &mut reservation).await,
            Err(status) => Err(status),
        };
        if outcome.is_err() || dry_run {
            super::release(registry, std::mem::take(&mut reservation).taken).await;
        }
        outcome.map(|()| reservation)
    }

    fn held(&self, service: &Value) -> Holdings {
        let fields = Fields::of(service);
        let ips = fields.ips.iter().filter(|_| fields.needs_ip()).filter_map(|ip| ip.parse().ok()).collect();
        let mut ports = node_ports_of(service);
        if needs_health_check(service) {
            ports.extend(port(&service["spec"]["healthCheckNodePort"]));
        }
        Holdings { ips, ports }
    }
}

fn invalid(service: &Value, errors: &[FieldError]) -> Status {
    match system::resource("", "v1", "services") {
        Ok(resource) => Status::invalid(resource, meta::name(service), errors),
        Err(status) => status,
    }
}

async fn cluster_ips(
    registry: &Registry,
    service: &mut Value,
    current: Option<&Value>,
    dry_run: bool,
    reservation: &mut Reservation,
) -> Result<(), Status> {
    let (mut fields, old) = (Fields::of(service), current.map(Fields::of));
    fields.normalize(old.as_ref());
    if !fields.needs_ip() {
        if let Some(old) = old.filter(Fields::needs_ip) {
            reservation.unneeded.ips.extend(old.ips.iter().filter_map(|ip| ip.parse::<IpAddr>().ok()));
        }
        fields.write(service);
        return Ok(());
    }
    if old.as_ref().is_some_and(|old| fields.is_settled(old)) {
        fields.write(service);
        return Ok(());
    }
    fields.default_policy(old.as_ref());
    fields.write(service);
    let errors = validate::service_addresses(service, current);
    if !errors.is_empty() {
        return Err(invalid(service, &errors));
    }
    fields.complete(old.as_ref(), &registry.pools().families).map_err(|errors| invalid(service, &errors))?;
    if let Some(old) = old.as_ref().filter(|old| old.needs_ip()) {
        let dropped = old.ips.iter().skip(fields.families.len().max(1));
        reservation.unneeded.ips.extend(dropped.filter_map(|ip| ip.parse::<IpAddr>().ok()));
    }
    let known = old.filter(Fields::needs_ip).map(|old| old.ips).unwrap_or_default();
    let taken = take_ips(registry, service, &mut fields, &known, dry_run, reservation).await;
    fields.write(service);
    taken
}

/// An address for each family that has none yet; `known` are those that the service has already.
async fn take_ips(
    registry: &Registry,
    service: &Value,
    fields: &mut Fields,
    known: &[String],
    dry_run: bool,
    reservation: &mut Reservation,
) -> Result<(), Status> {
    if fields.is_headless() || known.first().is_some_and(|ip| ip == "None") {
        return Ok(());
    }
    for at in known.len()..fields.families.len() {
        let family = Family::named(&fields.families[at]).unwrap_or(Family::V4);
        let wish = fields.ips.get(at).cloned().filter(|ip| !ip.is_empty());
        let ip = match take_ip(registry, service, family, wish.as_deref(), dry_run).await {
            Ok(ip) => ip,
            Err(error) => return Err(no_ip(service, &fields.ips, at, wish.as_deref(), error)),
        };
        if !dry_run {
            reservation.taken.ips.push(ip);
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

async fn take_ip(
    registry: &Registry,
    service: &Value,
    family: Family,
    wish: Option<&str>,
    dry_run: bool,
) -> Result<IpAddr, addresses::Error> {
    match wish.map(str::parse::<IpAddr>) {
        Some(Ok(ip)) => addresses::take(registry, service, ip, dry_run).await.map(|()| ip),
        Some(Err(_)) => Err(addresses::Error::OutOfRange),
        None => addresses::take_any(registry, service, family, dry_run).await,
    }
}

fn no_ip(service: &Value, ips: &[String], at: usize, wish: Option<&str>, error: addresses::Error) -> Status {
    let name = meta::name(service);
    let message = match (wish, error) {
        (Some(ip), error) => format!("failed to allocate IP {ip}: {error}"),
        (None, addresses::Error::Full) => {
            return Status::internal(format!("failed to allocate a serviceIP for Service {name:?}: range is full"));
        }
        (None, error) => format!("failed to allocate IP: {error}"),
    };
    // What is to be filled in is shown as empty.
    let shown: Vec<&str> =
        (0..=at.max(ips.len().saturating_sub(1))).map(|at| ips.get(at).map_or("", String::as_str)).collect();
    invalid(service, &[FieldError::invalid("spec.clusterIPs", json!(shown), message)])
}

/// Which port of a service gets which of the ports that are wished for.
#[derive(Default)]
struct Wishes {
    wishes: Vec<Wish>,
    /// Indices of the service's ports and of the wishes.
    assigned: Vec<(usize, usize)>,
    /// The index of the wish for health checks.
    health: Option<usize>,
}

async fn node_ports(
    registry: &Registry,
    service: &mut Value,
    current: Option<&Value>,
    dry_run: bool,
    reservation: &mut Reservation,
) -> Result<(), Status> {
    let mut wishes = Wishes::default();
    if matches!(kind(service), "NodePort" | "LoadBalancer") {
        match current {
            Some(current) => wishes.change(service, current),
            None => wishes.create(service),
        }
    }
    if needs_health_check(service) && !current.is_some_and(needs_health_check) {
        wishes.health = Some(wishes.wishes.len());
        wishes.wishes.push(port(&service["spec"]["healthCheckNodePort"]).map_or(Wish::Any, Wish::Port));
    }
    let pool = &registry.pools().ports;
    let taken = match dry_run {
        true => pool.try_take(registry, &wishes.wishes).await,
        false => pool.take(registry, &wishes.wishes).await,
    };
    let taken = taken.map_err(|(at, error)| wishes.refused(service, at, &error))?;
    wishes.assign(service, &taken);
    if !dry_run {
        reservation.taken.ports.extend(taken);
    }
    if let Some(current) = current {
        reservation.unneeded.ports.extend(unneeded_ports(service, current));
    }
    Ok(())
}

impl Wishes {
    /// Ports of one number share a port on nodes, whatever their protocols.
    fn create(&mut self, service: &Value) {
        let list = meta::list(service, &["spec", "ports"]);
        let mut by_number: HashMap<i64, usize> = HashMap::new();
        for (at, entry) in list.iter().enumerate() {
            let (number, wanted) = (meta::number(entry, &["port"]), port(&entry["nodePort"]));
            if wanted.is_none() && !allocates_node_ports(service) {
                continue;
            }
            let shared = by_number.get(&number).copied();
            let wish = match (shared, wanted) {
                (Some(wish), None) => wish,
                (Some(wish), Some(port)) if self.wishes[wish] == Wish::Port(port) => wish,
                (Some(_), Some(port)) => self.add(Wish::Port(port)),
                (None, _) => {
                    let same = list.iter().filter(|other| meta::number(other, &["port"]) == number);
                    let named = same.filter_map(|other| port(&other["nodePort"])).next();
                    let wish = self.add(named.map_or(Wish::Any, Wish::Port));
                    by_number.insert(number, wish);
                    wish
                }
            };
            self.assigned.push((at, wish));
        }
    }

    fn change(&mut self, service: &Value, current: &Value) {
        let had = node_ports_of(current);
        for (at, entry) in meta::list(service, &["spec", "ports"]).iter().enumerate() {
            let wish = match port(&entry["nodePort"]) {
                None if !allocates_node_ports(service) => continue,
                None => Wish::Any,
                Some(port) if had.contains(&port) || self.wishes.contains(&Wish::Port(port)) => continue,
                Some(port) => Wish::Port(port),
            };
            let wish = self.add(wish);
            self.assigned.push((at, wish));
        }
    }

    fn add(&mut self, wish: Wish) -> usize {
        self.wishes.push(wish);
        self.wishes.len() - 1
    }

    fn assign(&self, service: &mut Value, taken: &[u16]) {
        for (at, wish) in &self.assigned {
            service["spec"]["ports"][*at]["nodePort"] = taken[*wish].into();
        }
        if let Some(wish) = self.health {
            service["spec"]["healthCheckNodePort"] = taken[wish].into();
        }
    }

    fn refused(&self, service: &Value, at: usize, error: &ports::Error) -> Status {
        match self.wishes.get(at) {
            Some(Wish::Port(port)) if self.health == Some(at) => {
                Status::internal(format!("failed to allocate requested HealthCheck NodePort {port}: {error}"))
            }
            Some(Wish::Port(port)) => {
                let index = self.assigned.iter().find(|(_, wish)| *wish == at).map_or(0, |(index, _)| *index);
                let field = format!("spec.ports[{index}].nodePort");
                invalid(service, &[FieldError::invalid(field, i64::from(*port), error.to_string())])
            }
            _ if self.health == Some(at) => {
                Status::internal(format!("failed to allocate a HealthCheck NodePort 0: {error}"))
            }
            _ => Status::internal(format!("failed to allocate a nodePort: {error}")),
        }
    }
}

fn unneeded_ports(service: &Value, current: &Value) -> Vec<u16> {
    let keeps = matches!(kind(service), "NodePort" | "LoadBalancer");
    let now = if keeps { node_ports_of(service) } else { Vec::new() };
    let mut unneeded: Vec<u16> = node_ports_of(current).into_iter().filter(|port| !now.contains(port)).collect();
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
    let by_name: HashMap<String, u16> = meta::list(current, &["spec", "ports"])
        .iter()
        .filter_map(|entry| Some((meta::text(entry, &["name"]).to_owned(), port(&entry["nodePort"])?)))
        .collect();
    let Some(list) = service["spec"]["ports"].as_array_mut() else { return };
    for entry in list.iter_mut().filter(|entry| port(&entry["nodePort"]).is_none()) {
        let before = by_name.get(meta::text(entry, &["name"]));
        if let Some(before) = before.filter(|port| !(had.contains(port) && now.contains(port))) {
            entry["nodePort"] = (*before).into();
        }
    }
}

fn kind(service: &Value) -> &str {
    meta::text(service, &["spec", "type"])
}

/// A port that is set.
fn port(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0)
}

fn node_ports_of(service: &Value) -> Vec<u16> {
    meta::list(service, &["spec", "ports"]).iter().filter_map(|entry| port(&entry["nodePort"])).collect()
}

fn allocates_node_ports(service: &Value) -> bool {
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
    kind(service) == "LoadBalancer" && meta::text(service, &["spec", "externalTrafficPolicy"]) == "Local"
}
