//! Which ports on nodes a service wishes for, and which of its own ports gets which of them.

use std::collections::HashMap;

use api::{Value, meta, status::Status, validate::FieldError};

use super::{
    ports::{Error, Wish},
    service::{allocates_node_ports, invalid, node_ports_of, port},
};

/// Which port of a service gets which of the ports that are wished for.
#[derive(Default)]
pub struct Wishes {
    /// In the order in which they are to be fulfilled.
    pub wishes: Vec<Wish>,
    /// Indices of the service's ports and of the wishes.
    assigned: Vec<(usize, usize)>,
    /// The index of the wish for health checks.
    health: Option<usize>,
}

impl Wishes {
    /// Ports of one number share a port on nodes, whatever their protocols.
    pub fn create(&mut self, service: &Value) {
        let list = meta::list_at(service, &["spec", "ports"]);
        let mut by_number: HashMap<i64, usize> = HashMap::new();
        for (at, entry) in list.iter().enumerate() {
            let (number, wanted) = (meta::integer_at(entry, &["port"]), port(&entry["nodePort"]));
            if wanted.is_none() && !allocates_node_ports(service) {
                continue;
            }
            let shared = by_number.get(&number).copied();
            let wish = match (shared, wanted) {
                (Some(wish), None) => wish,
                (Some(wish), Some(port)) if self.wishes[wish] == Wish::Port(port) => wish,
                (Some(_), Some(port)) => self.add(Wish::Port(port)),
                (None, _) => {
                    let same = list.iter().filter(|other| meta::integer_at(other, &["port"]) == number);
                    let named = same.filter_map(|other| port(&other["nodePort"])).next();
                    let wish = self.add(named.map_or(Wish::Any, Wish::Port));
                    by_number.insert(number, wish);
                    wish
                }
            };
            self.assigned.push((at, wish));
        }
    }

    /// New ports of a service that is there.
    pub fn change(&mut self, service: &Value, current: &Value) {
        let had = node_ports_of(current);
        for (at, entry) in meta::list_at(service, &["spec", "ports"]).iter().enumerate() {
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

    /// One more port for health checks.
    pub fn health(&mut self, wish: Wish) {
        self.health = Some(self.add(wish));
    }

    fn add(&mut self, wish: Wish) -> usize {
        self.wishes.push(wish);
        self.wishes.len() - 1
    }

    /// Gives the ports of a service those that were taken for it.
    pub fn assign(&self, service: &mut Value, taken: &[i64]) {
        for (at, wish) in &self.assigned {
            service["spec"]["ports"][*at]["nodePort"] = taken[*wish].into();
        }
        if let Some(wish) = self.health {
            service["spec"]["healthCheckNodePort"] = taken[wish].into();
        }
    }

    /// What the client is told when a wish cannot be fulfilled.
    pub fn refused(&self, service: &Value, at: usize, error: &Error) -> Status {
        match self.wishes.get(at) {
            Some(Wish::Port(port)) if self.health == Some(at) => {
                Status::internal_error(format!("failed to allocate requested HealthCheck NodePort {port}: {error}"))
            }
            Some(Wish::Port(port)) => {
                let index = self.assigned.iter().find(|(_, wish)| *wish == at).map_or(0, |(index, _)| *index);
                let field = format!("spec.ports[{index}].nodePort");
                invalid(service, &[FieldError::invalid(field, *port, error.to_string())])
            }
            _ if self.health == Some(at) => {
                Status::internal_error(format!("failed to allocate a HealthCheck NodePort 0: {error}"))
            }
            _ => Status::internal_error(format!("failed to allocate a nodePort: {error}")),
        }
    }
}
