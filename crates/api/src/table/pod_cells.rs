//! Cells of pods: ready containers, status and restarts.

use jiff::Timestamp;
use serde_json::json;

use super::printed_object::PrintedObject;
use crate::{Value, time};

/// Computes the cells ready, status and restarts.
pub(super) fn pod_summary_cells(row: &PrintedObject) -> Value {
    let summary = PodSummary::summarize_pod(row);
    let ready = format!("{}/{}", summary.ready, summary.total);
    Value::from(vec![ready, summary.reason, summary.restarts.format_restarts(row.now)])
}

/// Row conditions of terminated pods.
pub(super) fn pod_row_conditions(row: &PrintedObject) -> Value {
    let (reason, message) = match row.string_at("status.phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return Value::Null,
    };
    json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}])
}

/// The restart count and the end of the last terminated container.
#[derive(Clone, Default)]
struct RestartCount {
    count: i64,
    last: Option<Timestamp>,
}

impl RestartCount {
    fn add_status(&mut self, status: PrintedObject) {
        self.count += status.integer_at("restartCount");
        self.last = self.last.max(time::parse(status.string_at("lastState.terminated.finishedAt")));
    }

    fn format_restarts(&self, now: Timestamp) -> String {
        match self.last {
            Some(last) if self.count != 0 => {
                format!("{} ({} ago)", self.count, time::human_duration(now.as_second() - last.as_second()))
            }
            _ => self.count.to_string(),
        }
    }
}

struct PodSummary {
    ready: usize,
    total: usize,
    restarts: RestartCount,
    /// The restarts of sidecar containers.
    sidecar_restarts: RestartCount,
    reason: String,
}

impl PodSummary {
    fn summarize_pod(row: &PrintedObject) -> Self {
        let sidecars = row.list_at("spec.initContainers").filter(|container| is_sidecar(*container)).count();
        let mut summary = Self {
            ready: 0,
            total: row.count_at("spec.containers") + sidecars,
            restarts: RestartCount::default(),
            sidecar_restarts: RestartCount::default(),
            reason: pod_reason(row).to_owned(),
        };
        if !summary.summarize_init_containers(row) || row.is_condition_true("Initialized") {
            summary.summarize_containers(row);
        }
        let ended = matches!(row.string_at("status.phase"), "Succeeded" | "Failed");
        if row.is_deleting() && row.string_at("status.reason") == "NodeLost" {
            summary.reason = "Unknown".to_owned();
        } else if row.is_deleting() && !ended {
            summary.reason = "Terminating".to_owned();
        }
        summary
    }

    /// Summarizes the init containers; returns whether one is still pending.
    fn summarize_init_containers(&mut self, row: &PrintedObject) -> bool {
        let specs: Vec<PrintedObject> = row.list_at("spec.initContainers").collect();
        for (at, status) in row.list_at("status.initContainerStatuses").enumerate() {
            let sidecar = specs
                .iter()
                .rfind(|spec| spec.string_at("name") == status.string_at("name"))
                .is_some_and(|spec| is_sidecar(*spec));
            self.restarts.add_status(status);
            if sidecar {
                self.sidecar_restarts.add_status(status);
            }
            let ended = status.value_at("state.terminated").map(|ended| status.with_object(ended));
            if ended.is_some_and(|ended| ended.integer_at("exitCode") == 0) {
                continue;
            }
            if sidecar && status.is_true("started") {
                self.ready += usize::from(status.is_true("ready"));
                continue;
            }
            self.reason = match (ended, status.string_at("state.waiting.reason")) {
                (Some(ended), _) => format!("Init:{}", terminated_reason(ended)),
                (None, "" | "PodInitializing") => format!("Init:{at}/{}", specs.len()),
                (None, reason) => format!("Init:{reason}"),
            };
            return true;
        }
        false
    }

