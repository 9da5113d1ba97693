//! Mounts of a container: the kernel's file systems, the pod's files, and what the configuration and the image ask for.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sys::detached_mount::MountAttributes;
use tonic::Status;

use super::SpecSource;
use crate::{
    container::spec::{MountPropagationKind, MountSource, MountSpec},
    cri::types::*,
    image::ImageStore,
};

const SAFE: u64 = MountAttributes::NO_SETUID | MountAttributes::NO_DEVICES | MountAttributes::NO_EXECUTION;

/// Returns the mounts, outer ones first.
pub fn container_mounts(
    images: &ImageStore,
    source: &SpecSource<'_>,
    config: &ContainerConfig,
    privileged: bool,
) -> Result<Vec<MountSpec>, Status> {
    let mut mounts: Vec<MountSpec> = Vec::new();
    let is_given = |path: &str| config.mounts.iter().any(|mount| clean(&mount.container_path) == Path::new(path));
    for mount in kernel_mounts(privileged).into_iter().chain(pod_mounts(source)) {
        if !is_given(&mount.target.to_string_lossy()) {
            mounts.push(mount);
        }
    }
    for mount in &config.mounts {
        let target = clean(&mount.container_path);
        mounts.push(match &mount.image {
            Some(_) => image_mount(images, source, mount, target)?,
            None => bind_mount(mount, target)?,
        });
    }
    let volumes = source.image.volumes.iter().flatten();
    for (number, (path, _)) in volumes.enumerate() {
        let target = clean(path);
        if target != Path::new("/") && !mounts.iter().any(|mount| mount.target == target) {
            let directory = source.container.directory.join("volumes").join(number.to_string());
            fs::create_dir_all(&directory).map_err(|error| Status::internal(format!("volume {path:?}: {error}")))?;
            mounts.push(plain(target, MountSource::ImageVolume { path: directory }, 0));
        }
    }
    // A mount must not hide one below it.
    mounts.sort_by_key(|mount| mount.target.components().count());
    Ok(mounts)
}

fn plain(target: PathBuf, source: MountSource, set: u64) -> MountSpec {
    let propagation = MountPropagationKind::Private;
    MountSpec { target, source, set, clear: 0, recursive: false, propagation, maps_owners: true }
}

fn kernel_mounts(privileged: bool) -> Vec<MountSpec> {
    let file_system = |target: &str, kind: &str, options: &[(&str, Option<&str>)], set| {
        let options = options.iter().map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned))).collect();
        plain(target.into(), MountSource::FileSystem { kind: kind.into(), options }, set)
    };
    let unless_privileged = if privileged { 0 } else { MountAttributes::READ_ONLY };
    let terminals = [("newinstance", None), ("ptmxmode", Some("0666")), ("mode", Some("0620")), ("gid", Some("5"))];
    vec![
        file_system("/proc", "proc", &[], SAFE),
        file_system(
            "/dev",
            "tmpfs",
            &[("mode", Some("755")), ("size", Some("65536k"))],
            MountAttributes::NO_SETUID | MountAttributes::STRICT_ACCESS_TIME,
        ),
        file_system("/dev/pts", "devpts", &terminals, MountAttributes::NO_SETUID | MountAttributes::NO_EXECUTION),
        file_system("/dev/mqueue", "mqueue", &[], SAFE),
        file_system("/sys", "sysfs", &[], SAFE | unless_privileged),
        plain("/sys/fs/cgroup".into(), MountSource::Cgroup, SAFE | unless_privileged),
    ]
}

/// Files that the containers of a pod share.
fn pod_mounts(source: &SpecSource<'_>) -> Vec<MountSpec> {
    let bind =
        |target: &str, path: PathBuf, set| plain(target.into(), MountSource::Bind { path, recursive: false }, set);
    let directory = &source.sandbox.directory;
    let mut mounts: Vec<MountSpec> =
        [("/etc/hostname", "hostname"), ("/etc/hosts", "hosts"), ("/etc/resolv.conf", "resolv.conf")]
            .into_iter()
            .map(|(target, name)| bind(target, directory.join(name), 0))
            .collect();
    let own = directory.join("shm");
    let shm = if own.is_dir() { own } else { PathBuf::from("/dev/shm") };
    mounts.push(bind("/dev/shm", shm, SAFE));
    mounts
}

