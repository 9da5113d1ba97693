//! The specification of a container, as the supervisor gets it: everything is decided, nothing is looked up.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sys::device_filter::{DEVICE_MAKE, DEVICE_READ, DEVICE_WRITE, DeviceFilterRule};

/// A container.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct ContainerSpec {
    /// The id.
    pub id: String,
    /// The file that records the exit of the container.
    pub exit_file: PathBuf,
    /// The root file system.
    pub root: RootSpec,
    /// Mounts, in order.
    pub mounts: Vec<MountSpec>,
    /// Device nodes in `/dev`.
    pub devices: Vec<DeviceNode>,
    /// Hides these paths.
    pub masked_paths: Vec<String>,
    /// Makes these paths read-only.
    pub readonly_paths: Vec<String>,
    /// The PID namespace.
    pub pid_namespace: PidNamespace,
    /// The control group.
    pub cgroup: CgroupSpec,
    /// The user namespace's maps; none: that of the host.
    pub user_namespace: Option<UserNamespaceSpec>,
    /// The first process.
    pub process: ProcessSpec,
    /// The log; none: output is dropped.
    pub log_path: Option<PathBuf>,
    /// Whether the process has an input that clients can attach to.
    pub stdin: bool,
    /// Whether the input ends when the first client detaches.
    pub stdin_once: bool,
    /// Whether the process waits for a start request after its environment is made.
    pub waits_for_start: bool,
    /// Programs that are run at points of the life cycle.
    pub hooks: HookSpecs,
    /// The state that hooks get on standard input.
    pub hook_state: String,
}

/// The root file system.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct RootSpec {
    /// The directory at which it is mounted, in the container's mount namespace only.
    pub path: PathBuf,
    /// Layers; none: the directory is the root itself.
    pub overlay: Option<OverlaySpec>,
    /// Read-only.
    pub read_only: bool,
}

/// An overlay.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct OverlaySpec {
    /// The directory of all layers; paths of layers are relative to it, which keeps mount options short.
    pub layers: PathBuf,
    /// Lower layers, the top one first.
    pub lower: Vec<String>,
    /// The writable layer.
    pub upper: PathBuf,
    /// The kernel's own directory beside it.
    pub work: PathBuf,
}

/// A mount.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct MountSpec {
    /// The path in the container.
    pub target: PathBuf,
    /// The source of the mount.
    pub source: MountSource,
    /// Attributes to set.
    pub set: u64,
    /// Attributes to clear.
    pub clear: u64,
    /// Whether attributes are set on mounts below too.
    pub recursive: bool,
    /// The propagation of the mount.
    pub propagation: MountPropagationKind,
    /// Whether owners of files are mapped by the user namespace of the container, if it has one.
    #[serde(default)]
    pub maps_owners: bool,
}

/// The source of a mount.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum MountSource {
    /// A new file system.
    FileSystem {
        /// Its type.
        kind: String,
        /// Its options.
        options: Vec<(String, Option<String>)>,
    },
    /// A path of the host.
    Bind {
        /// The path.
        path: PathBuf,
        /// With the mounts below it.
        recursive: bool,
    },
    /// A volume of the image: a directory of the host that starts with the image's content.
    ImageVolume {
        /// The directory.
        path: PathBuf,
    },
    /// An image, read-only.
    Image {
        /// The directory of all layers.
        layers: PathBuf,
        /// Its layers, the top one first.
        lower: Vec<String>,
        /// The path in the image that is mounted; empty: all of it.
        sub_path: PathBuf,
    },
    /// Control groups as the container sees them.
    Cgroup,
}

/// The propagation of mounts between host and container.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub enum MountPropagationKind {
    /// Not at all.
    #[default]
    Private,
    /// From the host to the container.
    Slave,
    /// Both ways.
    Shared,
}

/// A device node.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct DeviceNode {
    /// The path in the container.
    pub path: PathBuf,
    /// The path on the host, which is bound where nodes cannot be made: in a user namespace.
    #[serde(default)]
    pub host_path: PathBuf,
    /// Type and permissions.
    pub mode: u32,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// A rule of the device controller.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct DeviceRule {
    /// Allows, or denies.
    pub allow: bool,
    /// `a`, `b` or `c`.
    pub kind: char,
    /// Major number; none: all.
    pub major: Option<u32>,
    /// Minor number; none: all.
    pub minor: Option<u32>,
    /// Some of `rwm`.
    pub access: String,
}

impl DeviceRule {
    /// The rule as version 1 of control groups writes it.
    pub fn to_legacy(&self) -> String {
        let number = |number: Option<u32>| number.map_or("*".into(), |number| number.to_string());
        format!("{} {}:{} {}", self.kind, number(self.major), number(self.minor), self.access)
    }
}

impl DeviceRule {
    /// The rule for version 2 of control groups.
    pub fn to_filter_rule(&self) -> DeviceFilterRule {
        let bits = [('m', DEVICE_MAKE), ('r', DEVICE_READ), ('w', DEVICE_WRITE)];
        let given = bits.iter().filter(|(letter, _)| self.access.contains(*letter));
        DeviceFilterRule {
            allow: self.allow,
            is_block: (self.kind != 'a').then_some(self.kind == 'b'),
            major: self.major,
            minor: self.minor,
            access: given.fold(0, |access, (_, bit)| access | bit),
        }
    }
}

