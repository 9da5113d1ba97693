//! The numbers that bound a rollout: how many pods more, and how many fewer, than asked for.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStrategy, ReplicaSet};

use crate::int_or_percent::{Round, scaled};

/// How many pods the Deployment should have.
pub(super) fn desired(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// How many pods the ReplicaSet should have.
pub(super) fn replicas(replica_set: &ReplicaSet) -> i32 {
    replica_set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// How many pods these ReplicaSets should have together.
pub(super) fn total<'a>(replica_sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i32 {
    replica_sets.into_iter().map(replicas).sum()
}

/// How many pods these ReplicaSets have that are available.
pub(super) fn available<'a>(replica_sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i32 {
    let count = |replica_set: &ReplicaSet| replica_set.status.as_ref().and_then(|status| status.available_replicas);
    replica_sets.into_iter().filter_map(count).sum()
}

/// Whether old pods go before new ones come.
pub(super) fn is_recreate(deployment: &Deployment) -> bool {
    strategy(deployment).and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
}

fn strategy(deployment: &Deployment) -> Option<&DeploymentStrategy> {
    deployment.spec.as_ref()?.strategy.as_ref()
}

/// How many pods there may be above the number asked for.
pub(super) fn max_surge(deployment: &Deployment) -> i32 {
    fenceposts(deployment).0
}

/// How many pods of the number asked for may be unavailable.
pub(super) fn max_unavailable(deployment: &Deployment) -> i32 {
    fenceposts(deployment).1.min(desired(deployment))
}

/// Surge rounds up and unavailability down; when both come out as zero, nothing could ever move, so one pod may be
/// unavailable.
fn fenceposts(deployment: &Deployment) -> (i32, i32) {
    if is_recreate(deployment) {
        return (0, 0);
    }
    let rolling = strategy(deployment).and_then(|strategy| strategy.rolling_update.as_ref());
    let total = desired(deployment);
    let surge = scaled(rolling.and_then(|rolling| rolling.max_surge.as_ref()), total, Round::Up);
    let unavailable = scaled(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), total, Round::Down);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

/// The size that the new ReplicaSet may have now; `others` is the size of all others together.
pub(super) fn new_size(deployment: &Deployment, current: i32, others: i32) -> i32 {
    let wanted = desired(deployment);
    if is_recreate(deployment) {
        return wanted;
    }
    let room = wanted + max_surge(deployment) - current - others;
    if room <= 0 { current } else { current + room.min(wanted - current) }
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
    fn surge_and_unavailability() {
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
    fn the_new_replica_set_grows_into_the_room() {
        let check = |replicas, surge: Value, current, others, expected| {
            assert_eq!(new_size(&deployment(replicas, surge, json!(0)), current, others), expected);
        };
        check(3, json!(1), 0, 0, 3);
        check(3, json!(1), 0, 3, 1);
        check(3, json!(1), 1, 3, 1);
        check(3, json!(1), 1, 2, 2);
        check(10, json!(3), 3, 8, 5);
        check(10, json!("100%"), 0, 10, 10);
    }
}
