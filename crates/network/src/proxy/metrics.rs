//! Metrics of the proxy under kube-proxy's names, in Prometheus text format.

use std::{
    fmt::Write,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;

/// Upper bounds of the histogram of syncs, in seconds: 1 ms doubled 14 times.
const BUCKETS: usize = 15;

/// Counters of the proxy.
#[derive(Debug, Default)]
pub(crate) struct ProxyMetrics {
    values: Mutex<MetricValues>,
}

#[derive(Debug, Default)]
struct MetricValues {
    sync_buckets: [u64; BUCKETS],
    sync_count: u64,
    sync_seconds: f64,
    last_sync: f64,
    last_queued: f64,
    endpoint_changes: u64,
    service_changes: u64,
    failures: u64,
    deleted_connections: u64,
}

impl ProxyMetrics {
    fn update(&self, change: impl FnOnce(&mut MetricValues)) {
        change(&mut self.values.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Records a change of a service or of endpoints.
    pub fn record_change(&self, is_service: bool) {
        self.update(|values| {
            if is_service {
                values.service_changes += 1;
            } else {
                values.endpoint_changes += 1;
            }
            values.last_queued = now();
        });
    }

    /// Records a sync.
    pub fn record_sync(&self, duration: Duration, is_ok: bool) {
        self.update(|values| {
            let seconds = duration.as_secs_f64();
            let bound = |index: usize| 0.001 * f64::from(1u32 << index);
            for (index, bucket) in values.sync_buckets.iter_mut().enumerate() {
                *bucket += u64::from(seconds <= bound(index));
            }
            values.sync_count += 1;
            values.sync_seconds += seconds;
            match is_ok {
                true => values.last_sync = now(),
                false => values.failures += 1,
            }
        });
    }

    /// Records deleted connections.
    pub fn record_deleted_connections(&self, count: usize) {
        self.update(|values| values.deleted_connections += count as u64);
    }

    /// Renders all metrics.
    pub fn render(&self) -> String {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        let name = "kubeproxy_sync_proxy_rules_duration_seconds";
        let _ = writeln!(text, "# HELP {name} [ALPHA] SyncProxyRules latency in seconds\n# TYPE {name} histogram");
        for (index, count) in values.sync_buckets.iter().enumerate() {
            let bound = 0.001 * f64::from(1u32 << index);
            let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {count}");
        }
        let (count, sum) = (values.sync_count, values.sync_seconds);
        let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}");
        let simple: [(&str, &str, &str, f64); 7] = [
            (
                "sync_proxy_rules_last_timestamp_seconds",
                "gauge",
                "The last time proxy rules were successfully synced",
                values.last_sync,
            ),
            (
                "sync_proxy_rules_last_queued_timestamp_seconds",
                "gauge",
                "The last time a sync of proxy rules was queued",
                values.last_queued,
            ),
            (
                "sync_proxy_rules_endpoint_changes_total",
                "counter",
                "Cumulative proxy rules Endpoint changes",
                values.endpoint_changes as f64,
            ),
            (
                "sync_proxy_rules_service_changes_total",
                "counter",
                "Cumulative proxy rules Service changes",
                values.service_changes as f64,
            ),
            (
                "sync_proxy_rules_nftables_sync_failures_total",
                "counter",
                "Cumulative proxy nftables sync failures",
                values.failures as f64,
            ),
            (
                "sync_proxy_rules_nftables_cleanup_failures_total",
                "counter",
                "Cumulative proxy nftables cleanup failures",
                0.0,
            ),
            (
                "conntrack_reconciler_deleted_entries_total",
                "counter",
                "Cumulative conntrack flows deleted by conntrack reconciler",
                values.deleted_connections as f64,
            ),
        ];
        for (name, kind, help, value) in simple {
            let _ = writeln!(text, "# HELP kubeproxy_{name} [ALPHA] {help}\n# TYPE kubeproxy_{name} {kind}");
            let _ = writeln!(text, "kubeproxy_{name} {value}");
        }
        text
    }
}

fn now() -> f64 {
    Timestamp::now().as_duration().as_secs_f64()
}
