//! Safe wrappers of kernel interfaces: cgroups, mounts, network links, nf_tables, conntrack, processes.
//!
//! With `runtime` the only crate that may contain `unsafe`. It is independent of Kubernetes.

pub mod beneath;
pub mod cgroup;
pub mod conntrack;
pub mod mount;
pub mod net;
mod netlink;
pub mod netns;
pub mod nftables;
pub mod process;
