//! Pods and nodes in the form that scheduling reads: parsed once, interned, compact.

pub mod affinity_terms;
pub mod class_matching;
pub mod host_ports;
pub mod labels;
pub mod node_info;
pub mod node_selector;
pub mod pod_info;
pub mod pod_requests;
pub mod pod_volumes;
pub mod resource_claims;
pub mod resources;
pub mod spread_constraints;
pub mod taints;
