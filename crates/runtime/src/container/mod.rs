//! Containers: what one is made of, and the code that becomes its first process.
//!
//! The node process writes a [`ContainerSpec`]; the pod's supervisor clones a child that mounts the root file system in a
//! mount namespace of its own, drops privileges and executes the program. No mount of a container is ever visible on the
//! host, so none can be left behind.

pub mod first_process;
mod hooks;
mod mount_sources;
mod prepared_mounts;
mod process;
mod rootfs;
pub mod seccomp;
pub mod spec;
pub mod user_namespace;
mod users;

pub use hooks::run_hooks as run_runtime_hooks;
pub use spec::{ContainerSpec, ProcessSpec};

use std::io;

/// A container could not be set up; the text is shown to users.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// A system call failed.
    #[error("{operation}: {source}")]
    Io {
        /// The attempted operation.
        operation: String,
        /// The system's error.
        source: io::Error,
    },
    /// The specification cannot be fulfilled.
    #[error("{0}")]
    Invalid(String),
}

/// Names the operation of a failed system call.
trait Operation<T> {
    fn during(self, operation: impl FnOnce() -> String) -> Result<T, ContainerError>;
}

impl<T, E: Into<io::Error>> Operation<T> for Result<T, E> {
    fn during(self, operation: impl FnOnce() -> String) -> Result<T, ContainerError> {
        self.map_err(|source| ContainerError::Io { operation: operation(), source: source.into() })
    }
}
