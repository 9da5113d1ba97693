//! Sources of mounts: directories of the host, layers of images and control groups, cloned and not attached yet.

use std::{
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags},
    mount::MountPropagationFlags,
};
use sys::{
    container_cgroup::ContainerCgroup,
    detached_mount::{DetachedMount, MountAttributes},
};

use super::{
    ContainerError, Operation,
    spec::{MountPropagationKind, MountSource, MountSpec, OverlaySpec},
};

/// A directory of the host with the mounts below it, whose changes stay in the container.
pub(super) fn clone_private(path: &Path) -> Result<DetachedMount, ContainerError> {
    let bound = DetachedMount::clone_path(path, true).during(|| format!("bind {}", path.display()))?;
    let private = MountAttributes { propagation: libc_private(), ..Default::default() };
    bound.set_attributes(private, true).during(|| "make the root private".into())?;
    Ok(bound)
}

fn libc_private() -> u64 {
    u64::from(MountPropagationFlags::PRIVATE.bits())
}

/// Mounts layers; one layer without a writable one is bound instead, because an overlay has two at least.
pub(super) fn mount_overlay(overlay: &OverlaySpec) -> Result<DetachedMount, ContainerError> {
    // Options have a page of room; relative paths keep a hundred layers in it.
    std::env::set_current_dir(&overlay.layers).during(|| overlay.layers.display().to_string())?;
    new_overlay(&overlay.lower.join(":"), overlay)
}

/// Mounts layers, whose paths are relative to the working directory, below the writable one.
pub(super) fn new_overlay(lower: &str, overlay: &OverlaySpec) -> Result<DetachedMount, ContainerError> {
    let (upper, work) = (overlay.upper.display().to_string(), overlay.work.display().to_string());
    let options = [("lowerdir", Some(lower)), ("upperdir", Some(upper.as_str())), ("workdir", Some(work.as_str()))];
    DetachedMount::new("overlay", &options, 0).during(|| "mount the image's layers".into())
}

/// Clones the source of a mount of the host or an image, with the attributes that it is to have.
pub(super) fn clone_source(mount: &MountSpec) -> Result<DetachedMount, ContainerError> {
    let tree = match &mount.source {
        MountSource::Bind { path, recursive } => {
            DetachedMount::clone_path(path, *recursive).during(|| path.display().to_string())?
        }
        MountSource::ImageVolume { path } => {
            DetachedMount::clone_path(path, false).during(|| path.display().to_string())?
        }
        MountSource::Image { layers, lower, sub_path } => clone_image(layers, lower, sub_path)?,
        MountSource::FileSystem { .. } | MountSource::Cgroup => {
            return Err(ContainerError::Invalid(format!("{} has no source on the host", mount.target.display())));
        }
    };
    set_bind_attributes(&tree, mount)?;
    Ok(tree)
}

/// Sets propagation and attributes of a mount that is not attached yet.
pub(super) fn set_bind_attributes(tree: &DetachedMount, mount: &MountSpec) -> Result<(), ContainerError> {
    if mount.propagation == MountPropagationKind::Private {
        let private = MountAttributes { propagation: libc_private(), ..Default::default() };
        tree.set_attributes(private, true).during(|| "make the mount private".into())?;
    }
    if mount.set != 0 || mount.clear != 0 {
        let attributes = MountAttributes { set: mount.set, clear: mount.clear, propagation: 0 };
        tree.set_attributes(attributes, mount.recursive).during(|| "set attributes of the mount".into())?;
    }
    Ok(())
}

/// Mounts the layers of an image, or the path in it that is wanted.
fn clone_image(layers: &Path, lower: &[String], sub_path: &Path) -> Result<DetachedMount, ContainerError> {
    let what = || "mount the image".to_owned();
    let tree = match lower {
        [] => DetachedMount::new("tmpfs", &[], 0).during(what)?,
        [single] => DetachedMount::clone_path(&layers.join(single), false).during(what)?,
        many => {
            std::env::set_current_dir(layers).during(|| layers.display().to_string())?;
            DetachedMount::new("overlay", &[("lowerdir", Some(&many.join(":")))], 0).during(what)?
        }
    };
    clone_sub_path(tree, sub_path)
}

/// The mount at a path in a detached one; all of it if the path is empty.
pub(super) fn clone_sub_path(tree: DetachedMount, sub_path: &Path) -> Result<DetachedMount, ContainerError> {
    if sub_path.as_os_str().is_empty() {
        return Ok(tree);
    }
    let resolve = rustix::fs::ResolveFlags::IN_ROOT | rustix::fs::ResolveFlags::NO_MAGICLINKS;
    let relative = sub_path.strip_prefix("/").unwrap_or(sub_path);
    let place = rustix::fs::openat2(tree.root(), relative, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
        .during(|| format!("failed to find {:?} in the image", sub_path.display().to_string()))?;
    DetachedMount::clone_open(place.as_fd(), false).during(|| "mount the image".into())
}

/// Clones the directories of a control group of version 1.
pub(super) fn clone_cgroups(mount: &MountSpec, cgroup: &ContainerCgroup) -> Result<Vec<DetachedMount>, ContainerError> {
    let attributes = MountAttributes { set: mount.set, ..Default::default() };
    let clone = |directory: &PathBuf| -> io::Result<DetachedMount> {
        let tree = DetachedMount::clone_path(directory, false)?;
        tree.set_attributes(attributes, false)?;
        Ok(tree)
    };
    let clones = cgroup.directories().iter().map(|(_, directory)| clone(directory)).collect::<io::Result<_>>();
    clones.during(|| "clone control groups".into())
}
