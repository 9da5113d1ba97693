//! Lifecycle hooks: what a container wants done right after its start and right before its end.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};

use crate::{
    agent::{Agent, container_reference},
    handlers::Target,
    status::Waiting,
};

/// A hook after the start has no other limit.
const POST_START: Duration = Duration::from_secs(600);

/// Runs the hook after the start. If it fails the container is ended and this says why.
pub async fn post_start(agent: &Agent, pod: &Pod, container: &Container, id: &str, ips: &[String]) -> Option<Waiting> {
    let handler = container.lifecycle.as_ref()?.post_start.as_ref()?;
    let ip = ips.first().map_or("", String::as_str);
    let target = Target { agent, container, id, ip, timeout: POST_START };
    let error = run(&target, handler).await.err()?;
    agent.recorder.warning(container_reference(pod, container), "FailedPostStartHook", "PostStartHook failed");
    let message = format!("FailedPostStartHook: {error}");
    agent.recorder.normal(container_reference(pod, container), "Killing", "FailedPostStartHook");
    if let Err(error) = agent.cri.stop_container(id, crate::terminate::grace(pod)).await {
        tracing::warn!(container = container.name, %error, "a container cannot be stopped");
    }
    Some(Waiting { reason: "PostStartHookError", message })
}

/// Runs the hook before the end, no longer than `grace`. The container ends whatever it says.
pub async fn pre_stop(agent: &Agent, pod: &Pod, container: &Container, id: &str, grace: Duration) {
    let Some(handler) = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref()) else { return };
    let ip = pod.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap_or_default();
    let target = Target { agent, container, id, ip: &ip, timeout: grace };
    // A hook that takes too long is not waited for.
    let result = tokio::time::timeout(grace, run(&target, handler)).await.unwrap_or_else(|_| Err("timed out".into()));
    if let Err(error) = result {
        tracing::debug!(container = container.name, error, "a preStop hook failed");
        agent.recorder.warning(container_reference(pod, container), "FailedPreStopHook", "PreStopHook failed");
    }
}

async fn run(target: &Target<'_>, handler: &LifecycleHandler) -> Result<(), String> {
    if let Some(action) = &handler.exec {
        return target.exec(action).await;
    }
    if let Some(action) = &handler.http_get {
        return target.http(action).await;
    }
    if let Some(action) = &handler.sleep {
        tokio::time::sleep(Duration::from_secs(action.seconds.max(0) as u64)).await;
    }
    Ok(())
}
