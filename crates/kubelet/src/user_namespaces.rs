//! User namespaces of pods with `hostUsers: false`: each has a range of the host's user and group IDs of its own.
//!
//! The range of a pod is in the file `userns` of its directory, in upstream's format, so that it is the same after a restart
//! of the kubelet. A range is free again once the pod's directory is gone.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use k8s_openapi::api::core::v1::Pod;
use runtime::cri::types::{IdMapping, NamespaceMode, UserNamespace};
use serde::{Deserialize, Serialize};

use crate::{pod_metadata::pod_uid, volumes::PodDir};

/// The number of IDs of a pod, and the first ID of the first pod: the host's own IDs are below.
const IDS_PER_POD: u32 = 65_536;
/// The file in the pod's directory.
const MAPPINGS_FILE: &str = "userns";

/// A pod cannot have a user namespace.
#[derive(Debug, thiserror::Error)]
pub enum UserNamespaceError {
    /// The default runtime handler cannot make one.
    #[error("can't set `spec.hostUsers: false`, runtime does not support user namespaces")]
    RuntimeUnsupported,
    /// The handler of the pod's RuntimeClass cannot make one.
    #[error("can't set `spec.hostUsers: false`, RuntimeClass handler {0:?} does not support user namespaces")]
    HandlerUnsupported(String),
    /// The file of the pod's range is damaged.
    #[error("user namespace: invalid user namespace mappings file {}: {message}", path.display())]
    InvalidFile {
        /// The file.
        path: PathBuf,
        /// The fault.
        message: String,
    },
    /// The file of the pod's range could not be read or written.
    #[error("create user namespace: {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// All ranges are in use.
    #[error("create user namespace: could not find an empty slot to allocate a user namespace")]
    Exhausted,
}

/// The file of a pod's range.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct UserNamespaceFile {
    uid_mappings: Vec<MappingEntry>,
    gid_mappings: Vec<MappingEntry>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct MappingEntry {
    host_id: u32,
    container_id: u32,
    length: u32,
}

/// Allocates ranges of IDs to pods.
#[derive(Debug)]
pub struct UserNamespaceManager {
    root_dir: PathBuf,
    /// The number of ranges.
    capacity: u32,
    /// The first ID of each range in use, by the uid of its pod; none: not read from disk yet.
    ranges: Mutex<Option<BTreeMap<String, u32>>>,
}

impl UserNamespaceManager {
    /// A manager of one range for each of `max_pods` pods, whose directories are below `root_dir`.
    pub fn new(root_dir: &Path, max_pods: i64) -> Self {
        let capacity = u32::try_from(max_pods).unwrap_or(0).min(u32::MAX / IDS_PER_POD - 1);
        Self { root_dir: root_dir.to_owned(), capacity, ranges: Mutex::default() }
    }

    /// Returns the user namespace of a pod, with a range that is allocated on the first call. `handler` is the pod's runtime
    /// handler. Blocks shortly; the pod's directory must be there.
    pub fn user_namespace(
        &self,
        pod: &Pod,
        handler: &str,
        is_supported: bool,
    ) -> Result<UserNamespace, UserNamespaceError> {
        if pod.spec.as_ref().and_then(|spec| spec.host_users) != Some(false) {
            return Ok(UserNamespace { mode: NamespaceMode::Node as i32, ..Default::default() });
        }
        if !is_supported {
            return Err(match handler {
                "" => UserNamespaceError::RuntimeUnsupported,
                handler => UserNamespaceError::HandlerUnsupported(handler.to_owned()),
            });
        }
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        let ranges = ranges.get_or_insert_with(|| self.ranges_on_disk());
        let uid = pod_uid(pod);
        let first = match self.read_range(uid)? {
            Some(first) => first,
            None => {
                ranges.retain(|other, _| self.mappings_path(other).exists());
                let first = first_free_range(ranges, self.capacity).ok_or(UserNamespaceError::Exhausted)?;
                self.write_range(uid, first)?;
                first
            }
        };
        ranges.insert(uid.to_owned(), first);
        let mappings = vec![IdMapping { host_id: first, container_id: 0, length: IDS_PER_POD }];
        Ok(UserNamespace { mode: NamespaceMode::Pod as i32, uids: mappings.clone(), gids: mappings })
    }

    fn mappings_path(&self, uid: &str) -> PathBuf {
        PodDir::new(&self.root_dir, uid).path().join(MAPPINGS_FILE)
    }

    /// The ranges of pods of an earlier kubelet. A damaged file is reported when its pod is synced.
    fn ranges_on_disk(&self) -> BTreeMap<String, u32> {
        let pods = fs::read_dir(self.root_dir.join("pods")).into_iter().flatten().flatten();
        let uids = pods.filter_map(|entry| entry.file_name().into_string().ok());
        uids.filter_map(|uid| Some((uid.clone(), self.read_range(&uid).ok()??))).collect()
    }

