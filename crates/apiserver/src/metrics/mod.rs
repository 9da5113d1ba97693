//! `/metrics`: server metrics in Prometheus text format, under upstream's names.
//!
//! Counting is a lookup by static key under a shared lock and an addition, without allocation. Values that can be read
//! on request (objects, process, seats) are not counted.

mod flow;
mod process;
mod request;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use apiserver_core::{
    Body,
    body::text_response,
    document,
    metrics::{
        MetricsPage,
        family::{CounterFamily, GaugeFamily, HistogramFamily},
    },
};
use http::{HeaderValue, Response, header};
pub use request::{InFlightRequest, RequestKey};

use crate::{Server, health};

const SECONDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
const SIZES: &[f64] = &[1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// The counters of the server.
pub struct ServerMetrics {
    requests: CounterFamily<(RequestKey, u16)>,
    durations: HistogramFamily<RequestKey>,
    sizes: HistogramFamily<RequestKey>,
    long_running: GaugeFamily<RequestKey>,
    terminated: CounterFamily<(RequestKey, u16)>,
    reading: AtomicI64,
    writing: AtomicI64,
    handshake_errors: AtomicU64,
    /// By health endpoint, check name and success.
    checked: CounterFamily<(&'static str, &'static str, bool)>,
}

impl Default for ServerMetrics {
    fn default() -> Self {
        Self {
            requests: CounterFamily::default(),
            durations: HistogramFamily::new(SECONDS, 1e-6),
            sizes: HistogramFamily::new(SIZES, 1.0),
            long_running: GaugeFamily::default(),
            terminated: CounterFamily::default(),
            reading: AtomicI64::new(0),
            writing: AtomicI64::new(0),
            handshake_errors: AtomicU64::new(0),
            checked: CounterFamily::default(),
        }
    }
}

impl ServerMetrics {
    /// Counts a failed TLS handshake.
    pub fn count_handshake_error(&self) {
        self.handshake_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was terminated in self-defense.
    pub fn count_terminated(&self, key: RequestKey, code: u16) {
        self.terminated.add(&(key, code), 1);
    }

    /// Counts a requested health check.
    pub fn count_check(&self, root: &'static str, name: &'static str, holds: bool) {
        self.checked.add(&(root, name, holds), 1);
    }

    fn write_request_metrics(&self, page: &mut MetricsPage) {
        page.write_counters("apiserver_request_total", REQUESTS, &self.requests, |(key, code)| {
            key.to_labels(Some(*code), true)
        });
        page.write_histograms("apiserver_request_duration_seconds", DURATIONS, &self.durations, |key| {
            key.to_labels(None, true)
        });
        page.write_histograms("apiserver_response_sizes", SIZE, &self.sizes, |key| key.to_labels(None, false));
        page.write_gauges("apiserver_longrunning_requests", LONG, &self.long_running, |key| key.to_labels(None, false));
        page.write_counters("apiserver_request_terminations_total", TERMINATED, &self.terminated, |(key, code)| {
            key.to_labels(Some(*code), false)
        });
        self.write_deprecated(page);
        page.write_header("apiserver_current_inflight_requests", INFLIGHT, "gauge");
        for (kind, value) in [("mutating", &self.writing), ("readOnly", &self.reading)] {
            let value = value.load(Ordering::Relaxed) as f64;
            page.write_sample("apiserver_current_inflight_requests", &format!("request_kind=\"{kind}\""), value);
        }
        page.write_header("ferry_panics_total", PANICS, "counter");
        for (component, count) in panics::panic_counts() {
            page.write_sample("ferry_panics_total", &format!("component=\"{component}\""), count as f64);
        }
        page.write_header("apiserver_tls_handshake_errors_total", HANDSHAKE, "counter");
        page.write_sample(
            "apiserver_tls_handshake_errors_total",
            "",
            self.handshake_errors.load(Ordering::Relaxed) as f64,
        );
    }

    /// Writes the deprecated APIs that were requested.
    fn write_deprecated(&self, page: &mut MetricsPage) {
        let requested = self.requests.collect_values().into_iter().filter_map(|((key, _), _)| key.deprecated_labels());
        page.write_header("apiserver_requested_deprecated_apis", DEPRECATED, "gauge");
        for labels in requested.collect::<std::collections::BTreeSet<_>>() {
            page.write_sample("apiserver_requested_deprecated_apis", &labels, 1.0);
        }
    }
}

const REQUESTS: &str = "[STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, version, \
resource, scope, component, and HTTP response code.";
const DURATIONS: &str = "[STABLE] Response latency distribution in seconds for each verb, dry run value, group, version, \
resource, subresource, scope and component.";
const SIZE: &str = "[STABLE] Response size distribution in bytes for each group, version, verb, resource, subresource, scope \
and component.";
const LONG: &str = "[STABLE] Gauge of all active long-running apiserver requests broken out by verb, group, version, \
resource, scope and component. Not all requests are tracked this way.";
const DEPRECATED: &str = "[STABLE] Gauge of deprecated APIs that have been requested, broken out by API group, version, \
resource, subresource, and removed_release.";
const TERMINATED: &str = "[ALPHA] Number of requests which apiserver terminated in self-defense.";
const INFLIGHT: &str = "[STABLE] Maximal number of currently used inflight request limit of this apiserver per request kind in \
last second.";
const PANICS: &str = "[ALPHA] Number of panics that were contained, by component";
const HANDSHAKE: &str = "[ALPHA] Number of requests dropped with 'TLS handshake error from' error";
const OBJECTS: &str = "[STABLE] [DEPRECATED, consider using apiserver_resource_objects instead] Number of stored objects at the \
time of last check split by kind. In case of a fetching error, the value will be -1.";
const CHECKS: &str = "[STABLE] This metric records the result of a single healthcheck.";
const CHECKED: &str = "[STABLE] This metric records the results of all healthcheck.";
const STORED: &str = "[STABLE] Size of the storage database file physically allocated in bytes.";
const BUILD: &str = "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, \
build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.";

/// The metrics page.
pub async fn metrics_response(server: &Server) -> Response<Body> {
    let mut page = MetricsPage::default();
    server.shared.metrics.write_request_metrics(&mut page);
    flow::write_flow_metrics(&mut page, &server.shared.flow_controller);
    server.aggregator().write_metrics(&mut page);
    server.registry().admission().metrics().write_page(&mut page);
    server.shared.reloads.write_metrics(&mut page, &server.shared.options.host_name);
    write_object_counts(server, &mut page).await;
    write_store_size(server, &mut page).await;
    write_allocator_metrics(server, &mut page).await;
    write_check_metrics(server, &mut page).await;
    process::write_process_metrics(&mut page, server.shared.started);
    page.write_header("kubernetes_build_info", BUILD, "gauge");
    let version = format!("major=\"1\",minor=\"36\",git_version=\"{}+ferry\"", api::KUBERNETES_VERSION);
    page.write_sample("kubernetes_build_info", &version, 1.0);
    let mut response = text_response(page.into_text());
    let name = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(name));
    response
}

/// The page of health check metrics.
pub async fn slis_response(server: &Server) -> Response<Body> {
    let mut page = MetricsPage::default();
    write_check_metrics(server, &mut page).await;
    text_response(page.into_text())
}

async fn write_check_metrics(server: &Server, page: &mut MetricsPage) {
    page.write_header("kubernetes_healthcheck", CHECKS, "gauge");
    for (root, name, holds) in health::check_results(server).await {
        let value = if holds { 1.0 } else { 0.0 };
        page.write_sample("kubernetes_healthcheck", &format!("name={name:?},type={root:?}"), value);
    }
    page.write_counters(
        "kubernetes_healthchecks_total",
        CHECKED,
        &server.shared.metrics.checked,
        |(root, name, holds)| {
            format!("name={name:?},status={:?},type={root:?}", if *holds { "success" } else { "error" })
        },
    );
}

/// Writes the node port allocator metrics.
async fn write_allocator_metrics(server: &Server, page: &mut MetricsPage) {
    // Health checks report a failing store.
    let Ok(taken) = server.registry().pools().ports.allocated_ports(server.registry()).await else { return };
    let all = server.shared.options.node_ports.len();
    for (what, help, value) in [
        ("allocated", "Gauge measuring the number of allocated NodePorts for Services", taken.len()),
        ("available", "Gauge measuring the number of available NodePorts for Services", all - taken.len()),
    ] {
        let name = format!("kube_apiserver_nodeport_allocator_{what}_ports");
        page.write_header(&name, help, "gauge");
        page.write_sample(&name, "", value as f64);
    }
}

/// Writes the size of the store.
async fn write_store_size(server: &Server, page: &mut MetricsPage) {
    // Health checks report a failing store.
    let Ok(size) = server.registry().store().disk_usage().await else { return };
    page.write_header("apiserver_storage_size_bytes", STORED, "gauge");
    page.write_sample("apiserver_storage_size_bytes", "storage_cluster_id=\"etcd-0\"", size as f64);
}

/// Writes the number of stored objects by resource.
async fn write_object_counts(server: &Server, page: &mut MetricsPage) {
    page.write_header("apiserver_storage_objects", OBJECTS, "gauge");
    let mut seen = Vec::new();
    for resource in api::schema::schema().resources() {
        let prefix = document::storage_key(resource, "", "");
        if seen.contains(&prefix) || !resource.verbs.contains(&"list") {
            continue;
        }
        let range = store::ListOptions { prefix: prefix.clone(), limit: Some(1), ..Default::default() };
        let count = match server.registry().store().list(range).await {
            Ok(found) => (found.records.len() + found.remaining) as f64,
            Err(_) => -1.0,
        };
        seen.push(prefix);
        page.write_sample("apiserver_storage_objects", &format!("resource={:?}", resource.qualified_name()), count);
    }
}
