//! Bounds of a rollout: replica counts, maxSurge, maxUnavailable.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStrategy, ReplicaSet};

use crate::int_or_percent::{RoundingMode, scaled_value};

/// Returns the Deployment's `spec.replicas`.
pub(super) fn desired_replicas(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Returns the ReplicaSet's `spec.replicas`.
pub(super) fn spec_replicas(replica_set: &ReplicaSet) -> i32 {
    replica_set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Returns the sum of `spec.replicas`.
pub(super) fn total_replicas<'a>(replica_sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i32 {
    replica_sets.into_iter().map(spec_replicas).sum()
}

/// Returns the sum of available replicas.
pub(super) fn available_replicas<'a>(replica_sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i32 {
    let count = |replica_set: &ReplicaSet| replica_set.status.as_ref().and_then(|status| status.available_replicas);
    replica_sets.into_iter().filter_map(count).sum()
}

/// Whether the strategy is `Recreate`.
pub(super) fn is_recreate_strategy(deployment: &Deployment) -> bool {
    deployment_strategy(deployment).and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
}

fn deployment_strategy(deployment: &Deployment) -> Option<&DeploymentStrategy> {
    deployment.spec.as_ref()?.strategy.as_ref()
}

/// Returns the number of pods allowed above the desired replicas.
pub(super) fn max_surge(deployment: &Deployment) -> i32 {
    resolve_fenceposts(deployment).0
}

/// Returns the number of desired replicas that may be unavailable.
pub(super) fn max_unavailable(deployment: &Deployment) -> i32 {
    resolve_fenceposts(deployment).1.min(desired_replicas(deployment))
}

/// Resolves maxSurge (rounded up) and maxUnavailable (rounded down); if both are zero, one pod may be unavailable so
/// that the rollout can proceed.
fn resolve_fenceposts(deployment: &Deployment) -> (i32, i32) {
    if is_recreate_strategy(deployment) {
        return (0, 0);
    }
    let rolling = deployment_strategy(deployment).and_then(|strategy| strategy.rolling_update.as_ref());
    let total = desired_replicas(deployment);
    let surge = scaled_value(rolling.and_then(|rolling| rolling.max_surge.as_ref()), total, RoundingMode::Up);
    let unavailable =
        scaled_value(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), total, RoundingMode::Down);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

/// Returns the size that the new ReplicaSet may have now; `others` is the total size of the old ones.
pub(super) fn new_replica_set_size(deployment: &Deployment, current: i32, others: i32) -> i32 {
    let desired = desired_replicas(deployment);
    if is_recreate_strategy(deployment) {
        return desired;
    }
    let room = desired + max_surge(deployment) - current - others;
    if room <= 0 { current } else { current + room.min(desired - current) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn deployment(replicas: i32, surge: Value, unavailable: Value) -> Deployment {
        let rolling = json!({"maxSurge": surge, "maxUnavailable": unavailable});
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
        serde_json::from_value(
            json!({"spec": {"replicas": replicas, "selector": {}, "template": {}, "strategy": strategy}}),
        )
        .unwrap()
    }

    #[test]
    fn surge_rounds_up_and_unavailable_rounds_down() {
        let check = |replicas, surge: Value, unavailable: Value, expected| {
            let deployment = deployment(replicas, surge.clone(), unavailable.clone());
            let got = (max_surge(&deployment), max_unavailable(&deployment));
            assert_eq!(got, expected, "{replicas} {surge} {unavailable}");
        };
        check(3, json!("25%"), json!("25%"), (1, 0));
        check(10, json!("25%"), json!("25%"), (3, 2));
        check(2, json!("0%"), json!("1%"), (0, 1));
        check(1, json!(0), json!(0), (0, 1));
        check(2, json!(1), json!(5), (1, 2));
        check(0, json!("25%"), json!("25%"), (0, 0));
    }

    #[test]
    fn new_replica_set_grows_within_max_surge() {
        let check = |replicas, surge: Value, current, others, expected| {
            assert_eq!(new_replica_set_size(&deployment(replicas, surge, json!(0)), current, others), expected);
        };
        check(3, json!(1), 0, 0, 3);
        check(3, json!(1), 0, 3, 1);
        check(3, json!(1), 1, 3, 1);
        check(3, json!(1), 1, 2, 2);
        check(10, json!(3), 3, 8, 5);
        check(10, json!("100%"), 0, 10, 10);
    }
}