fn bind_mount(mount: &Mount, target: PathBuf) -> Result<MountSpec, Status> {
    let path = Path::new(&mount.host_path);
    let failed =
        |error: std::io::Error| Status::invalid_argument(format!("failed to stat {:?}: {error}", mount.host_path));
    if let Err(error) = fs::metadata(path) {
        if error.kind() != std::io::ErrorKind::NotFound {
            return Err(failed(error));
        }
        fs::create_dir_all(path).map_err(failed)?;
    }
    let path = fs::canonicalize(path).map_err(failed)?;
    let maps_owners = !mount.uid_mappings.is_empty() || !mount.gid_mappings.is_empty();
    let propagation = match MountPropagation::try_from(mount.propagation) {
        Ok(MountPropagation::PropagationBidirectional) => {
            check_propagation(&path, &["shared:"], "a shared")?;
            MountPropagationKind::Shared
        }
        Ok(MountPropagation::PropagationHostToContainer) => {
            check_propagation(&path, &["shared:", "master:"], "a shared or slave")?;
            MountPropagationKind::Slave
        }
        _ => MountPropagationKind::Private,
    };
    if mount.recursive_read_only && (!mount.readonly || propagation != MountPropagationKind::Private) {
        return Err(Status::invalid_argument("recursive read-only mount needs readonly and private propagation"));
    }
    let set = if mount.readonly { MountAttributes::READ_ONLY } else { 0 };
    let source = MountSource::Bind { path, recursive: true };
    Ok(MountSpec { target, source, set, clear: 0, recursive: mount.recursive_read_only, propagation, maps_owners })
}

/// Propagation needs a mount on the host that takes part in it.
fn check_propagation(path: &Path, wanted: &[&str], what: &str) -> Result<(), Status> {
    let table = fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| Status::internal(format!("/proc/self/mountinfo: {error}")))?;
    let mut best: Option<(PathBuf, bool)> = None;
    for line in table.lines() {
        let Some((head, _)) = line.split_once(" - ") else { continue };
        let fields: Vec<&str> = head.split(' ').collect();
        let Some(place) = fields.get(4).map(|place| PathBuf::from(place.replace("\\040", " "))) else { continue };
        let takes_part = fields[6..].iter().any(|tag| wanted.iter().any(|wanted| tag.starts_with(wanted)));
        // The last mount at a path is the one on top.
        if path.starts_with(&place) && best.as_ref().is_none_or(|(known, _)| place.starts_with(known)) {
            best = Some((place, takes_part));
        }
    }
    match best {
        Some((_, true)) => Ok(()),
        Some((place, false)) => Err(Status::invalid_argument(format!(
            "path {:?} is mounted on {:?} but it is not {what} mount",
            path.display().to_string(),
            place.display().to_string()
        ))),
        None => Err(Status::invalid_argument(format!("no mount has the path {:?}", path.display().to_string()))),
    }
}

fn image_mount(
    images: &ImageStore,
    source: &SpecSource<'_>,
    mount: &Mount,
    target: PathBuf,
) -> Result<MountSpec, Status> {
    let layers = source.image_layers.get(&mount.container_path).cloned().unwrap_or_default();
    let lower = layers.into_iter().rev().collect();
    let image =
        MountSource::Image { layers: images.layers_dir(), lower, sub_path: mount.image_sub_path.clone().into() };
    Ok(plain(target, image, MountAttributes::READ_ONLY))
}

/// The path without `.`, `..` and doubled separators.
fn clean(path: &str) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for part in Path::new(path).components() {
        match part {
            std::path::Component::Normal(name) => clean.push(name),
            std::path::Component::ParentDir => drop(clean.pop()),
            _ => {}
        }
    }
    clean
}
