//! Measures API servers: starts them alike, observes them from outside, and loads them with a cheap client.

pub mod client;
pub mod pki;
pub mod process;
pub mod servers;
