//! Mounts that are made before the first process of a container enters its namespaces.
//!
//! In a user namespace the process may neither reach the host's directories nor map owners: what comes from the host is
//! cloned before, with the host's privileges, and attached later.

use std::{os::fd::BorrowedFd, path::Path};

use rustix::mount::{MountPropagationFlags, UnmountFlags};
use sys::{
    clone::{self, Namespaces},
    container_cgroup::ContainerCgroup,
    detached_mount::DetachedMount,
};

use super::{
    ContainerError, Operation,
    mount_sources::{clone_cgroups, clone_private, clone_source, clone_sub_path, new_overlay, set_bind_attributes},
    spec::{ContainerSpec, MountPropagationKind, MountSource, MountSpec},
};

/// Mounts of a container that are not attached yet.
#[derive(Default)]
pub struct PreparedMounts {
    /// The root; none: it is still to be made.
    pub root: Option<DetachedMount>,
    /// A source for each mount of the specification; none: it is still to be made.
    pub sources: Vec<Option<DetachedMount>>,
    /// The host's devices, for each device of the specification.
    pub devices: Vec<DetachedMount>,
    /// The directories of the control group of version 1.
    pub cgroups: Vec<DetachedMount>,
}

impl PreparedMounts {
    /// Clones the sources of shared mounts, which stay shared: the process is about to make all others slaves.
    pub fn shared_only(spec: &ContainerSpec) -> Result<Self, ContainerError> {
        let is_shared = |mount: &MountSpec| {
            matches!(mount.source, MountSource::Bind { .. }) && mount.propagation == MountPropagationKind::Shared
        };
        let sources = spec.mounts.iter().map(|mount| is_shared(mount).then(|| clone_source(mount)).transpose());
        Ok(Self { sources: sources.collect::<Result<_, _>>()?, ..Self::default() })
    }

    /// Makes all mounts that come from the host, with owners mapped by the user namespace, and makes the place of the root the
    /// working directory. The calling process gets a mount namespace of its own.
    pub fn for_user_namespace(
        spec: &ContainerSpec,
        cgroup: &ContainerCgroup,
        user_namespace: BorrowedFd<'_>,
    ) -> Result<Self, ContainerError> {
        let mut prepared = Self::shared_only(spec)?;
        clone::unshare_namespaces(Namespaces::MOUNT).during(|| "new mount namespace".into())?;
        rustix::mount::mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
            .during(|| "make mounts slaves of the host's".into())?;
        let owners = OwnerMap { user_namespace, staging: &spec.root.path };
        for (mount, source) in spec.mounts.iter().zip(&mut prepared.sources) {
            if source.is_none() {
                *source = owners.clone_source(mount)?;
            }
            if matches!(mount.source, MountSource::Cgroup) && !cgroup.is_unified() {
                prepared.cgroups = clone_cgroups(mount, cgroup)?;
            }
        }
        let clone_device = |path: &Path| DetachedMount::clone_path(path, false).during(|| path.display().to_string());
        let devices = spec.devices.iter().map(|device| clone_device(&device.host_path));
        prepared.devices = devices.collect::<Result<_, _>>()?;
        prepared.root = Some(owners.clone_root(spec)?);
        std::env::set_current_dir(&spec.root.path).during(|| spec.root.path.display().to_string())?;
        Ok(prepared)
    }
}

/// Clones mounts whose owners are mapped.
struct OwnerMap<'a> {
    user_namespace: BorrowedFd<'a>,
    /// A directory at which layers are mounted for as long as an overlay is made of them.
    staging: &'a Path,
}

impl OwnerMap<'_> {
    fn map(&self, tree: &DetachedMount, recursive: bool, target: &Path) -> Result<(), ContainerError> {
        tree.map_owners(self.user_namespace, recursive)
            .during(|| format!("map the owners of {} (does its file system support it?)", target.display()))
    }

    /// Clones the source of a mount; none: it does not come from the host.
    fn clone_source(&self, mount: &MountSpec) -> Result<Option<DetachedMount>, ContainerError> {
        match &mount.source {
            MountSource::FileSystem { .. } | MountSource::Cgroup => Ok(None),
            MountSource::Image { layers, lower, sub_path } if lower.len() > 1 => {
                let lowers = lower.iter().map(|name| layers.join(name));
                let tree = self.with_layers(lowers.collect::<Vec<_>>().iter().map(AsRef::as_ref), |lower| {
                    DetachedMount::new("overlay", &[("lowerdir", Some(lower))], 0)
                        .during(|| "mount the image".to_owned())
                })?;
                let tree = clone_sub_path(tree, sub_path)?;
                set_bind_attributes(&tree, mount)?;
                Ok(Some(tree))
            }
            source => {
                let tree = clone_source(mount)?;
                if mount.maps_owners {
                    let recursive = matches!(source, MountSource::Bind { recursive: true, .. });
                    self.map(&tree, recursive, &mount.target)?;
                }
                Ok(Some(tree))
            }
        }
    }

    fn clone_root(&self, spec: &ContainerSpec) -> Result<DetachedMount, ContainerError> {
        let Some(overlay) = &spec.root.overlay else { return clone_private(&spec.root.path) };
        let layers: Vec<_> = overlay.lower.iter().map(|name| overlay.layers.join(name)).collect();
        self.with_layers(layers.iter().map(AsRef::as_ref), |lower| new_overlay(lower, overlay))
    }

    /// Mounts layers with mapped owners, calls `make` with their paths relative to the working directory, and unmounts them.
    fn with_layers<'p>(
        &self,
        layers: impl Iterator<Item = &'p Path>,
        make: impl FnOnce(&str) -> Result<DetachedMount, ContainerError>,
    ) -> Result<DetachedMount, ContainerError> {
        let what = || format!("mount the image's layers at {}", self.staging.display());
        let tmpfs = DetachedMount::new("tmpfs", &[("mode", Some("700"))], 0).during(what)?;
        let place = open_directory(self.staging)?;
        tmpfs.attach(std::os::fd::AsFd::as_fd(&place)).during(what)?;
        std::env::set_current_dir(self.staging).during(what)?;
        let mut names = Vec::new();
        for (number, layer) in layers.enumerate() {
            let name = number.to_string();
            std::fs::create_dir(&name).during(what)?;
            let tree = DetachedMount::clone_path(layer, false).during(|| layer.display().to_string())?;
            self.map(&tree, false, layer)?;
            tree.attach(std::os::fd::AsFd::as_fd(&open_directory(Path::new(&name))?)).during(what)?;
            names.push(name);
        }
        let made = make(&names.join(":"))?;
        std::env::set_current_dir("/").during(what)?;
        rustix::mount::unmount(self.staging, UnmountFlags::DETACH).during(what)?;
        Ok(made)
    }
}

fn open_directory(path: &Path) -> Result<std::os::fd::OwnedFd, ContainerError> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).during(|| path.display().to_string())
}
