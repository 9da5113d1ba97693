//! What measuring an API server takes: the servers, started alike and watched from outside, and a client that costs little.

pub mod client;
pub mod pki;
pub mod process;
pub mod servers;
