//! One cluster on this machine: its data directory, every path in it, and the names of what it makes in the kernel.
//!
//! The names differ between data directories, so that several clusters live beside each other and each one's `down`
//! removes only its own things.

use std::{
    io,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::arguments::DATA_DIR;

/// Entries of a data directory.
const ENTRIES: [&str; 15] = [
    "admin.kubeconfig",
    "certs.d",
    "cni",
    "containerd",
    "runtime",
    "ferry.log",
    "ferry.pid",
    "images",
    "kubelet",
    "leader-identity",
    "lock",
    "logs",
    "pki",
    "state.json",
    "store",
];

/// The name of the context in a kubeconfig.
pub const CONTEXT: &str = "ferry";

/// A cluster, known by its data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterInstance {
    data: PathBuf,
    /// Six hexadecimal digits; `None` for the default data directory.
    suffix: Option<String>,
}

impl ClusterInstance {
    /// The cluster of that data directory, which need not exist yet.
    pub fn at(data_dir: &Path) -> io::Result<Self> {
        let data = canonical(&std::path::absolute(data_dir)?)?;
        let suffix = (data != Path::new(DATA_DIR)).then(|| {
            let hash = Sha256::digest(data.as_os_str().as_encoded_bytes());
            format!("{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2])
        });
        Ok(Self { data, suffix })
    }

    /// The data directory: absolute, without symbolic links.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Whether the data directory holds a cluster and not other files. A directory that was never locked, as
    /// one restored from a copy, must have a store and nothing that ferry does not know.
    pub fn is_cluster(&self) -> io::Result<bool> {
        if self.lock().exists() {
            return Ok(true);
        }
        let entries = match std::fs::read_dir(&self.data) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            entries => entries?,
        };
        for entry in entries {
            if !entry?.file_name().to_str().is_some_and(|name| ENTRIES.contains(&name)) {
                return Ok(false);
            }
        }
        Ok(self.store().exists())
    }

    /// The name of the cluster among those of this machine, for a kubeconfig where `ferry` is another cluster.
    pub fn cluster_name(&self) -> String {
        self.named(CONTEXT, "ferry-")
    }

    /// The bridge that pods are attached to; also the name of the CNI network.
    pub fn bridge(&self) -> String {
        self.named("ferry0", "fry-")
    }

    /// The control group that holds those of the pods.
    pub fn cgroup(&self) -> String {
        self.named("/ferry", "/ferry-")
    }

    /// The table of packet filters.
    pub fn nft_table(&self) -> String {
        self.named("ferry", "ferry_")
    }

    /// The tables of the service proxy.
    pub fn proxy_table(&self) -> String {
        format!("{}_services", self.nft_table())
    }

    /// The tables of network policies.
    pub fn policy_table(&self) -> String {
        format!("{}_policies", self.nft_table())
    }

    /// Whether a table of packet filters is this cluster's.
    pub fn owns_table(&self, name: &str) -> bool {
        [self.nft_table(), self.proxy_table(), self.policy_table()].iter().any(|own| own == name)
    }

    /// The link of the overlay.
    pub fn overlay_link(&self) -> String {
        self.named("ferry-overlay", "fryo-")
    }

    fn named(&self, default: &str, prefix: &str) -> String {
        self.suffix.as_ref().map_or_else(|| default.to_owned(), |suffix| format!("{prefix}{suffix}"))
    }

    /// The identity of this instance in leader elections, kept across restarts.
    pub fn leader_identity(&self) -> PathBuf {
        self.data.join("leader-identity")
    }

    /// Certificates and keys.
    pub fn pki(&self) -> PathBuf {
        self.data.join("pki")
    }

    /// The cluster's objects.
    pub fn store(&self) -> PathBuf {
        self.data.join("store")
    }

    /// The log of the background process.
    pub fn log(&self) -> PathBuf {
        self.data.join("ferry.log")
    }

    /// Which process runs the cluster.
    pub fn pid_file(&self) -> PathBuf {
        self.data.join("ferry.pid")
    }

    /// Locked by the process that runs the cluster.
    pub fn lock(&self) -> PathBuf {
        self.data.join("lock")
    }

    /// The state of earlier starts.
    pub fn state(&self) -> PathBuf {
        self.data.join("state.json")
    }

