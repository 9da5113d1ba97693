//! `spec.podFailurePolicy` and `spec.successPolicy`.

use k8s_openapi::api::batch::v1::{
    PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule, SuccessPolicy,
};

use super::intervals::IndexIntervals;

use crate::pod_view::{ContainerStatusView, ContainerTermination, PodStatusView, PodView};

/// Consequence of a failed pod under a pod failure policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodFailureAction {
    /// The Job fails, with this message.
    FailJob(String),
    /// The pod's index fails.
    FailIndex,
    /// The failure counts towards the back-off limits.
    Count,
    /// The failure does not count.
    Ignore,
}

impl PodFailureAction {
    /// Whether the failure counts towards the back-off limits.
    pub(super) fn counts(&self) -> bool {
        *self != Self::Ignore
    }
}

/// Returns the action of the first rule that matches the failed pod; failures count without one.
pub(super) fn pod_failure_action(policy: Option<&PodFailurePolicy>, pod: &PodView) -> PodFailureAction {
    let rules = policy.map(|policy| policy.rules.as_slice()).unwrap_or_default();
    let matching = rules.iter().enumerate().find_map(|(at, rule)| matching_action(rule, at, pod));
    matching.unwrap_or(PodFailureAction::Count)
}

fn matching_action(rule: &PodFailurePolicyRule, at: usize, pod: &PodView) -> Option<PodFailureAction> {
    let status = pod.status.as_ref()?;
    let (namespace, name) =
        (pod.metadata.namespace.as_deref().unwrap_or(""), pod.metadata.name.as_deref().unwrap_or(""));
    let action = rule.action.as_str();
    let message = match (&rule.on_exit_codes, &rule.on_pod_conditions) {
        (Some(requirement), _) => {
            let (container, terminated) = matching_container(status, requirement)?;
            format!(
                "Container {container} for pod {namespace}/{name} failed with exit code {} matching {action} rule at index {at}",
                terminated.exit_code
            )
        }
        (None, Some(patterns)) => {
            let condition = status.conditions.iter().flatten().find(|condition| {
                patterns.iter().any(|pattern| {
                    pattern.type_ == condition.type_ && pattern.status.as_deref().unwrap_or("") == condition.status
                })
            })?;
            format!("Pod {namespace}/{name} has condition {} matching {action} rule at index {at}", condition.type_)
        }
        (None, None) => return None,
    };
    match action {
        "FailJob" => Some(PodFailureAction::FailJob(message)),
        "FailIndex" => Some(PodFailureAction::FailIndex),
        "Count" => Some(PodFailureAction::Count),
        "Ignore" => Some(PodFailureAction::Ignore),
        _ => None,
    }
}

fn matching_container<'a>(
    status: &'a PodStatusView,
    requirement: &PodFailurePolicyOnExitCodesRequirement,
) -> Option<(&'a str, &'a ContainerTermination)> {
    let containers = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let terminated = |container: &'a ContainerStatusView| Some((container.name.as_str(), container.termination()?));
    containers.filter_map(terminated).find(|(name, state)| {
        let is_listed = requirement.values.contains(&state.exit_code);
        requirement.container_name.as_deref().is_none_or(|required| required == *name)
            && state.exit_code != 0
            && match requirement.operator.as_str() {
                "In" => is_listed,
                "NotIn" => !is_listed,
                _ => false,
            }
    })
}

/// Returns the message about the first rule that the succeeded indexes fulfil.
pub(super) fn match_success_policy(
    policy: Option<&SuccessPolicy>,
    completions: i32,
    succeeded: &IndexIntervals,
) -> Option<String> {
    let rules = policy.filter(|_| !succeeded.is_empty()).map(|policy| policy.rules.as_slice()).unwrap_or_default();
    let matched = rules.iter().position(|rule| {
        let enough = |count: i64| rule.succeeded_count.is_some_and(|required| count >= required.into());
        match &rule.succeeded_indexes {
            Some(indexes) => {
                let required = IndexIntervals::parse(indexes, completions);
                let common = required.overlap(succeeded);
                !required.is_empty() && (common == required.total() || enough(common))
            }
            None => enough(succeeded.total()),
        }
    });
    matched.map(|at| format!("Matched rules at index {at}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn failed_pod(status: Value) -> PodView {
        serde_json::from_value(json!({"metadata": {"namespace": "ns", "name": "p"}, "status": status})).unwrap()
    }

    fn exited(name: &str, code: i32) -> Value {
        json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code}}})
    }

    #[test]
    fn exit_codes_and_conditions_choose_the_action() {
        let policy: PodFailurePolicy = serde_json::from_value(json!({"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}},
            {"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [1, 42]}},
        ]}))
        .unwrap();
        let check = |status, expected| assert_eq!(pod_failure_action(Some(&policy), &failed_pod(status)), expected);
        let message = "Container main for pod ns/p failed with exit code 42 matching FailJob rule at index 1";
        check(json!({"containerStatuses": [exited("main", 42)]}), PodFailureAction::FailJob(message.into()));
        check(json!({"containerStatuses": [exited("side", 42)]}), PodFailureAction::Count);
        check(json!({"containerStatuses": [exited("main", 0)]}), PodFailureAction::Count);
        check(json!({"initContainerStatuses": [exited("init", 7)]}), PodFailureAction::FailIndex);
        let disrupted = json!([{"type": "DisruptionTarget", "status": "True"}]);
        let both = json!({"conditions": disrupted, "containerStatuses": [exited("main", 42)]});
        check(both, PodFailureAction::Ignore);
        assert_eq!(pod_failure_action(None, &failed_pod(json!({}))), PodFailureAction::Count);
    }

    #[test]
    fn success_policy_needs_indexes_or_a_count() {
        let policy: SuccessPolicy = serde_json::from_value(json!({"rules": [
            {"succeededIndexes": "0,2"}, {"succeededIndexes": "3-5", "succeededCount": 2}, {"succeededCount": 5},
        ]}))
        .unwrap();
        let check = |succeeded, expected: Option<&str>| {
            let succeeded = IndexIntervals::parse(succeeded, 10);
            assert_eq!(match_success_policy(Some(&policy), 10, &succeeded).as_deref(), expected);
        };
        check("", None);
        check("0,1", None);
        check("0-2", Some("Matched rules at index 0"));
        check("1,3,5", Some("Matched rules at index 1"));
        check("1,3,6-8", Some("Matched rules at index 2"));
    }
}
