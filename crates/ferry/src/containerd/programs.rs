//! The programs that the cluster's own runtime is made of, and where they are.

use std::path::{Path, PathBuf};

use sys::process::find_program;

use crate::user_error::user_error;

/// Folders searched for containerd and its helpers; distributions put some of them into those of root only.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The paths of the container runtime's programs.
#[derive(Clone, Debug)]
pub struct RuntimePrograms {
    /// The daemon.
    pub containerd: PathBuf,
    /// Its command line.
    pub ctr: PathBuf,
}

impl RuntimePrograms {
    /// All of them, or a refusal that names the missing ones.
    pub fn find() -> anyhow::Result<Self> {
        match (find_runtime_program("containerd"), find_runtime_program("ctr"), Self::missing()) {
            (Some(containerd), Some(ctr), missing) if missing.is_empty() => Ok(Self { containerd, ctr }),
            (.., missing) => Err(user_error(
                format!("the cluster's own container runtime needs what is not installed: {}", missing.join(", ")),
                "`ferry up --install-runtime` installs it.",
            )),
        }
    }

    /// The names of what pods cannot run without and is not there.
    pub fn missing() -> Vec<&'static str> {
        ["containerd", "ctr", "runc"].into_iter().filter(|name| find_runtime_program(name).is_none()).collect()
    }
}

fn find_runtime_program(name: &str) -> Option<PathBuf> {
    let directories: Vec<&Path> = PATH.split(':').map(Path::new).collect();
    find_program(name, &directories)
}