    /// The first ID of the pod's range; none: it has no range yet.
    fn read_range(&self, uid: &str) -> Result<Option<u32>, UserNamespaceError> {
        let path = self.mappings_path(uid);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|source| UserNamespaceError::Io { path: path.clone(), source })?,
        };
        let invalid =
            |message: &str| UserNamespaceError::InvalidFile { path: path.clone(), message: message.to_owned() };
        let file: UserNamespaceFile = serde_json::from_slice(&text).map_err(|error| invalid(&error.to_string()))?;
        let [mapping] = file.uid_mappings[..] else { return Err(invalid("no more than one mapping allowed")) };
        if file.gid_mappings != [mapping] {
            return Err(invalid("GID and UID mapping should be identical"));
        }
        if mapping.container_id != 0 || mapping.length != IDS_PER_POD {
            return Err(invalid("UID 0 must be mapped, and the length must be that of all pods"));
        }
        let slot = mapping.host_id / IDS_PER_POD;
        if mapping.host_id % IDS_PER_POD != 0 || slot == 0 || slot > self.capacity {
            return Err(invalid("the ID of the host is out of range"));
        }
        Ok(Some(mapping.host_id))
    }

    /// Writes the range durably before it is used.
    fn write_range(&self, uid: &str, first: u32) -> Result<(), UserNamespaceError> {
        let mapping = MappingEntry { host_id: first, container_id: 0, length: IDS_PER_POD };
        let file = UserNamespaceFile { uid_mappings: vec![mapping], gid_mappings: vec![mapping] };
        let path = self.mappings_path(uid);
        let write = || -> io::Result<()> {
            let temporary = path.with_extension("new");
            let mut new = fs::File::create(&temporary)?;
            serde_json::to_writer(&mut new, &file)?;
            new.sync_all()?;
            fs::rename(&temporary, &path)?;
            fs::File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
        };
        write().map_err(|source| UserNamespaceError::Io { path: path.clone(), source })
    }
}

/// The first ID of the lowest range that no pod has.
fn first_free_range(ranges: &BTreeMap<String, u32>, capacity: u32) -> Option<u32> {
    (1..=capacity).map(|slot| slot * IDS_PER_POD).find(|first| !ranges.values().any(|used| used == first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(dir: &Path, uid: &str) -> Pod {
        fs::create_dir_all(PodDir::new(dir, uid).path()).unwrap();
        let spec = json!({ "containers": [], "hostUsers": false });
        serde_json::from_value(json!({ "metadata": { "name": uid, "uid": uid }, "spec": spec })).unwrap()
    }

    fn first_id(manager: &UserNamespaceManager, pod: &Pod) -> Result<u32, String> {
        let users = manager.user_namespace(pod, "", true).map_err(|error| error.to_string())?;
        assert_eq!(users.uids, users.gids);
        Ok(users.uids[0].host_id)
    }

    #[test]
    fn ranges_are_unique_survive_a_restart_and_are_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b, c) = (pod(dir.path(), "a"), pod(dir.path(), "b"), pod(dir.path(), "c"));
        let manager = UserNamespaceManager::new(dir.path(), 2);
        assert_eq!(first_id(&manager, &a), Ok(IDS_PER_POD));
        assert_eq!(first_id(&manager, &b), Ok(2 * IDS_PER_POD));
        assert!(first_id(&manager, &c).unwrap_err().contains("could not find an empty slot"));
        let restarted = UserNamespaceManager::new(dir.path(), 2);
        fs::remove_dir_all(PodDir::new(dir.path(), "a").path()).unwrap();
        assert_eq!(first_id(&restarted, &c), Ok(IDS_PER_POD));
        assert_eq!(first_id(&restarted, &b), Ok(2 * IDS_PER_POD));
    }

    #[test]
    fn damaged_file_and_unsupported_runtime_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let manager = UserNamespaceManager::new(dir.path(), 2);
        let a = pod(dir.path(), "a");
        let refused = |handler| manager.user_namespace(&a, handler, false).unwrap_err().to_string();
        assert_eq!(refused(""), "can't set `spec.hostUsers: false`, runtime does not support user namespaces");
        assert!(refused("kata").contains("RuntimeClass handler \"kata\" does not"));
        let entry = json!([{ "hostId": 0, "containerId": 0, "length": IDS_PER_POD }]);
        let file = json!({ "uidMappings": entry, "gidMappings": entry });
        fs::write(manager.mappings_path("a"), file.to_string()).unwrap();
        assert!(first_id(&manager, &a).unwrap_err().contains("out of range"));
    }

    #[test]
    fn pods_in_the_hosts_user_namespace_have_no_range() {
        let manager = UserNamespaceManager::new(Path::new("/nonexistent"), 2);
        let users = manager.user_namespace(&Pod::default(), "", false).unwrap();
        assert_eq!((users.mode, users.uids.len()), (NamespaceMode::Node as i32, 0));
    }
}
