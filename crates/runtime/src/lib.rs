//! Container runtimes: Ferry's own behind the Container Runtime Interface, the CRI client, the pause image, the mirror for
//! loaded images.
//!
//! Independent of the Kubernetes API; used by `kubelet` and `ferry`.

pub mod container;
pub mod cri;
pub mod file_watch;
pub mod image;
pub mod image_client;
pub mod mirror;
pub mod pause;
pub mod server;
mod state_file;
mod supervisor;
mod tree_copy;

pub use supervisor::{LAUNCHER_NAME, run_launcher};