    fn summarize_containers(&mut self, row: &PrintedObject) {
        self.restarts = self.sidecar_restarts.clone();
        let mut running = false;
        let mut error = None;
        for status in row.list_at("status.containerStatuses").rev() {
            self.restarts.add_status(status);
            let waiting = status.string_at("state.waiting.reason");
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(ended) = status.value_at("state.terminated").map(|ended| status.with_object(ended)) {
                self.reason = terminated_reason(ended);
                if ended.integer_at("exitCode") != 0 {
                    error = Some(self.reason.clone());
                }
            } else if status.is_true("ready") && status.value_at("state.running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason != "Completed" {
            return;
        }
        let ready =
            row.list_at("status.conditions").any(|c| c.string_at("type") == "Ready" && c.string_at("status") == "True");
        self.reason = match error {
            _ if running && ready => "Running".to_owned(),
            Some(error) => error,
            None if running => "NotReady".to_owned(),
            None => return,
        };
    }
}

/// The reason of the pod itself, before its containers are considered.
fn pod_reason<'a>(row: &PrintedObject<'a>) -> &'a str {
    let mut conditions = row.list_at("status.conditions");
    if conditions.any(|c| c.string_at("type") == "PodScheduled" && c.string_at("reason") == "SchedulingGated") {
        return "SchedulingGated";
    }
    match row.string_at("status.reason") {
        "" => row.string_at("status.phase"),
        reason => reason,
    }
}

fn is_sidecar(container: PrintedObject) -> bool {
    container.string_at("restartPolicy") == "Always"
}

fn terminated_reason(ended: PrintedObject) -> String {
    match (ended.string_at("reason"), ended.integer_at("signal")) {
        ("", 0) => format!("ExitCode:{}", ended.integer_at("exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// Counts the readiness gates that are true.
pub(super) fn readiness_gates_cell(row: &PrintedObject) -> Value {
    let gates = row.list_at("spec.readinessGates");
    match gates.len() {
        0 => "<none>".into(),
        all => format!("{}/{all}", gates.filter(|gate| row.is_condition_true(gate.string_at("conditionType"))).count())
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pod: Value, want: [&str; 3]) {
        let now = "2026-01-01T00:10:00Z".parse::<Timestamp>().unwrap();
        assert_eq!(pod_summary_cells(&PrintedObject { object: &pod, now }), Value::from(want.to_vec()), "{pod}");
    }

    #[test]
    fn container_statuses_are_summarized() {
        let spec = json!({"containers": [{}, {}]});
        let running = json!({"ready": true, "restartCount": 1, "state": {"running": {}}});
        check(json!({"spec": spec, "status": {"phase": "Pending"}}), ["0/2", "Pending", "0"]);
        check(
            json!({"spec": spec, "status": {"phase": "Running", "containerStatuses": [running, running]}}),
            ["2/2", "Running", "2"],
        );
        let waiting = json!({"ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ErrImagePull"}}});
        check(
            json!({"spec": spec, "status": {"phase": "Pending", "containerStatuses": [running, waiting]}}),
            ["1/2", "ErrImagePull", "1"],
        );
        check(
            json!({"metadata": {"deletionTimestamp": "x"}, "spec": spec, "status": {"phase": "Running", "containerStatuses": []}}),
            ["0/2", "Terminating", "0"],
        );
        let done = json!({"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
        let failed = json!({"restartCount": 3, "state": {"terminated": {"exitCode": 2, "reason": "Error"}},
            "lastState": {"terminated": {"finishedAt": "2026-01-01T00:05:00Z"}}});
        check(json!({"spec": spec, "status": {"containerStatuses": [done, failed]}}), ["0/2", "Error", "3 (5m ago)"]);
    }

    #[test]
    fn sidecars_count_as_ready_containers() {
        let spec =
            json!({"containers": [{}], "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}]});
        let sidecar = json!({"name": "s", "started": true, "ready": true, "restartCount": 2, "state": {"running": {}}});
        let init = json!({"name": "i", "restartCount": 1, "state": {"running": {}}});
        check(
            json!({"spec": spec, "status": {"phase": "Pending", "initContainerStatuses": [sidecar, init]}}),
            ["1/2", "Init:1/2", "3"],
        );
        let init = json!({"name": "i", "state": {"terminated": {"exitCode": 0}}});
        let running = json!({"ready": true, "state": {"running": {}}});
        let status =
            json!({"phase": "Running", "initContainerStatuses": [sidecar, init], "containerStatuses": [running]});
        check(json!({"spec": spec, "status": status}), ["2/2", "Running", "2"]);
    }
}
