//! System call filters: profiles of the OCI runtime specification compiled to BPF.

mod compiler;
mod default_profile;
mod profile;
mod syscall_table;

pub use compiler::compile_profile;
pub use default_profile::default_profile;
pub use profile::SeccompProfile;

/// A profile cannot be compiled.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SeccompError {
    /// It is not a valid profile.
    #[error("invalid seccomp profile: {0}")]
    Profile(String),
    /// An action or operator is unknown or needs a listener.
    #[error("seccomp: {0:?} is not supported")]
    Unsupported(String),
    /// The kernel takes no program of this length.
    #[error("the seccomp profile is too long")]
    TooLong,
}
