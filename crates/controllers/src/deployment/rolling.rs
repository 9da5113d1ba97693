//! The `RollingUpdate` strategy.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::{
    DeploymentSyncError,
    limits::{
        available_replicas, desired_replicas, max_unavailable, new_replica_set_size, spec_replicas, total_replicas,
    },
    rollout::DeploymentRollout,
};

impl DeploymentRollout<'_> {
    /// Scales up the new ReplicaSet if allowed, else scales down old ones, else cleans up.
    pub(super) async fn rollout_rolling(&mut self) -> Result<(), DeploymentSyncError> {
        self.ensure_new_replica_set().await?;
        if self.reconcile_new_replica_set().await? || self.reconcile_old_replica_sets().await? {
            return Ok(());
        }
        self.cleanup_if_complete().await
    }

    async fn reconcile_new_replica_set(&mut self) -> Result<bool, DeploymentSyncError> {
        let Some(new) = &self.new else { return Ok(false) };
        let (current, desired) = (spec_replicas(new), desired_replicas(&self.deployment));
        let size = if current > desired {
            desired
        } else {
            new_replica_set_size(&self.deployment, current, total_replicas(&self.old))
        };
        self.scale_new_replica_set(size).await
    }

    async fn reconcile_old_replica_sets(&mut self) -> Result<bool, DeploymentSyncError> {
        let Some(new) = &self.new else { return Ok(false) };
        let sizes = scaled_down_sizes(&self.deployment, &self.old, new);
        let mut changed = false;
        for (index, size) in sizes.into_iter().enumerate() {
            changed |= self.scale_old_replica_set(index, size, false).await?;
        }
        Ok(changed)
    }
}

/// Returns the sizes that the old ReplicaSets (oldest first) may have now. Unavailable pods are removed first, which
/// costs no availability; then available ones above the minimum.
fn scaled_down_sizes(deployment: &Deployment, old: &[ReplicaSet], new: &ReplicaSet) -> Vec<i32> {
    let mut sizes: Vec<i32> = old.iter().map(spec_replicas).collect();
    let minimum = desired_replicas(deployment) - max_unavailable(deployment);
    let new_unavailable = spec_replicas(new) - available_replicas([new]);
    let mut unhealthy = total_replicas(old) + spec_replicas(new) - minimum - new_unavailable;
    if unhealthy <= 0 {
        return sizes;
    }
    for (index, replica_set) in old.iter().enumerate().filter(|(_, replica_set)| spec_replicas(replica_set) > 0) {
        if unhealthy == 0 {
            break;
        }
        let unavailable = sizes[index] - available_replicas([replica_set]);
        // The status is older than the size: nothing is known of what is available.
        if unavailable < 0 {
            return sizes;
        }
        let count = unavailable.min(unhealthy);
        (sizes[index], unhealthy) = (sizes[index] - count, unhealthy - count);
    }
    // A ReplicaSet without desired pods may still report some that are going.
    let active = old.iter().filter(|replica_set| spec_replicas(replica_set) > 0);
    let mut spare = available_replicas(active) + available_replicas([new]) - minimum;
    for size in &mut sizes {
        let count = (*size).min(spare).max(0);
        (*size, spare) = (*size - count, spare - count);
    }
    sizes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn replica_set(size: i32, available: i32) -> ReplicaSet {
        let status = json!({"replicas": size, "availableReplicas": available});
        serde_json::from_value(json!({"spec": {"replicas": size, "selector": {}}, "status": status})).unwrap()
    }

    /// Old and new are `(size, available)`.
    fn check(replicas: i32, unavailable: i32, old: &[(i32, i32)], new: (i32, i32), expected: &[i32]) {
        let strategy =
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": unavailable}});
        let spec = json!({"replicas": replicas, "selector": {}, "template": {}, "strategy": strategy});
        let deployment: Deployment = serde_json::from_value(json!({"spec": spec})).unwrap();
        let sets: Vec<_> = old.iter().map(|(size, available)| replica_set(*size, *available)).collect();
        assert_eq!(scaled_down_sizes(&deployment, &sets, &replica_set(new.0, new.1)), expected, "{old:?} {new:?}");
    }

    #[test]
    fn old_replica_sets_keep_the_minimum_available() {
        check(10, 2, &[(10, 10)], (3, 0), &[8]);
        check(10, 2, &[(8, 8)], (5, 0), &[8]);
        check(10, 2, &[(8, 8)], (5, 3), &[5]);
        check(10, 0, &[(10, 10)], (3, 3), &[7]);
        check(10, 0, &[(10, 10)], (3, 0), &[10]);
        check(3, 0, &[(1, 1)], (3, 3), &[0]);
    }

    #[test]
    fn unavailable_pods_are_removed_first() {
        check(10, 2, &[(10, 8)], (0, 0), &[8]);
        check(10, 2, &[(5, 0), (5, 5)], (3, 3), &[0, 5]);
        check(10, 2, &[(8, 7)], (5, 0), &[8]);
    }

    #[test]
    fn pods_of_an_inactive_replica_set_are_not_counted() {
        check(3, 0, &[(0, 1), (2, 2)], (1, 1), &[0, 2]);
    }

    #[test]
    fn status_older_than_the_size_removes_no_pods() {
        check(2, 1, &[(2, 3)], (1, 0), &[2]);
        check(2, 1, &[(2, 2)], (1, 0), &[1]);
    }

    #[test]
    fn oldest_replica_set_is_scaled_down_first() {
        check(4, 0, &[(2, 2), (2, 2)], (2, 2), &[0, 2]);
        check(4, 0, &[(1, 1), (2, 2)], (3, 3), &[0, 1]);
    }

    /// Simulates a rollout: every step stays within the limits and it terminates.
    #[test]
    fn rollout_stays_within_its_limits() {
        let (desired, surge, unavailable) = (7, 3, 1);
        let strategy =
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
        let spec = json!({"replicas": desired, "selector": {}, "template": {}, "strategy": strategy});
        let deployment: Deployment = serde_json::from_value(json!({"spec": spec})).unwrap();
        let (mut old, mut new, mut new_available) = (desired, 0, 0);
        for _ in 0..50 {
            new = new_replica_set_size(&deployment, new, old);
            assert!(old + new <= desired + surge, "{old} + {new}");
            old = scaled_down_sizes(&deployment, &[replica_set(old, old)], &replica_set(new, new_available))[0];
            assert!(old + new_available >= desired - unavailable, "{old} + {new_available}");
            new_available = (new_available + 1).min(new);
        }
        assert_eq!((old, new), (0, desired));
    }
}
