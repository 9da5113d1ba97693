//! Metrics of the components of this process, in Prometheus text format.
//!
//! They are process-wide, like the Prometheus default registry of upstream's components. A component's `/metrics`
//! endpoint appends [`render_component_metrics`] to its own page.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::queue_metrics;

/// Values of all metrics by label.
struct ComponentMetrics {
    leader_status: BTreeMap<String, bool>,
}

static METRICS: Mutex<ComponentMetrics> = Mutex::new(ComponentMetrics { leader_status: BTreeMap::new() });

fn lock_metrics() -> MutexGuard<'static, ComponentMetrics> {
    METRICS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records whether this process leads the election `name`.
pub(crate) fn set_leader_status(name: &str, is_leader: bool) {
    lock_metrics().leader_status.insert(name.into(), is_leader);
}

/// Renders all metrics in Prometheus text format.
pub fn render_component_metrics() -> String {
    let metrics = lock_metrics();
    let mut text = String::new();
    write_family(
        &mut text,
        ("ferry_panics_total", "counter", "Number of panics that were contained, by component."),
        panics::panic_counts().into_iter().map(|(component, count)| (format!("component=\"{component}\""), count)),
    );
    let help = "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. \
                'name' is the string used to identify the lease. Please make sure to group by name.";
    write_family(
        &mut text,
        ("leader_election_master_status", "gauge", help),
        metrics.leader_status.iter().map(|(name, leads)| (format!("name=\"{name}\""), u64::from(*leads))),
    );
    queue_metrics::render_queue_metrics(&mut text);
    text
}

fn write_family(
    text: &mut String,
    (name, kind, help): (&str, &str, &str),
    samples: impl Iterator<Item = (String, u64)>,
) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP {name} [ALPHA] {help}\n# TYPE {name} {kind}");
    samples.for_each(|(labels, value)| {
        let _ = writeln!(text, "{name}{{{labels}}} {value}");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_gauges_are_rendered_with_labels() {
        assert!(panics::contain_panic_sync("metrics-test", "key", || panic!("a bug")).is_err());
        set_leader_status("metrics-test", true);
        let text = render_component_metrics();
        assert!(text.contains("# TYPE ferry_panics_total counter\n"), "{text}");
        assert!(text.contains("ferry_panics_total{component=\"metrics-test\"} 1\n"), "{text}");
        assert!(text.contains("leader_election_master_status{name=\"metrics-test\"} 1\n"), "{text}");
    }
}
