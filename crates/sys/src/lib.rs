//! The kernel behind safe functions: control groups, mounts, network links and filters, processes.
//!
//! The only crate, with `runtime`, that may hold `unsafe`. It knows nothing of Kubernetes.

pub mod cgroup;
pub mod mount;
pub mod net;
pub mod process;
