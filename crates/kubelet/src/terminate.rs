//! Takes a pod down: its containers with grace, then its sandbox, then what the node kept for it.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{DeleteParams, Preconditions};
use runtime::cri::Error;

use crate::{
    agent::{self, Agent},
    hooks,
    plan::is_sidecar,
    sandbox,
    status_writer::answered,
    truth::{Seen, Truth},
    volumes::PodDir,
};

/// The key under which stopping is known to be under way; no container can have this name.
pub const KEY: &str = "/stop";

/// No process gets less time than this to end by itself.
const MINIMUM: Duration = Duration::from_secs(2);

/// The grace that the pod's spec gives.
pub fn grace(pod: &Pod) -> Duration {
    let seconds = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
    Duration::from_secs(seconds.max(0) as u64).max(MINIMUM)
}

/// The grace that whoever deleted the pod gave.
pub fn deletion_grace(pod: &Pod) -> Duration {
    match pod.metadata.deletion_grace_period_seconds {
        Some(seconds) => Duration::from_secs(seconds.max(0) as u64).max(MINIMUM),
        None => grace(pod),
    }
}

/// Stops the containers of a pod all at once, then its sidecars, the last one first, then its sandboxes.
pub async fn stop_pod(agent: &Agent, pod: &Pod, truth: &Truth, grace: Duration) -> Result<(), Error> {
    let deadline = tokio::time::Instant::now() + grace;
    let sidecars: Vec<_> = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten()).collect();
    let order =
        |seen: &Seen| sidecars.iter().position(|container| container.name == seen.name() && is_sidecar(container));
    let running = || truth.containers.iter().filter(|seen| !seen.exited());
    let regular = running().filter(|seen| order(seen).is_none());
    let stopped = join_all(regular.map(|seen| stop_seen(agent, pod, seen, grace))).await;
    stopped.into_iter().collect::<Result<(), _>>()?;
    let mut sidecars: Vec<_> = running().filter_map(|seen| Some((order(seen)?, seen))).collect();
    sidecars.sort_by_key(|(index, _)| std::cmp::Reverse(*index));
    for (_, seen) in sidecars {
        let left = deadline.saturating_duration_since(tokio::time::Instant::now()).max(MINIMUM);
        stop_seen(agent, pod, seen, left).await?;
    }
    for sandbox in &truth.sandboxes {
        gone_is_fine(agent.cri.stop_sandbox(&sandbox.id).await)?;
    }
    Ok(())
}

async fn stop_seen(agent: &Agent, pod: &Pod, seen: &Seen, grace: Duration) -> Result<(), Error> {
    let spec = pod.spec.clone().unwrap_or_default();
    let mut containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let Some(container) = containers.find(|container| container.name == seen.name()) else {
        return gone_is_fine(agent.cri.stop_container(&seen.status.id, grace).await);
    };
    if seen.running() {
        let about = agent::container_reference(pod, container);
        agent.recorder.normal(about, "Killing", format!("Stopping container {}", container.name));
    }
    stop_container(agent, pod, container, &seen.status.id, grace).await
}

/// Runs the container's last hook and stops it, both within `grace`.
pub async fn stop_container(
    agent: &Agent,
    pod: &Pod,
    container: &Container,
    id: &str,
    grace: Duration,
) -> Result<(), Error> {
    let started = tokio::time::Instant::now();
    hooks::pre_stop(agent, pod, container, id, grace).await;
    let left = grace.saturating_sub(started.elapsed()).max(MINIMUM);
    gone_is_fine(agent.cri.stop_container(id, left).await)
}

fn gone_is_fine(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

/// Removes the pod's volumes and control group. What is left over is removed at the next start.
pub async fn clean(agent: Arc<Agent>, pod: Arc<Pod>) {
    let uid = agent::uid(&pod).to_string();
    let group = sandbox::cgroup(&agent, &pod);
    let cleaned = tokio::task::spawn_blocking(move || remove_from_node(&agent, &uid, &[group])).await;
    if let Err(error) = cleaned {
        tracing::error!(%error, "cleaning up after a pod broke off");
    }
}

/// Removes a pod's directory and control groups.
pub fn remove_from_node(agent: &Agent, uid: &str, groups: &[String]) {
    if let Err(error) = PodDir::new(&agent.root_dir, uid).remove() {
        tracing::warn!(uid, %error, "a pod's directory cannot be removed");
    }
    for (cgroups, group) in agent.cgroups.iter().flat_map(|cgroups| groups.iter().map(move |group| (cgroups, group))) {
        if let Err(error) = cgroups.remove(group) {
            tracing::warn!(uid, %error, "a pod's control group cannot be removed");
        }
    }
}

/// Removes the logs of a pod of which only the uid is known.
pub fn remove_logs(agent: &Agent, uid: &str) {
    let suffix = format!("_{uid}");
    for entry in std::fs::read_dir(&agent.pod_logs_dir).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().ends_with(&suffix)
            && let Err(error) = std::fs::remove_dir_all(entry.path())
        {
            tracing::warn!(uid, %error, "a pod's logs cannot be removed");
        }
    }
}

/// Tells the API server that nothing of the pod runs any more; false if it did not hear.
pub async fn delete(agent: &Agent, pod: &Pod) -> bool {
    let pods: kube::Api<Pod> = kube::Api::namespaced(agent.client.clone(), agent::namespace(pod));
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: pod.metadata.uid.clone(), resource_version: None }),
        ..Default::default()
    };
    match pods.delete(agent::name(pod), &parameters).await {
        Ok(_) => true,
        // Gone already, or another pod has its name.
        Err(error) if answered(&error, 404) || answered(&error, 409) => true,
        Err(error) => {
            tracing::warn!(pod = agent::full_name(pod), %error, "a pod cannot be deleted");
            false
        }
    }
}

/// Removes what the runtime and the log directory still have of a pod that the API server has forgotten.
pub async fn forget(agent: &Agent, pod: &Pod) -> Result<(), Error> {
    let truth = Truth::read(&agent.cri, agent::uid(pod)).await?;
    for sandbox in &truth.sandboxes {
        gone_is_fine(agent.cri.remove_sandbox(&sandbox.id).await)?;
    }
    match tokio::fs::remove_dir_all(agent.log_dir(pod)).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(pod = agent::full_name(pod), %error, "a pod's logs cannot be removed");
        }
        _ => {}
    }
    Ok(())
}

/// Stops and removes the sandbox of a pod that the API server does not know.
pub async fn remove_orphan(agent: &Agent, uid: &str) -> Result<(), Error> {
    let truth = Truth::read(&agent.cri, uid).await?;
    let running = truth.containers.iter().filter(|seen| seen.running());
    let stopped = join_all(running.map(|seen| agent.cri.stop_container(&seen.status.id, MINIMUM))).await;
    stopped.into_iter().try_for_each(gone_is_fine)?;
    for sandbox in &truth.sandboxes {
        gone_is_fine(agent.cri.stop_sandbox(&sandbox.id).await)?;
        gone_is_fine(agent.cri.remove_sandbox(&sandbox.id).await)?;
    }
    Ok(())
}
