//! Scaling events: during a rollout all active ReplicaSets are scaled in proportion.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::{
    DeploymentSyncError,
    limits::{available_replicas, desired_replicas, is_recreate_strategy, max_surge, spec_replicas, total_replicas},
    revision::{compare_by_age, recorded_desired_replicas, recorded_max_replicas},
    rollout::DeploymentRollout,
};

impl DeploymentRollout<'_> {
    /// Whether the Deployment's size changed since its active ReplicaSets were scaled.
    pub(super) fn is_scaling_event(&self) -> bool {
        let active = self.old.iter().chain(&self.new).filter(|replica_set| spec_replicas(replica_set) > 0);
        active.filter_map(recorded_desired_replicas).any(|size| size != desired_replicas(&self.deployment))
    }

    /// Scales the only active ReplicaSet, or the newest if none is active; several are scaled in proportion.
    pub(super) async fn scale_deployment(&mut self) -> Result<(), DeploymentSyncError> {
        let desired = desired_replicas(&self.deployment);
        let active: Vec<usize> = (0..self.old.len()).filter(|index| spec_replicas(&self.old[*index]) > 0).collect();
        let new_is_active = self.new.as_ref().is_some_and(|new| spec_replicas(new) > 0);
        match (active.as_slice(), new_is_active) {
            ([], _) if self.new.is_some() => self.scale_new_replica_set(desired).await.map(drop),
            ([], _) => match self.old.len().checked_sub(1) {
                Some(newest) => self.scale_old_replica_set(newest, desired, false).await.map(drop),
                None => Ok(()),
            },
            ([only], false) => self.scale_old_replica_set(*only, desired, false).await.map(drop),
            _ if self.new.as_ref().is_some_and(|new| is_saturated(&self.deployment, new)) => {
                for index in active {
                    self.scale_old_replica_set(index, 0, false).await?;
                }
                Ok(())
            }
            _ if is_recreate_strategy(&self.deployment) => Ok(()),
            _ => self.scale_proportionally(&active).await,
        }
    }

    async fn scale_proportionally(&mut self, active: &[usize]) -> Result<(), DeploymentSyncError> {
        let mut sets: Vec<&ReplicaSet> = active.iter().map(|index| &self.old[*index]).collect();
        let new_is_active = self.new.as_ref().is_some_and(|new| spec_replicas(new) > 0);
        sets.extend(self.new.as_ref().filter(|_| new_is_active));
        let sizes = proportional_sizes(&self.deployment, &sets);
        for (index, size) in active.iter().zip(&sizes) {
            self.scale_old_replica_set(*index, *size, true).await?;
        }
        match sizes.get(active.len()) {
            Some(size) => self.rescale_new_replica_set(*size).await,
            None => Ok(()),
        }
    }
}

fn is_saturated(deployment: &Deployment, new: &ReplicaSet) -> bool {
    let desired = desired_replicas(deployment);
    spec_replicas(new) == desired
        && recorded_desired_replicas(new) == Some(desired)
        && available_replicas([new]) == desired
}

/// Returns proportional sizes. The difference goes to the larger ReplicaSets first (the newer of equals when growing,
/// the older when shrinking); the rounding remainder to the first.
fn proportional_sizes(deployment: &Deployment, sets: &[&ReplicaSet]) -> Vec<i32> {
    let desired = desired_replicas(deployment);
    let allowed = if desired > 0 { desired + max_surge(deployment) } else { 0 };
    let to_add = allowed - total_replicas(sets.iter().copied());
    let mut sizes: Vec<i32> = sets.iter().map(|replica_set| spec_replicas(replica_set)).collect();
    if to_add == 0 {
        return sizes;
    }
    let mut order: Vec<usize> = (0..sets.len()).collect();
    order.sort_by(|a, b| {
        let by_age = compare_by_age(sets[*a], sets[*b]);
        spec_replicas(sets[*b]).cmp(&spec_replicas(sets[*a])).then(if to_add > 0 { by_age.reverse() } else { by_age })
    });
    let mut added = 0;
    for index in &order {
        let (share, left) = (replica_set_fraction(deployment, sets[*index]), to_add - added);
        let share = match left {
            0 => 0,
            _ if to_add > 0 => share.min(left),
            _ => share.max(left),
        };
        sizes[*index] += share;
        added += share;
    }
    if let Some(first) = order.first() {
        sizes[*first] = (sizes[*first] + to_add - added).max(0);
    }
    sizes
}

/// Returns the size change that preserves the ReplicaSet's fraction.
fn replica_set_fraction(deployment: &Deployment, replica_set: &ReplicaSet) -> i32 {
    let (size, desired) = (spec_replicas(replica_set), desired_replicas(deployment));
    if desired == 0 {
        return -size;
    }
    let counted = deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or(0);
    let before = recorded_max_replicas(replica_set).filter(|most| *most > 0).unwrap_or(counted);
    if before == 0 {
        return 0;
    }
    let share = f64::from(size) * f64::from(desired + max_surge(deployment)) / f64::from(before);
    share.round() as i32 - size
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks ReplicaSets of these sizes, oldest first, of a Deployment scaled from `before` to `wanted` with surge 2.
    fn check(before: i32, desired: i32, sizes: &[i32], expected: &[i32]) {
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}});
        let spec = json!({"replicas": desired, "selector": {}, "template": {}, "strategy": strategy});
        let deployment: Deployment = serde_json::from_value(json!({"spec": spec})).unwrap();
        let sets: Vec<ReplicaSet> = sizes
            .iter()
            .enumerate()
            .map(|(age, size)| {
                let annotations = json!({"deployment.kubernetes.io/max-replicas": (before + 2).to_string()});
                let metadata = json!({"name": age.to_string(), "creationTimestamp": format!("2030-01-01T00:00:0{age}Z"), "annotations": annotations});
                serde_json::from_value(json!({"metadata": metadata, "spec": {"replicas": size, "selector": {}}})).unwrap()
            })
            .collect();
        assert_eq!(
            proportional_sizes(&deployment, &sets.iter().collect::<Vec<_>>()),
            expected,
            "{before} {desired} {sizes:?}"
        );
    }

    #[test]
    fn sizes_keep_their_proportion() {
        check(10, 20, &[8, 4], &[15, 7]);
        check(10, 5, &[8, 4], &[5, 2]);
        check(10, 0, &[8, 4], &[0, 0]);
        check(10, 10, &[8, 4], &[8, 4]);
        check(4, 5, &[3, 3], &[3, 4]);
        check(4, 3, &[3, 3], &[2, 3]);
    }
}
