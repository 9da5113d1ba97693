//! Device nodes of containers and the rules that say which devices they may use.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use tonic::Status;

use crate::{
    container::spec::{DeviceNode, DeviceRule},
    cri::types::Device,
};

const CHARACTER: u32 = 0o020_000;
/// Devices of every container: path, major and minor number.
const DEFAULT_NODES: [(&str, u32, u32); 6] = [
    ("/dev/null", 1, 3),
    ("/dev/zero", 1, 5),
    ("/dev/full", 1, 7),
    ("/dev/random", 1, 8),
    ("/dev/urandom", 1, 9),
    ("/dev/tty", 5, 0),
];
/// Character devices without a node here that every container may use: terminals.
const DEFAULT_RULES: [(Option<u32>, Option<u32>); 2] = [(Some(136), None), (Some(5), Some(2))];
/// Directories of `/dev` that privileged containers have their own of.
const SKIPPED: [&str; 8] = ["pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev", "console"];
/// Directories of devices are followed to this depth.
const DEEPEST: usize = 8;

/// Returns the nodes and the rules of a container.
pub fn container_devices(devices: &[Device], privileged: bool) -> Result<(Vec<DeviceNode>, Vec<DeviceRule>), Status> {
    let mut nodes: Vec<DeviceNode> = DEFAULT_NODES
        .iter()
        .map(|(path, major, minor)| DeviceNode {
            path: path.into(),
            host_path: path.into(),
            mode: CHARACTER | 0o666,
            major: *major,
            minor: *minor,
            uid: 0,
            gid: 0,
        })
        .collect();
    let mut rules = vec![rule(privileged, 'a', None, None, "rwm")];
    if privileged {
        add_nodes(Path::new("/dev"), Path::new("/dev"), &mut nodes, 0);
    } else {
        // Nodes may be made, but not opened.
        rules.extend(['c', 'b'].map(|kind| rule(true, kind, None, None, "m")));
        rules.extend(nodes.iter().map(|node| rule(true, 'c', Some(node.major), Some(node.minor), "rwm")));
        rules.extend(DEFAULT_RULES.map(|(major, minor)| rule(true, 'c', major, minor, "rwm")));
    }
    for device in devices {
        let source = fs::canonicalize(&device.host_path)
            .map_err(|error| Status::invalid_argument(format!("device {:?}: {error}", device.host_path)))?;
        let first = nodes.len();
        add_nodes(&source, Path::new(&device.container_path), &mut nodes, 0);
        if nodes.len() == first {
            return Err(Status::invalid_argument(format!("{:?} is not a device", device.host_path)));
        }
        let access = if device.permissions.is_empty() { "rwm" } else { device.permissions.as_str() };
        let used = nodes[first..].iter().map(|node| {
            let kind = if node.mode & 0o170_000 == CHARACTER { 'c' } else { 'b' };
            rule(true, kind, Some(node.major), Some(node.minor), access)
        });
        rules.extend(used.collect::<Vec<_>>());
    }
    Ok((nodes, rules))
}

fn rule(allow: bool, kind: char, major: Option<u32>, minor: Option<u32>, access: &str) -> DeviceRule {
    DeviceRule { allow, kind, major, minor, access: access.into() }
}

/// Adds the device at a path, or those in a directory.
fn add_nodes(source: &Path, target: &Path, nodes: &mut Vec<DeviceNode>, depth: usize) {
    let Ok(found) = fs::symlink_metadata(source) else { return };
    let kind = found.file_type();
    if kind.is_dir() && depth < DEEPEST {
        for entry in fs::read_dir(source).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if !SKIPPED.iter().any(|skipped| name == *skipped) {
                add_nodes(&entry.path(), &target.join(&name), nodes, depth + 1);
            }
        }
    }
    if kind.is_char_device() || kind.is_block_device() {
        nodes.retain(|node| node.path != target);
        nodes.push(DeviceNode {
            path: target.to_owned(),
            host_path: source.to_owned(),
            mode: found.mode(),
            major: rustix::fs::major(found.rdev()),
            minor: rustix::fs::minor(found.rdev()),
            uid: found.uid(),
            gid: found.gid(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_denied_unless_listed() {
        let device =
            Device { container_path: "/dev/mine".into(), host_path: "/dev/null".into(), permissions: "r".into() };
        let (nodes, rules) = container_devices(&[device], false).unwrap();
        assert!(nodes.iter().any(|node| node.path == Path::new("/dev/mine") && (node.major, node.minor) == (1, 3)));
        assert!(!rules[0].allow && rules[0].kind == 'a');
        assert_eq!(rules.last().map(DeviceRule::to_legacy).as_deref(), Some("c 1:3 r"));
        let missing =
            Device { container_path: "/dev/x".into(), host_path: "/dev/does-not-exist".into(), ..Default::default() };
        assert!(container_devices(&[missing], false).is_err());
        let file = Device { container_path: "/dev/x".into(), host_path: "/etc/passwd".into(), ..Default::default() };
        assert!(container_devices(&[file], false).is_err());
    }
}
