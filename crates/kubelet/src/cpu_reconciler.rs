//! Moves running containers to the CPUs that are theirs now.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use runtime::cri::{
    CriError,
    types::{ContainerState, LinuxContainerResources},
};

use crate::{context::KubeletContext, runtime_status::labels};

/// Compares the CPUs of all running containers with what they should be, again and again. Ends at once without the policy
/// `static`.
pub async fn run_cpu_reconciler(kubelet: Arc<KubeletContext>) {
    if !kubelet.settings.cpu_manager.is_static {
        return;
    }
    let mut applied = HashMap::new();
    loop {
        tokio::time::sleep(kubelet.settings.cpu_manager.reconcile_period).await;
        if let Err(error) = reconcile(&kubelet, &mut applied).await {
            tracing::warn!(error = error.message(), "CPU manager: containers not checked, retried");
        }
    }
}

/// Updates the containers whose CPUs have changed; `applied` has the CPUs of each container by its id.
async fn reconcile(kubelet: &KubeletContext, applied: &mut HashMap<String, String>) -> Result<(), CriError> {
    let containers = kubelet.cri.list_containers(HashMap::new()).await?;
    let ids: HashSet<&str> = containers.iter().map(|container| container.id.as_str()).collect();
    applied.retain(|id, _| ids.contains(id.as_str()));
    for container in containers.iter().filter(|one| one.state == ContainerState::ContainerRunning as i32) {
        let label = |name: &str| container.labels.get(name).map_or("", String::as_str);
        let (uid, name) = (label(labels::POD_UID), label(labels::CONTAINER));
        // Containers of other clusters on the same runtime are not ours.
        let is_ours = kubelet.lock_admission().is_admitted(uid);
        let Some(cpus) = kubelet.lock_admission().cpus_of(uid, name).filter(|_| is_ours) else { continue };
        if applied.get(&container.id) == Some(&cpus) {
            continue;
        }
        let resources = LinuxContainerResources { cpuset_cpus: cpus.clone(), ..Default::default() };
        match kubelet.cri.update_container_resources(&container.id, resources).await {
            Ok(()) => drop(applied.insert(container.id.clone(), cpus)),
            Err(error) => {
                tracing::warn!(container = container.id, error = error.message(), "CPU manager: CPUs not set, retried");
            }
        }
    }
    Ok(())
}
