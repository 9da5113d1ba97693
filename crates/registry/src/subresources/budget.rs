//! Pod disruption budgets of evictions.

use api::{Value, meta, status::Status};
use apiserver_core::clock;
use serde_json::json;

/// Maximum number of evictions that the disruption controller has not confirmed.
const MAX_DISRUPTED: usize = 2000;
const VIOLATED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// Whether an unready pod may be evicted without using the budget: by its policy, or because enough pods are healthy.
pub fn is_unhealthy_and_evictable(pod: &Value, budget: &Value) -> bool {
    let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    if meta::list_at(pod, &["status", "conditions"]).iter().any(ready) {
        return false;
    }
    let number = |field: &str| meta::integer_at(budget, &["status", field]);
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0
}

/// Returns the budget with one more disruption; 429 or 403 if it allows none.
pub fn record_disruption(budget: &Value, pod: &str) -> Result<Value, Status> {
    let status = |field: &str| meta::integer_at(budget, &["status", field]);
    let allowed = status("disruptionsAllowed");
    let noted =
        meta::value_at(budget, &["status", "disruptedPods"]).and_then(Value::as_object).map_or(0, |pods| pods.len());
    if status("observedGeneration") < meta::integer_at(budget, &["metadata", "generation"]) {
        return Err(budget_in_progress(meta::name(budget)));
    }
    if allowed < 0 {
        return Err(budget_forbidden(budget, "pdb disruptions allowed is negative"));
    }
    if noted > MAX_DISRUPTED {
        return Err(budget_forbidden(
            budget,
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ));
    }
    if allowed == 0 {
        return Err(budget_violation(&disruption_denial(budget), None));
    }
    let mut budget = budget.clone();
    let observed = budget["status"]["observedGeneration"].clone();
    let status = meta::field_mut(&mut budget, "status");
    status.insert("disruptionsAllowed".into(), (allowed - 1).into());
    let pods = meta::object_mut(status.entry("disruptedPods").or_insert_with(|| json!({})));
    pods.insert(pod.to_owned(), clock::now_in_seconds().into());
    if allowed == 1 {
        let conditions = status.entry("conditions").or_insert_with(|| json!([]));
        set_insufficient_pods(conditions, observed);
    }
    Ok(budget)
}

/// Sets the condition `DisruptionAllowed` to false.
fn set_insufficient_pods(conditions: &mut Value, observed: Value) {
    let Some(list) = conditions.as_array_mut() else { return };
    let mut condition = json!({"type": "DisruptionAllowed", "status": "False", "observedGeneration": observed,
        "lastTransitionTime": clock::now_in_seconds(), "reason": "InsufficientPods", "message": ""});
    match list.iter_mut().find(|known| known["type"] == "DisruptionAllowed") {
        Some(known) => {
            if known["status"] == "False" {
                condition["lastTransitionTime"] = known["lastTransitionTime"].take();
            }
            *known = condition;
        }
        None => list.push(condition),
    }
}

fn disruption_denial(budget: &Value) -> String {
    let name = meta::name(budget);
    let (current, desired) = (
        meta::integer_at(budget, &["status", "currentHealthy"]),
        meta::integer_at(budget, &["status", "desiredHealthy"]),
    );
    let conditions = meta::list_at(budget, &["status", "conditions"]);
    let condition = conditions.iter().find(|condition| condition["type"] == "DisruptionAllowed");
    let told = condition.filter(|condition| condition["status"] == "False");
    let told =
        told.map(|condition| (meta::string_at(condition, &["reason"]), meta::string_at(condition, &["message"])));
    match told.filter(|(_, message)| !message.is_empty()) {
        Some(("SyncFailed", message)) => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
        ),
        _ if current <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
        }
        Some((reason, message)) => {
            format!("The disruption budget {name} does not allow evicting pods currently ({reason}): {message}")
        }
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

/// 429: the disruption controller has not processed the budget yet.
pub fn budget_in_progress(budget: &str) -> Status {
    budget_violation(&format!("The disruption budget {budget} is still being processed by the server."), Some(10))
}

fn budget_violation(cause: &str, retry: Option<u64>) -> Status {
    let mut details = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]});
    if let Some(seconds) = retry {
        details["retryAfterSeconds"] = seconds.into();
    }
    Status::new(429, "TooManyRequests", VIOLATED).with_details(details)
}

fn budget_forbidden(budget: &Value, why: &str) -> Status {
    let name = meta::name(budget);
    let message = format!("poddisruptionbudget.policy {name:?} is forbidden: {why}");
    Status::new(403, "Forbidden", message)
        .with_details(json!({"name": name, "group": "policy", "kind": "poddisruptionbudget"}))
}
