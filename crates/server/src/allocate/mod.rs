//! What the cluster hands out only once: addresses of services and ports on nodes.

pub mod network;