    /// The administrator's kubeconfig.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.data.join("admin.kubeconfig")
    }

    /// Directories of local-path volumes.
    pub fn local_volumes(&self) -> PathBuf {
        self.data.join("local-path")
    }

    /// The kubelet's pod directories.
    pub fn kubelet(&self) -> PathBuf {
        self.data.join("kubelet")
    }

    /// Container logs.
    pub fn pod_logs(&self) -> PathBuf {
        self.data.join("logs/pods")
    }

    /// The CNI configuration of the cluster's own runtime.
    pub fn cni(&self) -> PathBuf {
        self.data.join("cni")
    }

    /// The CNI plug-ins of the cluster's own runtime: links to this program.
    pub fn cni_plugins(&self) -> PathBuf {
        self.cni().join("bin")
    }

    /// Which pod addresses are taken.
    pub fn ipam(&self) -> PathBuf {
        self.cni().join("ipam")
    }

    /// Images that were loaded by hand, as an OCI layout.
    pub fn images(&self) -> PathBuf {
        self.data.join("images")
    }

    /// The registry configuration of the cluster's own runtime.
    pub fn registries(&self) -> PathBuf {
        self.data.join("certs.d")
    }

    /// Everything of the cluster's own containerd.
    pub fn containerd(&self) -> PathBuf {
        self.data.join("containerd")
    }

    /// The socket of the cluster's own containerd.
    pub fn containerd_socket(&self) -> PathBuf {
        self.containerd().join("containerd.sock")
    }

    /// Everything of the runtime in this program.
    pub fn runtime(&self) -> PathBuf {
        self.data.join("runtime")
    }

    /// The CRI endpoint of the runtime in this program.
    pub fn runtime_endpoint(&self) -> String {
        format!("unix://{}", self.runtime().join("cri.sock").display())
    }

    /// The CRI endpoint of the cluster's own containerd.
    pub fn own_endpoint(&self) -> String {
        format!("unix://{}", self.containerd_socket().display())
    }
}

/// Resolves symbolic links in the part of the path that exists.
fn canonical(path: &Path) -> io::Result<PathBuf> {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
            Ok(canonical(parent)?.join(name))
        }
        (outcome, ..) => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_has_plain_names() {
        let instance = ClusterInstance { data: DATA_DIR.into(), suffix: None };
        assert_eq!(instance.cluster_name(), "ferry");
        assert_eq!(instance.bridge(), "ferry0");
        assert_eq!(instance.cgroup(), "/ferry");
        assert_eq!(instance.nft_table(), "ferry");
    }

    #[test]
    fn other_directories_have_their_own_names() {
        let directory = tempfile::tempdir().unwrap();
        let one = ClusterInstance::at(&directory.path().join("a/b")).unwrap();
        let two = ClusterInstance::at(&directory.path().join("c")).unwrap();
        assert_ne!(one.bridge(), two.bridge());
        assert!(one.bridge().len() <= 15, "longer than a link's name can be");
        assert!(one.bridge().starts_with("fry-") && one.cgroup().starts_with("/ferry-"));
        assert!(one.nft_table().starts_with("ferry_"));
    }

    #[test]
    fn cluster_is_distinguished_from_other_files() {
        let directory = tempfile::tempdir().unwrap();
        let instance = ClusterInstance::at(&directory.path().join("d")).unwrap();
        assert!(!instance.is_cluster().unwrap(), "nothing");
        std::fs::create_dir_all(instance.pki()).unwrap();
        assert!(!instance.is_cluster().unwrap(), "no store");
        std::fs::create_dir(instance.store()).unwrap();
        assert!(instance.is_cluster().unwrap(), "a store that was never locked");
        std::fs::write(instance.data().join("thesis.txt"), "").unwrap();
        assert!(!instance.is_cluster().unwrap(), "a foreign file");
        std::fs::write(instance.lock(), "").unwrap();
        assert!(instance.is_cluster().unwrap(), "locked once");
    }

    #[test]
    fn a_symbolic_link_is_the_same_cluster() {
        let directory = tempfile::tempdir().unwrap();
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert_eq!(ClusterInstance::at(&real.join("x")).unwrap(), ClusterInstance::at(&link.join("x")).unwrap());
        assert_eq!(ClusterInstance::at(&real).unwrap(), ClusterInstance::at(&real.join("../real")).unwrap());
    }
}
