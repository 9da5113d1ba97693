//! Safe wrappers of kernel interfaces: cgroups, mounts, network links and filters, processes.
//!
//! With `runtime` the only crate that may contain `unsafe`. It is independent of Kubernetes.

pub mod beneath;
pub mod cgroup;
pub mod mount;
pub mod net;
pub mod process;
