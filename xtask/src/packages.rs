//! Debian packages that the tasks need: found by the file that they bring, installed when this process is root.

use std::{env, path::Path};

use anyhow::{Result, bail};

use crate::process::{self, command};

/// A package, and a program or absolute path that tells whether it is there.
#[derive(Clone, Copy, Debug)]
pub struct DebianPackage {
    name: &'static str,
    proof: &'static str,
}

const fn package(name: &'static str, proof: &'static str) -> DebianPackage {
    DebianPackage { name, proof }
}

pub const KUBECTL: DebianPackage = package("kubernetes-client", "kubectl");
pub const GIT: DebianPackage = package("git", "git");
pub const MMDEBSTRAP: DebianPackage = package("mmdebstrap", "mmdebstrap");
pub const CONTAINERD: DebianPackage = package("containerd", "containerd");
pub const RUNC: DebianPackage = package("runc", "runc");
pub const CNI_PLUGINS: DebianPackage = package("containernetworking-plugins", "/usr/lib/cni/bridge");
pub const NFTABLES: DebianPackage = package("nftables", "nft");
pub const IPROUTE: DebianPackage = package("iproute2", "ip");
pub const ETCD: DebianPackage = package("etcd-server", "etcd");
pub const CURL: DebianPackage = package("curl", "curl");
pub const BUSYBOX: DebianPackage = package("busybox-static", "busybox");
pub const PYTHON: DebianPackage = package("python3", "python3");
/// For virtual environments, with pip.
pub const VENV: DebianPackage = package("python3-venv", "/usr/lib/python3.11/ensurepip/__init__.py");
pub const UTIL_LINUX: DebianPackage = package("util-linux", "nsenter");

/// Installs those that are missing; fails, and says what to type, if that takes another user.
pub fn ensure_installed(packages: &[DebianPackage]) -> Result<()> {
    let missing: Vec<_> =
        packages.iter().filter(|package| !is_installed(package.proof)).map(|package| package.name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let install = format!("apt-get install -y --no-install-recommends {}", missing.join(" "));
    if !process::is_root() {
        bail!("not installed: {}. Type: sudo apt-get update && sudo {install}", missing.join(", "));
    }
    if !is_installed("apt-get") {
        bail!("not installed: {}; and there is no apt-get to install them with", missing.join(", "));
    }
    process::run(&mut command("apt-get update"))?;
    process::run(command(&install).env("DEBIAN_FRONTEND", "noninteractive"))
}

/// Whether an absolute path exists, or a program is in `$PATH` or among the administrator's.
fn is_installed(proof: &str) -> bool {
    if proof.starts_with('/') {
        return Path::new(proof).exists();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let mut dirs = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    dirs.any(|dir| dir.join(proof).is_file())
}
