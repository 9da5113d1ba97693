//! NodePorts: rejects nodes on which a requested host port is in use.

use super::SchedulerPlugin;
use crate::{
    cache::{HostPort, NodeInfo, PodInfo},
    scheduling_queue::ClusterEvent,
};

pub(super) struct NodePorts;

impl SchedulerPlugin for NodePorts {
    fn filter_node(&self, pod: &PodInfo, node: &NodeInfo) -> Result<(), Vec<String>> {
        let taken = |requested: &HostPort| {
            node.pods.values().any(|other| other.ports.iter().any(|port| ports_conflict(port, requested)))
        };
        match pod.ports.iter().any(taken) {
            true => Err(vec!["node(s) didn't have free ports for the requested pod ports".into()]),
            false => Ok(()),
        }
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![ClusterEvent::NodeChanged, ClusterEvent::PodDeleted]
    }
}

/// Whether two ports conflict; the wildcard address conflicts with every address.
fn ports_conflict(a: &HostPort, b: &HostPort) -> bool {
    let any = |port: &HostPort| port.ip == "0.0.0.0";
    a.port == b.port && a.protocol == b.protocol && (a.ip == b.ip || any(a) || any(b))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::tests, *};

    #[test]
    fn ports_conflict_by_number_protocol_and_address() {
        let pod = |ip: &str, protocol: &str, port: i32| {
            let port = json!({"containerPort": 80, "hostPort": port, "hostIP": ip, "protocol": protocol});
            tests::pod(json!({"spec": {"containers": [{"name": "c", "ports": [port]}]}}))
        };
        let mut node = tests::node(json!({}));
        node.add_pod("1".into(), pod("", "TCP", 80));
        node.add_pod("2".into(), pod("10.0.0.1", "UDP", 53));
        let check = |requested: PodInfo, free: bool| assert_eq!(NodePorts.filter_node(&requested, &node).is_ok(), free);
        check(pod("", "TCP", 80), false);
        check(pod("10.0.0.1", "TCP", 80), false);
        check(pod("", "UDP", 80), true);
        check(pod("", "TCP", 81), true);
        check(pod("", "TCP", 0), true);
        check(pod("10.0.0.2", "UDP", 53), true);
        check(pod("", "UDP", 53), false);
    }
}
