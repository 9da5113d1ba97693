//! Debian packages that the tasks need: found by the file that they bring, installed when this process is root.

use std::{env, path::Path};

use anyhow::{Result, bail};

use crate::process::{self, command};

/// A package, and a program or absolute path that tells whether it is there.
#[derive(Clone, Copy, Debug)]
pub struct Package {
    name: &'static str,
    proof: &'static str,
}

const fn package(name: &'static str, proof: &'static str) -> Package {
    Package { name, proof }
}

pub const KUBECTL: Package = package("kubernetes-client", "kubectl");
pub const GIT: Package = package("git", "git");
pub const MMDEBSTRAP: Package = package("mmdebstrap", "mmdebstrap");
pub const CONTAINERD: Package = package("containerd", "containerd");
pub const RUNC: Package = package("runc", "runc");
pub const CNI_PLUGINS: Package = package("containernetworking-plugins", "/usr/lib/cni/bridge");
pub const NFTABLES: Package = package("nftables", "nft");
pub const IPROUTE: Package = package("iproute2", "ip");
pub const ETCD: Package = package("etcd-server", "etcd");
pub const BUSYBOX: Package = package("busybox-static", "busybox");
pub const PYTHON: Package = package("python3", "python3");
/// For virtual environments, with pip.
pub const VENV: Package = package("python3-venv", "/usr/lib/python3.11/ensurepip/__init__.py");
pub const UTIL_LINUX: Package = package("util-linux", "nsenter");

/// Installs those that are missing; fails, and says what to type, if that takes another user.
pub fn ensure(packages: &[Package]) -> Result<()> {
    let missing: Vec<_> =
        packages.iter().filter(|package| !is_there(package.proof)).map(|package| package.name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let install = format!("apt-get install -y --no-install-recommends {}", missing.join(" "));
    if !process::is_root() {
        bail!("not installed: {}. Type: sudo apt-get update && sudo {install}", missing.join(", "));
    }
    if !is_there("apt-get") {
        bail!("not installed: {}; and there is no apt-get to install them with", missing.join(", "));
    }
    process::run(&mut command("apt-get update"))?;
    process::run(command(&install).env("DEBIAN_FRONTEND", "noninteractive"))
}

/// Whether an absolute path exists, or a program is in `$PATH` or among the administrator's.
fn is_there(proof: &str) -> bool {
    if proof.starts_with('/') {
        return Path::new(proof).exists();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let mut dirs = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    dirs.any(|dir| dir.join(proof).is_file())
}
