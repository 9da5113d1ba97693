//! Cells of pods: ready containers, status and restarts.

use jiff::Timestamp;
use serde_json::json;

use super::printed_object::Row;
use crate::{Value, time};

/// Computes the cells ready, status and restarts.
pub(super) fn summary(row: &Row) -> Value {
    let summary = Summary::of(row);
    let ready = format!("{}/{}", summary.ready, summary.total);
    Value::from(vec![ready, summary.reason, summary.restarts.text(row.now)])
}

/// Row conditions of terminated pods.
pub(super) fn ended(row: &Row) -> Value {
    let (reason, message) = match row.text("status.phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return Value::Null,
    };
    json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}])
}

/// The restart count and the end of the last terminated container.
#[derive(Clone, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: Row) {
        self.count += status.number("restartCount");
        self.last = self.last.max(time::parse(status.text("lastState.terminated.finishedAt")));
    }

    fn text(&self, now: Timestamp) -> String {
        match self.last {
            Some(last) if self.count != 0 => {
                format!("{} ({} ago)", self.count, time::human(now.as_second() - last.as_second()))
            }
            _ => self.count.to_string(),
        }
    }
}

struct Summary {
    ready: usize,
    total: usize,
    restarts: Restarts,
    /// The restarts of sidecar containers.
    sidecar_restarts: Restarts,
    reason: String,
}

impl Summary {
    fn of(row: &Row) -> Self {
        let sidecars = row.list("spec.initContainers").filter(|container| is_sidecar(*container)).count();
        let mut summary = Self {
            ready: 0,
            total: row.count("spec.containers") + sidecars,
            restarts: Restarts::default(),
            sidecar_restarts: Restarts::default(),
            reason: own_reason(row).to_owned(),
        };
        if !summary.initializing(row) || row.holds("Initialized") {
            summary.containers(row);
        }
        let ended = matches!(row.text("status.phase"), "Succeeded" | "Failed");
        if row.deleting() && row.text("status.reason") == "NodeLost" {
            summary.reason = "Unknown".to_owned();
        } else if row.deleting() && !ended {
            summary.reason = "Terminating".to_owned();
        }
        summary
    }

    /// Summarizes the init containers; returns whether one is still pending.
    fn initializing(&mut self, row: &Row) -> bool {
        let specs: Vec<Row> = row.list("spec.initContainers").collect();
        for (at, status) in row.list("status.initContainerStatuses").enumerate() {
            let sidecar = specs
                .iter()
                .rfind(|spec| spec.text("name") == status.text("name"))
                .is_some_and(|spec| is_sidecar(*spec));
            self.restarts.add(status);
            if sidecar {
                self.sidecar_restarts.add(status);
            }
            let ended = status.at("state.terminated").map(|ended| status.part(ended));
            if ended.is_some_and(|ended| ended.number("exitCode") == 0) {
                continue;
            }
            if sidecar && status.is_true("started") {
                self.ready += usize::from(status.is_true("ready"));
                continue;
            }
            self.reason = match (ended, status.text("state.waiting.reason")) {
                (Some(ended), _) => format!("Init:{}", ended_reason(ended)),
                (None, "" | "PodInitializing") => format!("Init:{at}/{}", specs.len()),
                (None, reason) => format!("Init:{reason}"),
            };
            return true;
        }
        false
    }

    fn containers(&mut self, row: &Row) {
        self.restarts = self.sidecar_restarts.clone();
        let mut running = false;
        let mut error = None;
        for status in row.list("status.containerStatuses").rev() {
            self.restarts.add(status);
            let waiting = status.text("state.waiting.reason");
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(ended) = status.at("state.terminated").map(|ended| status.part(ended)) {
                self.reason = ended_reason(ended);
                if ended.number("exitCode") != 0 {
                    error = Some(self.reason.clone());
                }
            } else if status.is_true("ready") && status.at("state.running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason != "Completed" {
            return;
        }
        let ready = row.list("status.conditions").any(|c| c.text("type") == "Ready" && c.text("status") == "True");
        self.reason = match error {
            _ if running && ready => "Running".to_owned(),
            Some(error) => error,
            None if running => "NotReady".to_owned(),
            None => return,
        };
    }
}

/// The reason of the pod itself, before its containers are considered.
fn own_reason<'a>(row: &Row<'a>) -> &'a str {
    let mut conditions = row.list("status.conditions");
    if conditions.any(|c| c.text("type") == "PodScheduled" && c.text("reason") == "SchedulingGated") {
        return "SchedulingGated";
    }
    match row.text("status.reason") {
        "" => row.text("status.phase"),
        reason => reason,
    }
}

fn is_sidecar(container: Row) -> bool {
    container.text("restartPolicy") == "Always"
}

fn ended_reason(ended: Row) -> String {
    match (ended.text("reason"), ended.number("signal")) {
        ("", 0) => format!("ExitCode:{}", ended.number("exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// Counts the readiness gates that are true.
pub(super) fn gates(row: &Row) -> Value {
    let gates = row.list("spec.readinessGates");
    match gates.len() {
        0 => "<none>".into(),
        all => format!("{}/{all}", gates.filter(|gate| row.holds(gate.text("conditionType"))).count()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pod: Value, want: [&str; 3]) {
        let now = "2026-01-01T00:10:00Z".parse::<Timestamp>().unwrap();
        assert_eq!(summary(&Row { object: &pod, now }), Value::from(want.to_vec()), "{pod}");
    }

    #[test]
    fn containers_sum_up() {
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
    fn sidecars_count_as_containers() {
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