/// The PID namespace of a container.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub enum PidNamespace {
    /// One of its own.
    #[default]
    Own,
    /// The pod's.
    Pod,
    /// The host's.
    Host,
    /// That of another container of the pod.
    Container(String),
}

/// The control group.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct CgroupSpec {
    /// The path below the root of each hierarchy; it exists and has its limits.
    pub path: String,
    /// Whether the container sees it as the root.
    pub private: bool,
    /// Device rules, in order.
    pub devices: Vec<DeviceRule>,
}

/// A map of user or group IDs.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct IdMap {
    /// First ID in the container.
    pub container: u32,
    /// First ID on the host.
    pub host: u32,
    /// The number.
    pub length: u32,
}

/// A user namespace.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct UserNamespaceSpec {
    /// Users.
    pub uids: Vec<IdMap>,
    /// Groups.
    pub gids: Vec<IdMap>,
}

impl UserNamespaceSpec {
    /// The user and the group of the host that an owner in the container is; none: it is not mapped.
    pub fn host_owner(&self, uid: u32, gid: u32) -> Option<(u32, u32)> {
        Some((host_id(&self.uids, uid)?, host_id(&self.gids, gid)?))
    }
}

fn host_id(maps: &[IdMap], id: u32) -> Option<u32> {
    maps.iter().find_map(|map| {
        let offset = id.checked_sub(map.container).filter(|offset| *offset < map.length)?;
        map.host.checked_add(offset)
    })
}

/// A process of a container.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct ProcessSpec {
    /// Program and arguments.
    pub arguments: Vec<String>,
    /// Variables, as `NAME=value`.
    pub environment: Vec<String>,
    /// The working directory.
    pub directory: PathBuf,
    /// User and groups.
    pub user: UserSpec,
    /// Whether it has a terminal.
    pub terminal: bool,
    /// The terminal's width and height.
    pub terminal_size: Option<(u16, u16)>,
    /// Resource limits: number, soft, hard.
    pub limits: Vec<(u32, u64, u64)>,
    /// Whether privileges can only shrink.
    pub no_new_privileges: bool,
    /// Capabilities, one bit each: bounding, effective, inheritable, permitted, ambient.
    pub capabilities: [u64; 5],
    /// A system call filter; none: no filter.
    pub seccomp: Option<seccomp_program::SeccompProgram>,
    /// The score by which the kernel chooses what it kills for want of memory.
    pub oom_score_adj: Option<i32>,
    /// The file creation mask.
    pub umask: Option<u32>,
    /// The AppArmor profile.
    pub apparmor: Option<String>,
    /// The SELinux label.
    pub selinux: Option<String>,
}

/// A compiled system call filter.
pub mod seccomp_program {
    use serde::{Deserialize, Serialize};

    /// Instructions, as numbers: code, jumps, operand.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
    pub struct SeccompProgram {
        /// The instructions.
        pub instructions: Vec<(u16, u8, u8, u32)>,
        /// Flags of the system call.
        pub flags: u64,
    }
}

/// User and groups; what is not given comes from the image's `/etc/passwd` and `/etc/group`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct UserSpec {
    /// A name or number.
    pub user: String,
    /// A name or number; none: the user's own group.
    pub group: Option<String>,
    /// More groups.
    pub groups: Vec<u32>,
    /// Whether the image's memberships count.
    pub adds_image_groups: bool,
}

/// A program that is run at a point of the life cycle.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct HookSpec {
    /// The program.
    pub path: PathBuf,
    /// Its arguments, the name first.
    #[serde(default)]
    pub args: Vec<String>,
    /// Its variables.
    #[serde(default)]
    pub env: Vec<String>,
    /// Seconds until it is killed.
    #[serde(default)]
    pub timeout: Option<u64>,
}

/// Hooks by point, as the OCI runtime specification names them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HookSpecs {
    /// Before anything is made; deprecated, run as `createRuntime`.
    pub prestart: Vec<HookSpec>,
    /// In the runtime's namespaces, after those of the container exist.
    pub create_runtime: Vec<HookSpec>,
    /// In the container's namespaces, before the root is changed.
    pub create_container: Vec<HookSpec>,
    /// In the container's namespaces, before the program is executed.
    pub start_container: Vec<HookSpec>,
    /// In the runtime's namespaces, after the program is executed.
    pub poststart: Vec<HookSpec>,
    /// In the runtime's namespaces, after the container is deleted.
    pub poststop: Vec<HookSpec>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_outside_of_the_map_have_no_host_owner() {
        let map = IdMap { container: 0, host: 131_072, length: 65_536 };
        let users = UserNamespaceSpec { uids: vec![map], gids: vec![map] };
        assert_eq!(users.host_owner(0, 5), Some((131_072, 131_077)));
        assert_eq!(users.host_owner(65_535, 0), Some((196_607, 131_072)));
        assert_eq!(users.host_owner(65_536, 0), None);
    }
}
