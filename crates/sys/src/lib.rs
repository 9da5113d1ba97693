//! Safe wrappers of kernel interfaces: processes, namespaces, credentials, cgroups, mounts, network links,
//! nf_tables, conntrack.
//!
//! With `runtime` the only crate that may contain `unsafe`. It is independent of Kubernetes.

pub mod beneath;
pub mod cgroup;
pub mod clone;
pub mod conntrack;
pub mod container_cgroup;
pub mod credentials;
pub mod descriptor_passing;
pub mod detached_mount;
pub mod device_filter;
pub mod mount;
pub mod net;
mod netlink;
pub mod netns;
pub mod nftables;
pub mod process;
