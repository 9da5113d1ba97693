//! A pod's row: readiness, status and restarts summed up from its containers.

use jiff::Timestamp;

use super::{AGE, Column, NAME, age};
use crate::{Value, meta, time};

pub(super) const COLUMNS: &[Column] = &[
    NAME,
    Column("Ready", "string", "", 0),
    Column("Status", "string", "", 0),
    Column("Restarts", "string", "", 0),
    AGE,
    Column("IP", "string", "", 1),
    Column("Node", "string", "", 1),
    Column("Nominated Node", "string", "", 1),
    Column("Readiness Gates", "string", "", 1),
];

pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = Summary::of(pod);
    let or_none = |path: &[&str]| match meta::text(pod, path) {
        "" => "<none>".into(),
        text => text.into(),
    };
    vec![
        meta::name(pod).into(),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.reason.into(),
        restarts(summary.restarts, &summary.last_restart, now).into(),
        age(pod, now),
        or_none(&["status", "podIP"]),
        or_none(&["spec", "nodeName"]),
        or_none(&["status", "nominatedNodeName"]),
        gates(pod).into(),
    ]
}

struct Summary {
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: String,
    reason: String,
}

impl Summary {
    fn of(pod: &Value) -> Self {
        let reason = match meta::text(pod, &["status", "reason"]) {
            "" => meta::text(pod, &["status", "phase"]),
            reason => reason,
        };
        let mut summary = Self {
            ready: 0,
            total: meta::list(pod, &["spec", "containers"]).len(),
            restarts: 0,
            last_restart: String::new(),
            reason: reason.to_owned(),
        };
        if gated(pod) {
            summary.reason = "SchedulingGated".to_owned();
        }
        if !summary.initializing(pod) {
            summary.containers(pod);
        }
        if meta::is_deleting(pod) {
            let lost = meta::text(pod, &["status", "reason"]) == "NodeLost";
            summary.reason = if lost { "Unknown" } else { "Terminating" }.to_owned();
        }
        summary
    }

    /// Sums up the init containers; whether one of them still has to end.
    fn initializing(&mut self, pod: &Value) -> bool {
        let total = meta::list(pod, &["spec", "initContainers"]).len();
        for (at, status) in meta::list(pod, &["status", "initContainerStatuses"]).iter().enumerate() {
            self.restarts += meta::number(status, &["restartCount"]);
            self.note_restart(status);
            if let Some(ended) = meta::at(status, &["state", "terminated"]) {
                if meta::number(ended, &["exitCode"]) == 0 {
                    continue;
                }
                self.reason = format!("Init:{}", ended_reason(ended));
                return true;
            }
            self.reason = match meta::text(status, &["state", "waiting", "reason"]) {
                "" | "PodInitializing" => format!("Init:{at}/{total}"),
                reason => format!("Init:{reason}"),
            };
            return true;
        }
        false
    }

    fn containers(&mut self, pod: &Value) {
        self.restarts = 0;
        let mut running = false;
        for status in meta::list(pod, &["status", "containerStatuses"]).iter().rev() {
            self.restarts += meta::number(status, &["restartCount"]);
            self.note_restart(status);
            let waiting = meta::text(status, &["state", "waiting", "reason"]);
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(ended) = meta::at(status, &["state", "terminated"]) {
                self.reason = ended_reason(ended);
            } else if status["ready"] == true && meta::at(status, &["state", "running"]).is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && running {
            let ready = meta::list(pod, &["status", "conditions"]).iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
            self.reason = if ready { "Running" } else { "NotReady" }.to_owned();
        }
    }

    fn note_restart(&mut self, status: &Value) {
        let ended = meta::text(status, &["lastState", "terminated", "finishedAt"]);
        if ended > self.last_restart.as_str() {
            self.last_restart = ended.to_owned();
        }
    }
}

fn ended_reason(ended: &Value) -> String {
    match (meta::text(ended, &["reason"]), meta::number(ended, &["signal"])) {
        ("", 0) => format!("ExitCode:{}", meta::number(ended, &["exitCode"])),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn restarts(count: i64, last: &str, now: Timestamp) -> String {
    if count == 0 || last.is_empty() { count.to_string() } else { format!("{count} ({} ago)", time::age(Some(last), now)) }
}

fn gated(pod: &Value) -> bool {
    let conditions = meta::list(pod, &["status", "conditions"]).iter();
    conditions.clone().any(|c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated")
}

fn gates(pod: &Value) -> String {
    let gates = meta::list(pod, &["spec", "readinessGates"]);
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let conditions = meta::list(pod, &["status", "conditions"]);
    let holds = |gate: &&Value| conditions.iter().any(|c| c["type"] == gate["conditionType"] && c["status"] == "True");
    format!("{}/{}", gates.iter().filter(holds).count(), gates.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(pod: Value, want: [&str; 3]) {
        let cells = cells(&pod, Timestamp::from_second(1_000_000).unwrap());
        assert_eq!(cells[1..4], want.map(Value::from));
    }

    #[test]
    fn containers_sum_up() {
        let spec = json!({"containers": [{}, {}]});
        let running = json!({"ready": true, "restartCount": 1, "state": {"running": {}}});
        check(json!({"spec": spec, "status": {"phase": "Pending"}}), ["0/2", "Pending", "0"]);
        check(json!({"spec": spec, "status": {"phase": "Running", "containerStatuses": [running, running]}}), ["2/2", "Running", "2"]);
        let waiting = json!({"ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ErrImagePull"}}});
        check(json!({"spec": spec, "status": {"phase": "Pending", "containerStatuses": [running, waiting]}}), ["1/2", "ErrImagePull", "1"]);
        check(
            json!({"metadata": {"deletionTimestamp": "x"}, "spec": spec, "status": {"phase": "Running", "containerStatuses": []}}),
            ["0/2", "Terminating", "0"],
        );
    }
}
