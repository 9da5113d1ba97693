//! `/statusz`, `/flagz` and `/configz` of the kubelet, and its plain health endpoint on a port of its own.

use std::{convert::Infallible, net::IpAddr, sync::Arc};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Semaphore};

use crate::{context::KubeletContext, settings::KubeletSettings};

const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees \
and is for debugging purposes only.";
/// Paths that `/statusz` names.
const PATHS: &str = "/checkpoint /configz /containerLogs /exec /flagz /healthz /logs /metrics /metrics/cadvisor \
/metrics/probes /metrics/resource /pods /portForward /run /runningpods /stats /statusz";
/// Connections that the health endpoint serves at a time.
const MAX_HEALTH_CONNECTIONS: usize = 64;

/// Renders start time, uptime and version.
pub fn render_statusz(kubelet: &KubeletContext) -> String {
    let started = kubelet.start_time;
    let seconds = Timestamp::now().duration_since(started).as_secs();
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!(
        "\nkubelet statusz\n{WARNING}\n\nStarted: {}\nUp: {hours} hr {minutes:02} min {rest:02} sec\n\
         Ferry version: {}\nBinary version: {}\nEmulation version: 1.36\n\nPaths: {PATHS}\n",
        started.strftime("%a %b %d %H:%M:%S UTC %Y"),
        env!("CARGO_PKG_VERSION"),
        api::KUBERNETES_VERSION,
    )
}

/// Renders the flags with their values.
pub fn render_flagz(settings: &KubeletSettings) -> String {
    let lines: String = settings.flags.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    format!("\nkubelet flagz\n{WARNING}\n\n{lines}")
}

/// Returns the configuration in force.
pub fn configz(settings: &KubeletSettings) -> Value {
    if !settings.configz.is_null() {
        return json!({ "kubeletconfig": settings.configz });
    }
    let eviction = |is_hard: bool| -> Value {
        let thresholds = settings.eviction.thresholds.iter().filter(|limit| limit.grace_period.is_none() == is_hard);
        thresholds
            .map(|limit| (limit.signal.name().to_string(), Value::from(limit.value.to_string())))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    json!({ "kubeletconfig": {
        "containerLogMaxFiles": settings.container_log_max_files,
        "containerLogMaxSize": settings.container_log_max_size.to_string(),
        "enableDebuggingHandlers": settings.enable_debugging_handlers,
        "evictionHard": eviction(true),
        "evictionSoft": eviction(false),
        "evictionPressureTransitionPeriod": format!("{}s", settings.eviction.pressure_transition_period.as_secs()),
        "imageGCHighThresholdPercent": settings.image_gc.high_threshold_percent,
        "imageGCLowThresholdPercent": settings.image_gc.low_threshold_percent,
        "imageMinimumGCAge": format!("{}s", settings.image_gc.minimum_age.as_secs()),
        "maxPods": settings.max_pods,
        "nodeLeaseDurationSeconds": settings.lease_duration.as_secs(),
        "nodeStatusMaxImages": settings.node_status_max_images,
        "nodeStatusReportFrequency": format!("{}s", settings.node_status_report_interval.as_secs()),
        "podsPerCore": settings.pods_per_core,
        "registerNode": settings.register_node,
        "resolvConf": settings.resolv_conf,
        "staticPodPath": settings.static_pods.path,
        "staticPodURL": settings.static_pods.url,
    } })
}

/// Serves `/healthz` without TLS for ever.
pub async fn serve_health(address: Option<(IpAddr, u16)>) {
    let Some(address) = address else { return };
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => {
            return tracing::error!(address = %address.0, port = address.1, %error, "kubelet: health endpoint not served");
        }
    };
    let slots = Arc::new(Semaphore::new(MAX_HEALTH_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else { continue };
        tokio::spawn(async move {
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(std::time::Duration::from_secs(10));
            // A broken connection is the client's affair.
            let _ = builder.serve_connection(TokioIo::new(stream), service_fn(respond_health)).await;
            drop(slot);
        });
    }
}

async fn respond_health(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let known = matches!(request.uri().path(), "/healthz" | "/healthz/ping" | "/healthz/log" | "/healthz/syncloop");
    let text = if known { "ok" } else { "404 page not found\n" };
    let mut response = Response::new(Full::from(text));
    if !known {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pages_name_the_component() {
        let kubelet = KubeletContext::unreachable();
        assert!(render_statusz(&kubelet).starts_with("\nkubelet statusz\n"));
        let settings = KubeletSettings { flags: vec![("v".into(), "2".into())], ..Default::default() };
        assert!(render_flagz(&settings).ends_with("\nv=2\n"));
        let config = configz(&KubeletSettings::default());
        assert_eq!(config["kubeletconfig"]["evictionHard"]["memory.available"], "100Mi");
        assert_eq!(config["kubeletconfig"]["evictionHard"]["nodefs.available"], "10%");
    }
}
