//! Nodes that join a cluster: discovery, certificates, and the node's components without a control plane.

mod bootstrap_objects;
mod certificate_request;
mod discovery;
mod node_identity;
mod serving_approver;
mod worker;

pub use bootstrap_objects::apply_bootstrap_objects;
pub use certificate_request::{NodeCertificate, request_certificate};
pub use discovery::ca_hash;
pub use node_identity::node_client;
pub use serving_approver::run_serving_approver;
pub use worker::start_worker;
