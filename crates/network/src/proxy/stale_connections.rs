//! Connections of UDP and SCTP that a change of endpoints left over.
//!
//! The kernel keeps translating packets of a known connection. A client that goes on sending from one port would reach a
//! removed endpoint forever, so its connection is deleted and the next packet chooses anew.

use std::{collections::HashMap, io, net::IpAddr};

use sys::conntrack::{Connection, delete_connection, list_connections};

use super::{
    endpoints::EndpointAddress,
    plan::{Frontend, ServicePlan},
    programmer::PlanChange,
};
use crate::service_protocol::ServiceProtocol;

/// The frontends of changed services, each with the endpoints that it has now.
#[derive(Debug, Default)]
pub(crate) struct ChangedFrontends {
    endpoints: HashMap<Frontend, Vec<EndpointAddress>>,
    protocols: Vec<ServiceProtocol>,
}

impl ChangedFrontends {
    /// Collects those of services whose protocols have no end of a connection.
    pub fn collect(changes: &[PlanChange]) -> Self {
        let mut collected = Self::default();
        for change in changes {
            let plans = [&change.before, &change.after].into_iter().flatten();
            if !plans.clone().any(ServicePlan::has_stateless_protocol) {
                continue;
            }
            plans.for_each(|plan| collected.add_plan(plan, false));
            change.after.iter().for_each(|plan| collected.add_plan(plan, true));
        }
        collected
    }

    fn add_plan(&mut self, plan: &ServicePlan, is_current: bool) {
        for port in plan.ports.iter().filter(|port| port.protocol != ServiceProtocol::Tcp) {
            if !self.protocols.contains(&port.protocol) {
                self.protocols.push(port.protocol);
            }
            for (frontend, _) in &port.frontends {
                let endpoints = self.endpoints.entry(*frontend).or_default();
                if is_current {
                    endpoints.extend(port.cluster.endpoints.iter().chain(&port.local.endpoints));
                }
            }
        }
    }

    /// Deletes the connections of these frontends that go to no current endpoint; returns their number.
    pub fn delete_stale(&self, node_addresses: &[IpAddr]) -> io::Result<usize> {
        let mut deleted = 0;
        for protocol in &self.protocols {
            for connection in list_connections(protocol.number())? {
                if self.is_stale(&connection, *protocol, node_addresses) && delete_connection(&connection)? {
                    deleted += 1;
                }
            }
        }
        Ok(deleted)
    }

    fn is_stale(&self, connection: &Connection, protocol: ServiceProtocol, node_addresses: &[IpAddr]) -> bool {
        let (ip, port) = (connection.original.destination, connection.original.destination_port);
        let by_address = self.endpoints.get(&Frontend::Address(ip, protocol, port));
        let by_port = || {
            let endpoints = self.endpoints.get(&Frontend::NodePort(protocol, port));
            endpoints.filter(|_| node_addresses.contains(&ip))
        };
        let target = (connection.reply.source, connection.reply.source_port);
        by_address.or_else(by_port).is_some_and(|endpoints| !endpoints.contains(&target))
    }
}
