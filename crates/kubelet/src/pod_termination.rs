//! Pod termination: containers with grace, then sandboxes, then the pod's files.

use std::{path::Path, sync::Arc, time::Duration};

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{DeleteParams, Preconditions};
use runtime::cri::CriError;

use crate::{
    blocking::run_blocking,
    context::{self, KubeletContext},
    grace_period::MIN_GRACE_PERIOD,
    hooks,
    pod_actions::ContainerReset,
    pod_sandbox,
    pod_spec::{find_container, is_sidecar},
    runtime_status::{ContainerRecord, PodRuntimeStatus},
    status_writer::has_status_code,
    volumes::PodDir,
};

/// Task key of termination; invalid as a container name.
pub const STOP_KEY: &str = "/stop";

/// Stops all containers at once, then the sidecars in reverse order, then the sandboxes.
pub async fn kill_pod(
    kubelet: &KubeletContext,
    pod: &Pod,
    runtime_status: &PodRuntimeStatus,
    grace: Duration,
) -> Result<(), CriError> {
    let deadline = tokio::time::Instant::now() + grace;
    let sidecars: Vec<_> = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten()).collect();
    let order = |record: &ContainerRecord| {
        sidecars.iter().position(|container| container.name == record.name() && is_sidecar(container))
    };
    let running = || runtime_status.containers.iter().filter(|record| !record.is_exited());
    let regular = running().filter(|record| order(record).is_none());
    let stopped = join_all(regular.map(|record| stop_container_record(kubelet, pod, record, grace))).await;
    stopped.into_iter().collect::<Result<(), _>>()?;
    let mut sidecars: Vec<_> = running().filter_map(|record| Some((order(record)?, record))).collect();
    sidecars.sort_by_key(|(index, _)| std::cmp::Reverse(*index));
    for (_, record) in sidecars {
        let left = deadline.saturating_duration_since(tokio::time::Instant::now()).max(MIN_GRACE_PERIOD);
        stop_container_record(kubelet, pod, record, left).await?;
    }
    for sandbox in &runtime_status.sandboxes {
        ignore_not_found(kubelet.cri.stop_sandbox(&sandbox.id).await)?;
    }
    Ok(())
}

async fn stop_container_record(
    kubelet: &KubeletContext,
    pod: &Pod,
    record: &ContainerRecord,
    grace: Duration,
) -> Result<(), CriError> {
    let Some(container) = find_container(pod, record.name()) else {
        return ignore_not_found(kubelet.cri.stop_container(&record.status.id, grace).await);
    };
    if record.is_running() {
        let about = context::container_reference(pod, &container);
        kubelet.recorder.record_normal(about, "Killing", format!("Stopping container {}", container.name));
    }
    stop_container(kubelet, pod, &container, &record.status.id, grace).await
}

/// Kills without grace and removes containers, one after the other.
pub async fn remove_containers(
    kubelet: &KubeletContext,
    pod: &Pod,
    containers: &[ContainerReset],
) -> Result<(), CriError> {
    for reset in containers {
        if reset.kill {
            if let Some(container) = find_container(pod, &reset.name) {
                let about = context::container_reference(pod, &container);
                kubelet.recorder.record_normal(about, "Killing", "killing");
            }
            ignore_not_found(kubelet.cri.stop_container(&reset.id, Duration::ZERO).await)?;
        }
        ignore_not_found(kubelet.cri.remove_container(&reset.id).await)?;
    }
    Ok(())
}

/// Runs the preStop hook and stops the container, both within `grace`.
pub async fn stop_container(
    kubelet: &KubeletContext,
    pod: &Pod,
    container: &Container,
    id: &str,
    grace: Duration,
) -> Result<(), CriError> {
    let started = tokio::time::Instant::now();
    hooks::run_pre_stop(kubelet, pod, container, id, grace).await;
    let left = grace.saturating_sub(started.elapsed()).max(MIN_GRACE_PERIOD);
    ignore_not_found(kubelet.cri.stop_container(id, left).await)
}

fn ignore_not_found(result: Result<(), CriError>) -> Result<(), CriError> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

