//! The network of a node: service proxy, cluster DNS, network policies and the overlay between nodes.
//!
//! Each part follows objects through informers with compact views and keeps tables of the kernel in step by difference.
//! It reaches the cluster through the API only.

pub mod dns;
mod http_server;
pub mod load_balancer;
pub mod overlay;
mod packet_fields;
pub mod pod_network;
pub mod policy;
pub mod proxy;
mod ranges;
mod service_protocol;
mod views;
