//! Container runtimes: the CRI client, the pause image, the mirror for images loaded by hand.
//!
//! It knows nothing of the Kubernetes API: `kubelet` and `ferry` call it.

pub mod cri;
pub mod file_watch;
pub mod mirror;
pub mod pause;
