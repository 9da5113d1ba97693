//! The node ports that a service requests and their assignment to its ports.

use std::collections::HashMap;

use api::{Value, meta, status::Status, validate::FieldError};

use super::{
    node_port_allocator::{PortError, PortRequest},
    service_fields::{allocates_node_ports, invalid_service, node_ports_of, nonzero_port},
};

/// Requested node ports of a service.
#[derive(Default)]
pub struct NodePortPlan {
    /// The requests in allocation order.
    pub requests: Vec<PortRequest>,
    /// Pairs of an index into the service's ports and one into `requests`.
    assigned: Vec<(usize, usize)>,
    /// Index of the health check node port in `requests`.
    health_check: Option<usize>,
}

impl NodePortPlan {
    /// Plans the ports of a new service. Ports of one number share a node port across protocols.
    pub fn plan_create(&mut self, service: &Value) {
        let list = meta::list_at(service, &["spec", "ports"]);
        let mut by_number: HashMap<i64, usize> = HashMap::new();
        for (at, entry) in list.iter().enumerate() {
            let (number, wanted) = (meta::integer_at(entry, &["port"]), nonzero_port(&entry["nodePort"]));
            if wanted.is_none() && !allocates_node_ports(service) {
                continue;
            }
            let shared = by_number.get(&number).copied();
            let wish = match (shared, wanted) {
                (Some(wish), None) => wish,
                (Some(wish), Some(port)) if self.requests[wish] == PortRequest::Port(port) => wish,
                (Some(_), Some(port)) => self.add_request(PortRequest::Port(port)),
                (None, _) => {
                    let same = list.iter().filter(|other| meta::integer_at(other, &["port"]) == number);
                    let named = same.filter_map(|other| nonzero_port(&other["nodePort"])).next();
                    let wish = self.add_request(named.map_or(PortRequest::Any, PortRequest::Port));
                    by_number.insert(number, wish);
                    wish
                }
            };
            self.assigned.push((at, wish));
        }
    }

    /// Plans the new ports of an updated service.
    pub fn plan_update(&mut self, service: &Value, current: &Value) {
        let had = node_ports_of(current);
        for (at, entry) in meta::list_at(service, &["spec", "ports"]).iter().enumerate() {
            let wish = match nonzero_port(&entry["nodePort"]) {
                None if !allocates_node_ports(service) => continue,
                None => PortRequest::Any,
                Some(port) if had.contains(&port) || self.requests.contains(&PortRequest::Port(port)) => continue,
                Some(port) => PortRequest::Port(port),
            };
            let wish = self.add_request(wish);
            self.assigned.push((at, wish));
        }
    }

    /// Requests a health check node port.
    pub fn add_health_check(&mut self, wish: PortRequest) {
        self.health_check = Some(self.add_request(wish));
    }

    fn add_request(&mut self, wish: PortRequest) -> usize {
        self.requests.push(wish);
        self.requests.len() - 1
    }

    /// Sets the allocated node ports of a service.
    pub fn assign_ports(&self, service: &mut Value, taken: &[i64]) {
        for (at, wish) in &self.assigned {
            service["spec"]["ports"][*at]["nodePort"] = taken[*wish].into();
        }
        if let Some(wish) = self.health_check {
            service["spec"]["healthCheckNodePort"] = taken[wish].into();
        }
    }

    /// The response status of a failed request.
    pub fn failure_status(&self, service: &Value, at: usize, error: &PortError) -> Status {
        match self.requests.get(at) {
            Some(PortRequest::Port(port)) if self.health_check == Some(at) => {
                Status::internal_error(format!("failed to allocate requested HealthCheck NodePort {port}: {error}"))
            }
            Some(PortRequest::Port(port)) => {
                let index = self.assigned.iter().find(|(_, wish)| *wish == at).map_or(0, |(index, _)| *index);
                let field = format!("spec.ports[{index}].nodePort");
                invalid_service(service, &[FieldError::invalid(field, *port, error.to_string())])
            }
            _ if self.health_check == Some(at) => {
                Status::internal_error(format!("failed to allocate a HealthCheck NodePort 0: {error}"))
            }
            _ => Status::internal_error(format!("failed to allocate a nodePort: {error}")),
        }
    }
}
