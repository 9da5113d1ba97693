//! Handing an image of a layout to a containerd, as the archive that `ctr images import` reads from its input.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::layout::{self, ImageLayout};
use crate::packages;

/// The namespace that the kubelet's containers and images are in.
const NAMESPACE: &str = "k8s.io";

pub fn import(dir: &Path, image: &ImageLayout, socket: &Path) -> Result<()> {
    packages::ensure_installed(&[packages::CONTAINERD])?;
    let mut ctr = Command::new("ctr")
        .arg("--address")
        .arg(socket)
        .args(["--namespace", NAMESPACE, "images", "import", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot run ctr")?;
    let input = ctr.stdin.take().context("ctr has no input")?;
    let archived = archive(dir, image, input);
    let status = ctr.wait()?;
    // When ctr fails, that is why the archive could not be written; it has said so itself.
    if !status.success() {
        bail!("`ctr images import` failed ({status}) on {}", socket.display());
    }
    archived
}

fn archive(dir: &Path, image: &ImageLayout, output: impl Write) -> Result<()> {
    let mut archive = tar::Builder::new(output);
    add(&mut archive, "oci-layout", &json!({ "imageLayoutVersion": "1.0.0" }).to_string())?;
    add(&mut archive, "index.json", &layout::index(&image.entries).to_string())?;
    for sha256 in &image.blobs {
        archive.append_path_with_name(layout::blob_path(dir, sha256), format!("blobs/sha256/{sha256}"))?;
    }
    archive.into_inner()?.flush()?;
    Ok(())
}

fn add(archive: &mut tar::Builder<impl Write>, name: &str, contents: &str) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(contents.len() as u64);
    header.set_mode(0o644);
    Ok(archive.append_data(&mut header, name, contents.as_bytes())?)
}
