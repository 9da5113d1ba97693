//! RollingUpdate: new pods come and old ones go in steps that keep within the surge and the unavailability allowed.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::{
    Error,
    limits::{available, desired, max_unavailable, new_size, replicas, total},
    rollout::Rollout,
};

impl Rollout<'_> {
    /// One step: up if there is room, else down, else clean up.
    pub(super) async fn roll(&mut self) -> Result<(), Error> {
        self.ensure_new().await?;
        if self.grow_new().await? || self.shrink_old().await? {
            return Ok(());
        }
        self.clean_up_if_complete().await
    }

    async fn grow_new(&mut self) -> Result<bool, Error> {
        let Some(new) = &self.new else { return Ok(false) };
        let (current, wanted) = (replicas(new), desired(&self.deployment));
        let size = if current > wanted { wanted } else { new_size(&self.deployment, current, total(&self.old)) };
        self.scale_new(size).await
    }

    async fn shrink_old(&mut self) -> Result<bool, Error> {
        let Some(new) = &self.new else { return Ok(false) };
        let sizes = shrink(&self.deployment, &self.old, new);
        let mut changed = false;
        for (index, size) in sizes.into_iter().enumerate() {
            changed |= self.scale_old(index, size, false).await?;
        }
        Ok(changed)
    }
}

/// The sizes that the old ReplicaSets (oldest first) may have now. Pods that are not available go first: that costs no
/// availability. Then available ones go, as many as there are above the minimum.
fn shrink(deployment: &Deployment, old: &[ReplicaSet], new: &ReplicaSet) -> Vec<i32> {
    let mut sizes: Vec<i32> = old.iter().map(replicas).collect();
    let minimum = desired(deployment) - max_unavailable(deployment);
    let new_unavailable = replicas(new) - available([new]);
    let mut unhealthy = total(old) + replicas(new) - minimum - new_unavailable;
    if unhealthy <= 0 {
        return sizes;
    }
    for (size, replica_set) in sizes.iter_mut().zip(old) {
        let count = (*size - available([replica_set])).clamp(0, unhealthy.max(0));
        (*size, unhealthy) = (*size - count, unhealthy - count);
    }
    let mut spare = available(old) + available([new]) - minimum;
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
        assert_eq!(shrink(&deployment, &sets, &replica_set(new.0, new.1)), expected, "{old:?} {new:?}");
    }

    #[test]
    fn old_pods_go_only_when_they_can_be_spared() {
        check(10, 2, &[(10, 10)], (3, 0), &[8]);
        check(10, 2, &[(8, 8)], (5, 0), &[8]);
        check(10, 2, &[(8, 8)], (5, 3), &[5]);
        check(10, 0, &[(10, 10)], (3, 3), &[7]);
        check(10, 0, &[(10, 10)], (3, 0), &[10]);
        check(3, 0, &[(1, 1)], (3, 3), &[0]);
    }

    #[test]
    fn unhealthy_pods_go_first_and_cost_nothing() {
        check(10, 2, &[(10, 8)], (0, 0), &[8]);
        check(10, 2, &[(5, 0), (5, 5)], (3, 3), &[0, 5]);
        check(10, 2, &[(8, 7)], (5, 0), &[8]);
    }

    #[test]
    fn the_oldest_go_first() {
        check(4, 0, &[(2, 2), (2, 2)], (2, 2), &[0, 2]);
        check(4, 0, &[(1, 1), (2, 2)], (3, 3), &[0, 1]);
    }

    /// Plays a whole rollout: every step keeps within the limits, and it ends.
    #[test]
    fn a_rollout_never_leaves_its_limits() {
        let (wanted, surge, unavailable) = (7, 3, 1);
        let strategy =
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
        let spec = json!({"replicas": wanted, "selector": {}, "template": {}, "strategy": strategy});
        let deployment: Deployment = serde_json::from_value(json!({"spec": spec})).unwrap();
        let (mut old, mut new, mut new_available) = (wanted, 0, 0);
        for _ in 0..50 {
            new = new_size(&deployment, new, old);
            assert!(old + new <= wanted + surge, "{old} + {new}");
            old = shrink(&deployment, &[replica_set(old, old)], &replica_set(new, new_available))[0];
            assert!(old + new_available >= wanted - unavailable, "{old} + {new_available}");
            new_available = (new_available + 1).min(new);
        }
        assert_eq!((old, new), (0, wanted));
    }
}
