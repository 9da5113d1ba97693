//! A pod's row: readiness, status and restarts summed up from its containers.

use jiff::Timestamp;
use serde_json::json;

use super::{
    printer::{AGE, Column, NAME, text, wide},
    row::Row,
};
use crate::{Value, meta, time};

pub(super) const COLUMNS: &[Column] = &[
    NAME,
    text("Ready"),
    text("Status"),
    text("Restarts"),
    AGE,
    wide("IP"),
    wide("Node"),
    wide("Nominated Node"),
    wide("Readiness Gates"),
];

pub(super) fn cells(row: &Row) -> Vec<Value> {
    let summary = Summary::of(row);
    let ip = row.list(&["status", "podIPs"]).first().map_or("", |address| meta::text(address, &["ip"]));
    vec![
        row.name(),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.reason.into(),
        summary.restarts.text(row.now).into(),
        row.age(),
        if ip.is_empty() { "<none>".into() } else { ip.into() },
        row.text_or(&["spec", "nodeName"], "<none>"),
        row.text_or(&["status", "nominatedNodeName"], "<none>"),
        gates(row).into(),
    ]
}

/// Marks the rows of pods that have ended.
pub(super) fn conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match meta::text(pod, &["status", "phase"]) {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// How often containers were started again, and when the last one had ended.
#[derive(Clone, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += meta::number(status, &["restartCount"]);
        self.last = self.last.max(time::parse(meta::text(status, &["lastState", "terminated", "finishedAt"])));
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
    /// Of the sidecars: the init containers that keep running.
    sidecar_restarts: Restarts,
    reason: String,
}

impl Summary {
    fn of(row: &Row) -> Self {
        let sidecars = row.list(&["spec", "initContainers"]).iter().filter(|container| is_sidecar(container)).count();
        let mut summary = Self {
            ready: 0,
            total: row.count(&["spec", "containers"]) + sidecars,
            restarts: Restarts::default(),
            sidecar_restarts: Restarts::default(),
            reason: own_reason(row).to_owned(),
        };
        if !summary.initializing(row) || row.holds("Initialized") {
            summary.containers(row);
        }
        let ended = matches!(row.text(&["status", "phase"]), "Succeeded" | "Failed");
        if row.deleting() && row.text(&["status", "reason"]) == "NodeLost" {
            summary.reason = "Unknown".to_owned();
        } else if row.deleting() && !ended {
            summary.reason = "Terminating".to_owned();
        }
        summary
    }

    /// Sums up the init containers; whether one of them still has to end.
    fn initializing(&mut self, row: &Row) -> bool {
        let specs = row.list(&["spec", "initContainers"]);
        for (at, status) in row.list(&["status", "initContainerStatuses"]).iter().enumerate() {
            let sidecar = specs.iter().rfind(|spec| spec["name"] == status["name"]).is_some_and(is_sidecar);
            self.restarts.add(status);
            if sidecar {
                self.sidecar_restarts.add(status);
            }
            let ended = meta::at(status, &["state", "terminated"]);
            if ended.is_some_and(|ended| meta::number(ended, &["exitCode"]) == 0) {
                continue;
            }
            if sidecar && status["started"] == true {
                self.ready += usize::from(status["ready"] == true);
                continue;
            }
            self.reason = match (ended, meta::text(status, &["state", "waiting", "reason"])) {
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
        for status in row.list(&["status", "containerStatuses"]).iter().rev() {
            self.restarts.add(status);
            let waiting = meta::text(status, &["state", "waiting", "reason"]);
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(ended) = meta::at(status, &["state", "terminated"]) {
                self.reason = ended_reason(ended);
                if meta::number(ended, &["exitCode"]) != 0 {
                    error = Some(self.reason.clone());
                }
            } else if status["ready"] == true && meta::at(status, &["state", "running"]).is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason != "Completed" {
            return;
        }
        let ready = row.list(&["status", "conditions"]).iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
        self.reason = match error {
            _ if running && ready => "Running".to_owned(),
            Some(error) => error,
            None if running => "NotReady".to_owned(),
            None => return,
        };
    }
}

/// What the pod itself says, before its containers are looked at.
fn own_reason<'a>(row: &Row<'a>) -> &'a str {
    let conditions = row.list(&["status", "conditions"]);
    if conditions.iter().any(|c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated") {
        return "SchedulingGated";
    }
    match row.text(&["status", "reason"]) {
        "" => row.text(&["status", "phase"]),
        reason => reason,
    }
}

fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

fn ended_reason(ended: &Value) -> String {
    match (meta::text(ended, &["reason"]), meta::number(ended, &["signal"])) {
        ("", 0) => format!("ExitCode:{}", meta::number(ended, &["exitCode"])),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn gates(row: &Row) -> String {
    let gates = row.list(&["spec", "readinessGates"]);
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let holds = |gate: &&Value| row.holds(meta::text(gate, &["conditionType"]));
    format!("{}/{}", gates.iter().filter(holds).count(), gates.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pod: Value, want: [&str; 3]) {
        let now = "2026-01-01T00:10:00Z".parse::<Timestamp>().unwrap();
        let cells = cells(&Row { object: &pod, now });
        assert_eq!(cells[1..4], want.map(Value::from), "{pod}");
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
