//! Container runtimes: the CRI client, the pause image, the mirror for loaded images.
//!
//! Independent of the Kubernetes API; used by `kubelet` and `ferry`.

pub mod cri;
pub mod file_watch;
pub mod mirror;
pub mod pause;
