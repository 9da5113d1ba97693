//! Removes files: always the runtime's state, and with `--purge` the data directory.

use std::{fs, io, path::Path};

use anyhow::{Context, bail};

use super::mounts;
use crate::{instance::ClusterInstance, kubeconfig::Kubeconfig, state::InstanceState};

/// Removes what containerd, its shims and runc kept about running containers.
pub fn runtime_state(instance: &ClusterInstance) -> anyhow::Result<String> {
    let home = instance.containerd();
    let state = home.join("state");
    nothing_mounted(&home)?;
    remove_shim_sockets(&state);
    for directory in [state, home.join("runc")] {
        remove_path(&directory, |path| fs::remove_dir_all(path))?;
    }
    for socket in ["containerd.sock", "containerd.sock.ttrpc"] {
        remove_path(&home.join(socket), |path| fs::remove_file(path))?;
    }
    remove_path(&instance.pid_file(), |path| fs::remove_file(path))?;
    // Nothing that a user would call being up: it counts as nothing removed.
    Ok(String::new())
}

/// Shims that were killed leave their sockets outside the data directory; each container's directory says where.
fn remove_shim_sockets(state: &Path) {
    let tasks = state.join("io.containerd.runtime.v2.task/k8s.io");
    for task in fs::read_dir(tasks).into_iter().flatten().flatten() {
        let address = fs::read_to_string(task.path().join("address")).unwrap_or_default();
        if let Some(socket) = address.trim().strip_prefix("unix://") {
            // The containers of a pod share a socket, so it may be gone already.
            let _ = fs::remove_file(socket);
        }
    }
}

/// Forgets the cluster: its directory and its context in the user's kubeconfig.
pub fn purge_data(instance: &ClusterInstance, state: &InstanceState) -> anyhow::Result<String> {
    let mut removed = Vec::new();
    if let (Some(path), Some(context)) = (&state.kubeconfig, &state.context)
        && path.exists()
    {
        let mut kubeconfig = Kubeconfig::read(path)?;
        kubeconfig.remove(context, state.previous_context.as_deref());
        kubeconfig.write(None)?;
        removed.push(format!("context {context}"));
    }
    if instance.data().exists() {
        nothing_mounted(instance.data())?;
        remove_path(instance.data(), |path| fs::remove_dir_all(path))?;
        removed.push(instance.data().display().to_string());
    }
    Ok(removed.join(", "))
}

/// Removes a tree without crossing mount points.
fn nothing_mounted(directory: &Path) -> anyhow::Result<()> {
    let mounted = mounts::mounts_under(directory)?;
    match mounted.first() {
        None => Ok(()),
        Some(mount) => bail!("{} is still mounted; nothing below {} was deleted", mount.display(), directory.display()),
    }
}

fn remove_path(path: &Path, how: impl FnOnce(&Path) -> io::Result<()>) -> anyhow::Result<()> {
    match how(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome.with_context(|| format!("cannot remove {}", path.display())),
    }
}