/// Removes the pod's volumes and cgroup; returns whether nothing is left.
pub async fn cleanup_pod(kubelet: Arc<KubeletContext>, pod: Arc<Pod>) -> bool {
    let uid = context::pod_uid(&pod).to_string();
    let group = pod_sandbox::pod_cgroup(&kubelet, &pod);
    run_blocking(move || remove_pod_files(&kubelet, &uid, &[group])).await
}

/// Removes a pod's directory and cgroups; returns whether nothing is left.
pub fn remove_pod_files(kubelet: &KubeletContext, uid: &str, groups: &[String]) -> bool {
    let mut clean = true;
    if let Err(error) = PodDir::new(&kubelet.root_dir, uid).remove_all() {
        clean = false;
        tracing::warn!(uid, %error, "kubelet: pod directory not removed, retrying");
    }
    for (cgroups, group) in kubelet.cgroups.iter().flat_map(|cgroups| groups.iter().map(move |group| (cgroups, group)))
    {
        if let Err(error) = cgroups.remove(group) {
            clean = false;
            tracing::debug!(uid, %error, "kubelet: pod cgroup not removed, retrying");
        }
    }
    clean
}

/// Lists the uids of pods with a log directory, whose names end with them.
pub fn list_pods_with_logs(logs_dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(logs_dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.rsplit_once('_').map(|(_, uid)| uid.to_string())).collect()
}

/// Removes the logs of a pod by uid.
pub fn remove_pod_logs(kubelet: &KubeletContext, uid: &str) {
    let suffix = format!("_{uid}");
    for entry in std::fs::read_dir(&kubelet.pod_logs_dir).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().ends_with(&suffix)
            && let Err(error) = std::fs::remove_dir_all(entry.path())
        {
            tracing::warn!(uid, %error, "kubelet: pod logs not removed");
        }
    }
}

/// Deletes the pod from the API server with grace period zero; returns whether it is gone.
pub async fn delete_pod_object(kubelet: &KubeletContext, pod: &Pod) -> bool {
    let pods: kube::Api<Pod> = kube::Api::namespaced(kubelet.client.clone(), context::pod_namespace(pod));
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: pod.metadata.uid.clone(), resource_version: None }),
        ..Default::default()
    };
    match pods.delete(context::pod_name(pod), &parameters).await {
        Ok(_) => true,
        // Deleted already, or recreated under the same name.
        Err(error) if has_status_code(&error, 404) || has_status_code(&error, 409) => true,
        Err(error) => {
            tracing::warn!(pod = context::format_pod(pod), %error, "kubelet: pod not deleted, retrying");
            false
        }
    }
}

/// Removes the sandboxes and logs of a pod that no longer exists in the API.
pub async fn forget_pod(kubelet: &KubeletContext, pod: &Pod) -> Result<(), CriError> {
    let runtime_status = PodRuntimeStatus::fetch(&kubelet.cri, context::pod_uid(pod)).await?;
    for sandbox in &runtime_status.sandboxes {
        ignore_not_found(kubelet.cri.remove_sandbox(&sandbox.id).await)?;
    }
    match tokio::fs::remove_dir_all(kubelet.pod_log_dir(pod)).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(pod = context::format_pod(pod), %error, "kubelet: pod logs not removed");
        }
        _ => {}
    }
    Ok(())
}

/// Stops and removes the sandboxes of a pod that is unknown to the API server.
pub async fn remove_orphaned_sandboxes(kubelet: &KubeletContext, uid: &str) -> Result<(), CriError> {
    let runtime_status = PodRuntimeStatus::fetch(&kubelet.cri, uid).await?;
    let running = runtime_status.containers.iter().filter(|record| record.is_running());
    let stopped = join_all(running.map(|record| kubelet.cri.stop_container(&record.status.id, MIN_GRACE_PERIOD))).await;
    stopped.into_iter().try_for_each(ignore_not_found)?;
    for sandbox in &runtime_status.sandboxes {
        ignore_not_found(kubelet.cri.stop_sandbox(&sandbox.id).await)?;
        ignore_not_found(kubelet.cri.remove_sandbox(&sandbox.id).await)?;
    }
    Ok(())
}
