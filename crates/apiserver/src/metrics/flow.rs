//! Flow control metrics: seats, requests and waits by priority level and flow schema.

use apiserver_core::metrics::MetricsPage;
use flowcontrol::FlowController;

const NOMINAL: &str = "[BETA] Nominal number of execution seats configured for each priority level";
const LOWER: &str = "[ALPHA] Configured lower bound on number of execution seats available to each priority level";
const UPPER: &str = "[ALPHA] Configured upper bound on number of execution seats available to each priority level";
const LIMIT: &str = "[ALPHA] current derived number of execution seats available to each priority level";
const EXECUTING: &str = "[BETA] Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API \
Priority and Fairness subsystem";
const SEATS: &str = "[BETA] Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any \
stage otherwise) requests in the API Priority and Fairness subsystem";
const WAITING: &str =
    "[BETA] Number of requests currently pending in queues of the API Priority and Fairness subsystem";
const DISPATCHED: &str = "[BETA] Number of requests executed by API Priority and Fairness subsystem";
const REJECTED: &str = "[BETA] Number of requests rejected by API Priority and Fairness subsystem";
const WAITED: &str = "[BETA] Length of time a request spent waiting in its queue";

/// Writes the flow control metrics.
pub fn write_flow_metrics(page: &mut MetricsPage, flow: &FlowController) {
    let levels = flow.level_snapshots();
    let name = |rest: &str| format!("apiserver_flowcontrol_{rest}");
    for (rest, help, value) in [
        ("nominal_limit_seats", NOMINAL, (|level| level.nominal) as fn(&flowcontrol::LevelSnapshot) -> usize),
        ("lower_limit_seats", LOWER, |level| level.lower),
        ("upper_limit_seats", UPPER, |level| level.upper),
        ("current_limit_seats", LIMIT, |level| level.limit),
    ] {
        page.write_header(&name(rest), help, "gauge");
        for level in &levels {
            page.write_sample(&name(rest), &format!("priority_level={:?}", level.name), value(level) as f64);
        }
    }
    for (rest, help, kind, value) in [
        (
            "current_executing_requests",
            EXECUTING,
            "gauge",
            (|c| c.executing as f64) as fn(&flowcontrol::FlowSchemaCounts) -> f64,
        ),
        ("current_executing_seats", SEATS, "gauge", |c| c.seats as f64),
        ("current_inqueue_requests", WAITING, "gauge", |c| c.waiting as f64),
        ("dispatched_requests_total", DISPATCHED, "counter", |c| c.dispatched as f64),
    ] {
        page.write_header(&name(rest), help, kind);
        for level in &levels {
            for (schema, counts) in &level.counts {
                page.write_sample(&name(rest), &flow_labels(schema, &level.name), value(counts));
            }
        }
    }
    page.write_header(&name("rejected_requests_total"), REJECTED, "counter");
    for level in &levels {
        for (schema, counts) in &level.counts {
            for (refused, count) in &counts.refused {
                let labels = format!("{},reason={:?}", flow_labels(schema, &level.name), refused.metric_label());
                page.write_sample(&name("rejected_requests_total"), &labels, *count as f64);
            }
        }
    }
    page.write_histograms(&name("request_wait_duration_seconds"), WAITED, flow.wait_durations(), |wait| {
        format!("execute=\"{}\",{}", wait.served, flow_labels(&wait.schema, &wait.level))
    });
}

fn flow_labels(schema: &str, level: &str) -> String {
    format!("flow_schema={schema:?},priority_level={level:?}")
}
