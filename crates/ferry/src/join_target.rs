//! The cluster that a node joins, and what the node shows to be let in.

use crate::bootstrap_token::BootstrapToken;

/// The credentials of a node that joins.
#[derive(Clone, Debug)]
pub struct JoinCredentials {
    /// The bootstrap token.
    pub token: BootstrapToken,
    /// The hash of the public key of the cluster's CA.
    pub ca_hash: String,
}

/// The cluster that a node belongs to.
#[derive(Clone, Debug)]
pub struct JoinTarget {
    /// The API server's URL.
    pub server: String,
    /// Needed until the node has a certificate.
    pub credentials: Option<JoinCredentials>,
}
