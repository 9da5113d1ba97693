//! Container lifecycle hooks.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};

use crate::{
    context::{KubeletContext, container_reference},
    handlers::{HandlerError, HandlerTarget},
    pod_status::WaitingReason,
};

/// User agent of HTTP hooks.
const USER_AGENT: &str = "kube-lifecycle/1.36";
/// Timeout of postStart hooks.
const POST_START_TIMEOUT: Duration = Duration::from_secs(600);

/// Runs the postStart hook; on failure stops the container and returns the waiting reason.
pub async fn run_post_start(
    kubelet: &KubeletContext,
    pod: &Pod,
    container: &Container,
    id: &str,
    ips: &[String],
) -> Option<WaitingReason> {
    let handler = container.lifecycle.as_ref()?.post_start.as_ref()?;
    let ip = ips.first().map_or("", String::as_str);
    let target = HandlerTarget { kubelet, container, id, ip, timeout: POST_START_TIMEOUT };
    let error = run_handler(&target, handler).await.err()?;
    kubelet.recorder.record_warning(container_reference(pod, container), "FailedPostStartHook", "PostStartHook failed");
    let message = format!("FailedPostStartHook: {error}");
    kubelet.recorder.record_normal(container_reference(pod, container), "Killing", "FailedPostStartHook");
    if let Err(error) = kubelet.cri.stop_container(id, crate::grace_period::pod_grace_period(pod)).await {
        tracing::warn!(container = container.name, %error, "kubelet: container not stopped after failed postStart hook");
    }
    Some(WaitingReason { reason: "PostStartHookError", message })
}

/// Runs the preStop hook within `grace`; the container is stopped regardless of its result.
pub async fn run_pre_stop(kubelet: &KubeletContext, pod: &Pod, container: &Container, id: &str, grace: Duration) {
    let Some(handler) = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref()) else { return };
    let ip = pod.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap_or_default();
    let target = HandlerTarget { kubelet, container, id, ip: &ip, timeout: grace };
    // The hook is abandoned after the grace period.
    let result =
        tokio::time::timeout(grace, run_handler(&target, handler)).await.unwrap_or(Err(HandlerError::GracePeriod));
    if let Err(error) = result {
        tracing::debug!(container = container.name, %error, "kubelet: preStop hook failed");
        kubelet.recorder.record_warning(container_reference(pod, container), "FailedPreStopHook", "PreStopHook failed");
    }
}

/// Runs the action. Upstream rejects `tcpSocket`, which the API accepts.
async fn run_handler(target: &HandlerTarget<'_>, handler: &LifecycleHandler) -> Result<(), HandlerError> {
    if let Some(action) = &handler.exec {
        target.run_exec(action).await
    } else if let Some(action) = &handler.http_get {
        target.check_http(action, USER_AGENT).await.map(drop)
    } else if let Some(action) = &handler.sleep {
        tokio::time::sleep(Duration::from_secs(action.seconds.max(0) as u64)).await;
        Ok(())
    } else {
        Err(HandlerError::InvalidHandler)
    }
}
