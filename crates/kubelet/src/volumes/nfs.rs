//! NFS mounts, by the system's mount program, which speaks NFS's mount protocol.

use std::{fs, path::Path, process::Command};

use super::VolumeError;

/// Mounts an export unless it is mounted already.
pub fn mount_export(export: &str, target: &Path, options: &[String]) -> Result<(), VolumeError> {
    fs::create_dir_all(target).map_err(|source| VolumeError::Io { path: target.into(), source })?;
    if sys::mount::is_mount_point(target)? {
        return Ok(());
    }
    let mut mount = Command::new("mount");
    mount.args(["-t", "nfs"]);
    if !options.is_empty() {
        mount.arg("-o").arg(options.join(","));
    }
    // An export that begins with a dash is not an option.
    let output = mount.arg("--").arg(export).arg(target).output();
    let output = output.map_err(|source| VolumeError::Io { path: "mount".into(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_string();
    Err(VolumeError::MountProgram(format!("{}\nMounting command: mount\nOutput: {text}", output.status)))
}
