//! Runs a command in a root file system, in mount and PID namespaces of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::rootfs::path_inside;

/// Runs as PID 1 of the namespace. When it ends, the kernel kills every other process there; before that, a cluster that
/// the command left running is removed, because links, rules and control groups outlive processes.
const INIT: &str = r#"
set -eu
root=$1; mounts=$2; directory=$3; shift 3
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/run"
# containerd's overlay file systems cannot be on another overlay file system.
if [ "$(stat -f -c %T "$root")" = overlayfs ]; then
    mount -t tmpfs tmpfs "$root/tmp"
    mount -t tmpfs tmpfs "$root/var/lib"
fi
while read -r options from to; do
    mount --bind "$from" "$to"
    [ "$options" = rw ] || mount -o "remount,bind,$options" "$to"
done < "$mounts"
mkdir -p "$root/old"
cd "$root"
pivot_root . old
umount -l /old
rmdir /old
cd "$directory"
set +e
"$@"
code=$?
if [ -f /var/lib/ferry/state.json ]; then
    for ferry in "${CARGO_TARGET_DIR:-target}"/release/ferry "${CARGO_TARGET_DIR:-target}"/debug/ferry; do
        [ ! -x "$ferry" ] || { "$ferry" down --purge; break; }
    done
fi
exit $code
"#;

/// A file or folder of the machine at a path of the root file system.
#[derive(Debug)]
pub struct BindMount {
    pub from: PathBuf,
    pub to: PathBuf,
    writable: bool,
}

impl BindMount {
    pub fn writable(from: PathBuf, to: impl Into<PathBuf>) -> Self {
        Self { from, to: to.into(), writable: true }
    }

    pub fn read_only(from: PathBuf, to: impl Into<PathBuf>) -> Self {
        Self { from, to: to.into(), writable: false }
    }

    /// Makes the mount point.
    fn prepare(&self, root: &Path) -> Result<()> {
        let to = path_inside(root, &self.to);
        let folder = if self.from.is_dir() { Some(to.as_path()) } else { to.parent() };
        folder.map_or(Ok(()), fs::create_dir_all).with_context(|| to.display().to_string())?;
        if !to.exists() {
            fs::write(&to, "").with_context(|| to.display().to_string())?;
        }
        Ok(())
    }

    /// A line of the list that [`INIT`] reads.
    fn line(&self, root: &Path) -> String {
        let options = if self.writable { "rw" } else { "ro" };
        format!("{options} {} {}\n", self.from.display(), path_inside(root, &self.to).display())
    }
}

/// A root file system with what is mounted into it.
#[derive(Debug)]
pub struct RootNamespace {
    pub root: PathBuf,
    pub mounts: Vec<BindMount>,
    /// The whole environment of the command.
    pub variables: Vec<(String, String)>,
    /// The working directory, as seen from inside.
    pub directory: PathBuf,
}

impl RootNamespace {
    /// Runs the command to its end, and fails if it fails.
    pub fn run(&self, command: &[String]) -> Result<()> {
        for mount in &self.mounts {
            mount.prepare(&self.root)?;
        }
        let list = self.root.with_extension("mounts");
        fs::write(&list, self.mounts.iter().map(|mount| mount.line(&self.root)).collect::<String>())?;
        println!("$ {}", command.join(" "));
        let mut unshare = Command::new("unshare");
        unshare.args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--propagation",
            "private",
            "sh",
            "-c",
            INIT,
            "init",
        ]);
        unshare.arg(&self.root).arg(&list).arg(&self.directory).args(command);
        let status = unshare.env_clear().envs(self.variables.iter().cloned()).status();
        fs::remove_file(&list)?;
        let status = status.context("cannot run unshare")?;
        if !status.success() {
            bail!("`{}` failed in the bare system ({status})", command.join(" "));
        }
        Ok(())
    }
}
