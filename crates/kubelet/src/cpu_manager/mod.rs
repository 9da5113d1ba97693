//! The CPU manager: with the policy `static`, containers of guaranteed pods that ask for whole CPUs have CPUs of their own, and
//! all others share the rest.
//!
//! CPUs are assigned when a pod is admitted, and written to `cpu_manager_state` before the pod starts, so that they are the
//! same after a restart of the kubelet. Containers of the shared pool are moved when it changes (`cpu_reconciler`).

mod assignment;
pub mod cpu_set;
pub mod topology;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use serde::{Deserialize, Serialize};

use self::{
    assignment::{NotEnoughCpus, take_by_topology},
    cpu_set::CpuSet,
    topology::CpuTopology,
};
use crate::{
    pod_metadata::pod_uid,
    pod_spec::is_sidecar,
    resources::{QosClass, exclusive_cpu_count, pod_qos_class},
};

/// The file of assignments in the kubelet's directory.
const STATE_FILE: &str = "cpu_manager_state";

/// Settings of the CPU manager.
#[derive(Clone, Debug)]
pub struct CpuManagerSettings {
    /// Whether containers get CPUs of their own (the policy `static`).
    pub is_static: bool,
    /// CPUs that are never assigned; none: as many as are reserved.
    pub reserved_cpus: Option<CpuSet>,
    /// Interval at which the CPUs of containers are checked.
    pub reconcile_period: Duration,
}

impl Default for CpuManagerSettings {
    fn default() -> Self {
        Self { is_static: false, reserved_cpus: None, reconcile_period: Duration::from_secs(10) }
    }
}

/// The CPU manager cannot start.
#[derive(Debug, thiserror::Error)]
pub enum CpuManagerError {
    /// No CPU is reserved for the system.
    #[error(
        "cpuManagerPolicy: the static policy requires reserved CPUs: set reservedSystemCPUs, or cpu in systemReserved or kubeReserved"
    )]
    NothingReserved,
    /// More CPUs are reserved than there are.
    #[error("cpuManagerPolicy: cannot reserve CPUs: {0}")]
    TooManyReserved(#[from] NotEnoughCpus),
    /// CPUs are reserved that the node has not.
    #[error("reservedSystemCPUs: {0} are not all online")]
    UnknownCpus(CpuSet),
    /// The file of assignments is damaged or belongs to other CPUs.
    #[error("{}: {message}; drain the node and remove the file", path.display())]
    InvalidState {
        /// The file.
        path: PathBuf,
        /// The fault.
        message: String,
    },
    /// The file of assignments could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
}

/// CPUs could not be assigned to a container.
#[derive(Debug, thiserror::Error)]
pub enum CpuAssignmentError {
    /// Not enough CPUs are free.
    #[error(transparent)]
    NotEnoughCpus(#[from] NotEnoughCpus),
    /// The assignment could not be kept.
    #[error("{0}")]
    State(#[from] CpuManagerError),
}

/// The file of assignments.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CpuManagerState {
    policy_name: String,
    /// All CPUs of the node.
    cpus: String,
    /// CPUs by uid of the pod and name of the container.
    entries: BTreeMap<String, BTreeMap<String, String>>,
}

/// Assignments by uid of the pod and name of the container.
type Assignments = BTreeMap<String, BTreeMap<String, CpuSet>>;

/// Assigns CPUs to containers.
#[derive(Debug)]
pub struct CpuManager {
    root_dir: PathBuf,
    topology: CpuTopology,
    reserved: CpuSet,
    assignments: Assignments,
}

impl CpuManager {
    /// Reads the assignments of an earlier run; none without the policy `static`. `reserved_millis` is the CPU that is reserved
    /// for the system.
    pub fn start(
        settings: &CpuManagerSettings,
        topology: CpuTopology,
        reserved_millis: i64,
        root_dir: &Path,
    ) -> Result<Option<Self>, CpuManagerError> {
        if !settings.is_static {
            return Ok(None);
        }
        let reserved = reserved_cpus(settings, &topology, reserved_millis)?;
        let mut manager =
            Self { root_dir: root_dir.to_owned(), topology, reserved, assignments: Assignments::default() };
        manager.assignments = manager.read_assignments()?;
        Ok(Some(manager))
    }

    /// Assigns CPUs to the containers of a pod that are to have some of their own, all or none.
    pub fn allocate_pod(&mut self, pod: &Pod) -> Result<(), CpuAssignmentError> {
        let (Some(spec), uid) = (&pod.spec, pod_uid(pod)) else { return Ok(()) };
        if self.assignments.contains_key(uid) || !has_exclusive_cpus(spec) {
            return Ok(());
        }
        let assigned = self.choose_cpus(spec)?;
        self.assignments.insert(uid.to_owned(), assigned);
        if let Err(error) = self.write_state() {
            self.assignments.remove(uid);
            return Err(error.into());
        }
        Ok(())
    }

    /// Releases the CPUs of a pod.
    pub fn release_pod(&mut self, uid: &str) {
        if self.assignments.remove(uid).is_some()
            && let Err(error) = self.write_state()
        {
            // The entry is dropped at the next start, because the pod's directory is gone.
            tracing::warn!(pod_uid = uid, %error, "CPU manager: released CPUs not written");
        }
    }

    /// The CPUs of a container: its own, or those that all others share.
    pub fn cpus_of(&self, uid: &str, container: &str) -> CpuSet {
        let own = self.assignments.get(uid).and_then(|containers| containers.get(container));
        own.cloned().unwrap_or_else(|| self.shared_pool())
    }

