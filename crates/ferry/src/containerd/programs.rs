//! The programs that the cluster's own runtime is made of, and where they are.

use std::path::{Path, PathBuf};

use sys::process::find_program;

use crate::user_error::user_error;

/// Folders searched for containerd and its helpers; distributions put some of them into those of root only.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const CNI: [&str; 2] = ["/usr/lib/cni", "/opt/cni/bin"];
const PLUGINS: [&str; 3] = ["ptp", "host-local", "loopback"];

/// The paths of the container runtime's programs.
#[derive(Clone, Debug)]
pub struct RuntimePrograms {
    /// The daemon.
    pub containerd: PathBuf,
    /// Its command line.
    pub ctr: PathBuf,
    /// The directory of CNI plug-ins.
    pub cni: PathBuf,
}

impl RuntimePrograms {
    /// All of them, or a refusal that names the missing ones.
    pub fn find() -> anyhow::Result<Self> {
        match (find_runtime_program("containerd"), find_runtime_program("ctr"), find_cni_plugins(), Self::missing()) {
            (Some(containerd), Some(ctr), Some(cni), missing) if missing.is_empty() => {
                Ok(Self { containerd, ctr, cni })
            }
            (.., missing) => Err(user_error(
                format!("the cluster's own container runtime needs what is not installed: {}", missing.join(", ")),
                "`ferry up --install-runtime` installs it.",
            )),
        }
    }

    /// The names of what pods cannot run without and is not there.
    pub fn missing() -> Vec<&'static str> {
        let mut missing: Vec<&str> =
            ["containerd", "ctr", "runc"].into_iter().filter(|name| find_runtime_program(name).is_none()).collect();
        if find_cni_plugins().is_none() {
            missing.push("CNI plug-ins");
        }
        missing
    }

    /// The same, and what only makes pods reach other machines.
    pub fn missing_with_filters() -> Vec<&'static str> {
        let filters = find_runtime_program("nft").is_none().then_some("nft");
        Self::missing().into_iter().chain(filters).collect()
    }
}

fn find_runtime_program(name: &str) -> Option<PathBuf> {
    let directories: Vec<&Path> = PATH.split(':').map(Path::new).collect();
    find_program(name, &directories)
}

fn find_cni_plugins() -> Option<PathBuf> {
    let complete = |directory: &&str| PLUGINS.iter().all(|plugin| Path::new(directory).join(plugin).is_file());
    CNI.into_iter().find(complete).map(PathBuf::from)
}