    /// Whether a container has CPUs of its own.
    pub fn has_own_cpus(&self, uid: &str, container: &str) -> bool {
        self.assignments.get(uid).is_some_and(|containers| containers.contains_key(container))
    }

    /// Whether a container of the pod has CPUs of its own.
    pub fn is_pinned(&self, uid: &str) -> bool {
        self.assignments.contains_key(uid)
    }

    /// All CPUs that no container has for itself, the reserved ones included.
    fn shared_pool(&self) -> CpuSet {
        let own = self.assignments.values().flat_map(BTreeMap::values).flat_map(CpuSet::iter).collect();
        self.topology.cpus().difference(&own)
    }

    /// CPUs of init containers that have ended are used again by the pod's other containers.
    fn choose_cpus(&self, spec: &PodSpec) -> Result<BTreeMap<String, CpuSet>, NotEnoughCpus> {
        let mut free = self.shared_pool().difference(&self.reserved);
        let (mut reusable, mut assigned) = (CpuSet::default(), BTreeMap::new());
        let init = spec.init_containers.iter().flatten().map(|container| (container, is_sidecar(container)));
        let containers = init.chain(spec.containers.iter().map(|container| (container, true)));
        for (container, runs_on) in containers {
            let Some(count) = exclusive_cpu_count(container) else { continue };
            let cpus = self.choose_for_container(&free, &reusable, count)?;
            free = free.difference(&cpus);
            reusable = if runs_on { reusable.difference(&cpus) } else { reusable.union(&cpus) };
            assigned.insert(container.name.clone(), cpus);
        }
        Ok(assigned)
    }

    /// Takes reusable CPUs first.
    fn choose_for_container(&self, free: &CpuSet, reusable: &CpuSet, count: usize) -> Result<CpuSet, NotEnoughCpus> {
        if count <= reusable.len() {
            return take_by_topology(&self.topology, reusable, count);
        }
        let free = free.difference(reusable);
        let rest = take_by_topology(&self.topology, &free, count - reusable.len());
        let short = |_| NotEnoughCpus { requested: count, available: free.len() + reusable.len() };
        Ok(reusable.union(&rest.map_err(short)?))
    }

    fn state_path(&self) -> PathBuf {
        self.root_dir.join(STATE_FILE)
    }

    fn read_assignments(&self) -> Result<Assignments, CpuManagerError> {
        let path = self.state_path();
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Assignments::default()),
            read => read.map_err(|source| CpuManagerError::Io { path: path.clone(), source })?,
        };
        let invalid = |message: String| CpuManagerError::InvalidState { path: path.clone(), message };
        let state: CpuManagerState = serde_json::from_slice(&text).map_err(|error| invalid(error.to_string()))?;
        let all = self.topology.cpus();
        if state.cpus != all.to_string() {
            return Err(invalid(format!(
                "current set of available CPUs {all} doesn't match with CPUs in state {}",
                state.cpus
            )));
        }
        let mut assignments = Assignments::default();
        for (uid, containers) in state.entries {
            for (container, cpus) in containers {
                let cpus: CpuSet = cpus.parse().map_err(|error| invalid(format!("pod {uid}: {error}")))?;
                if !cpus.is_subset(&all) || cpus.iter().any(|cpu| self.reserved.contains(cpu)) {
                    return Err(invalid(format!("pod {uid}: CPUs {cpus} cannot be assigned")));
                }
                assignments.entry(uid.clone()).or_default().insert(container, cpus);
            }
        }
        // Pods that ended while the kubelet was down have no directory any more.
        assignments.retain(|uid, _| self.root_dir.join("pods").join(uid).is_dir());
        Ok(assignments)
    }

    fn write_state(&self) -> Result<(), CpuManagerError> {
        let texts = |containers: &BTreeMap<String, CpuSet>| {
            containers.iter().map(|(name, cpus)| (name.clone(), cpus.to_string())).collect()
        };
        let state = CpuManagerState {
            policy_name: "static".into(),
            cpus: self.topology.cpus().to_string(),
            entries: self.assignments.iter().map(|(uid, containers)| (uid.clone(), texts(containers))).collect(),
        };
        let path = self.state_path();
        let write = || -> io::Result<()> {
            let temporary = path.with_extension("new");
            let mut file = fs::File::create(&temporary)?;
            serde_json::to_writer(&mut file, &state)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)
        };
        write().map_err(|source| CpuManagerError::Io { path: path.clone(), source })
    }
}

/// Whether a container of the pod is to have CPUs of its own. Pods with resources of their own share the pool.
pub fn has_exclusive_cpus(spec: &PodSpec) -> bool {
    let containers = || spec.containers.iter().chain(spec.init_containers.iter().flatten());
    pod_qos_class(spec) == QosClass::Guaranteed
        && spec.resources.is_none()
        && containers().any(|container: &Container| exclusive_cpu_count(container).is_some())
}

fn reserved_cpus(
    settings: &CpuManagerSettings,
    topology: &CpuTopology,
    reserved_millis: i64,
) -> Result<CpuSet, CpuManagerError> {
    if let Some(reserved) = &settings.reserved_cpus {
        return match reserved.is_subset(&topology.cpus()) {
            true => Ok(reserved.clone()),
            false => Err(CpuManagerError::UnknownCpus(reserved.clone())),
        };
    }
    // A part of a CPU is reserved as a whole one.
    match usize::try_from(reserved_millis.max(0)).unwrap_or(0).div_ceil(1000) {
        0 => Err(CpuManagerError::NothingReserved),
        count => Ok(take_by_topology(topology, &topology.cpus(), count)?),
    }
}

#[cfg(test)]
mod tests;
