//! A change of size: while a rollout is under way, all its ReplicaSets grow and shrink in proportion.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::{
    Error,
    limits::{available, desired, is_recreate, max_surge, replicas, total},
    revision::{oldest_first, sized_for, sized_up_to},
    rollout::Rollout,
};

impl Rollout<'_> {
    /// Whether the Deployment was resized since its active ReplicaSets were.
    pub(super) fn is_resized(&self) -> bool {
        let active = self.old.iter().chain(&self.new).filter(|replica_set| replicas(replica_set) > 0);
        active.filter_map(sized_for).any(|size| size != desired(&self.deployment))
    }

    /// Resizes the only active ReplicaSet, or the newest if none is; if several are, all in proportion.
    pub(super) async fn resize(&mut self) -> Result<(), Error> {
        let wanted = desired(&self.deployment);
        let active: Vec<usize> = (0..self.old.len()).filter(|index| replicas(&self.old[*index]) > 0).collect();
        let new_is_active = self.new.as_ref().is_some_and(|new| replicas(new) > 0);
        match (active.as_slice(), new_is_active) {
            ([], _) if self.new.is_some() => self.scale_new(wanted).await.map(drop),
            ([], _) => match self.old.len().checked_sub(1) {
                Some(newest) => self.scale_old(newest, wanted, false).await.map(drop),
                None => Ok(()),
            },
            ([only], false) => self.scale_old(*only, wanted, false).await.map(drop),
            _ if self.new.as_ref().is_some_and(|new| is_saturated(&self.deployment, new)) => {
                for index in active {
                    self.scale_old(index, 0, false).await?;
                }
                Ok(())
            }
            _ if is_recreate(&self.deployment) => Ok(()),
            _ => self.resize_all(&active).await,
        }
    }

    async fn resize_all(&mut self, active: &[usize]) -> Result<(), Error> {
        let mut sets: Vec<&ReplicaSet> = active.iter().map(|index| &self.old[*index]).collect();
        let new_is_active = self.new.as_ref().is_some_and(|new| replicas(new) > 0);
        sets.extend(self.new.as_ref().filter(|_| new_is_active));
        let sizes = proportions(&self.deployment, &sets);
        for (index, size) in active.iter().zip(&sizes) {
            self.scale_old(*index, *size, true).await?;
        }
        match sizes.get(active.len()) {
            Some(size) => self.scale_new_forced(*size).await,
            None => Ok(()),
        }
    }
}

fn is_saturated(deployment: &Deployment, new: &ReplicaSet) -> bool {
    let wanted = desired(deployment);
    replicas(new) == wanted && sized_for(new) == Some(wanted) && available([new]) == wanted
}

/// New sizes for ReplicaSets that all have pods. What is added or removed goes to the larger ones first (among equals
/// to the newer when growing, from the older when shrinking); what rounding leaves over, to the first.
fn proportions(deployment: &Deployment, sets: &[&ReplicaSet]) -> Vec<i32> {
    let wanted = desired(deployment);
    let allowed = if wanted > 0 { wanted + max_surge(deployment) } else { 0 };
    let to_add = allowed - total(sets.iter().copied());
    let mut sizes: Vec<i32> = sets.iter().map(|replica_set| replicas(replica_set)).collect();
    if to_add == 0 {
        return sizes;
    }
    let mut order: Vec<usize> = (0..sets.len()).collect();
    order.sort_by(|a, b| {
        let by_age = oldest_first(sets[*a], sets[*b]);
        replicas(sets[*b]).cmp(&replicas(sets[*a])).then(if to_add > 0 { by_age.reverse() } else { by_age })
    });
    let mut added = 0;
    for index in &order {
        let (share, left) = (fraction(deployment, sets[*index]), to_add - added);
        let share = if to_add > 0 { share.min(left) } else { share.max(left) };
        sizes[*index] += share;
        added += share;
    }
    if let Some(first) = order.first() {
        sizes[*first] = (sizes[*first] + to_add - added).max(0);
    }
    sizes
}

/// By how much the ReplicaSet changes if it keeps its part of the whole.
fn fraction(deployment: &Deployment, replica_set: &ReplicaSet) -> i32 {
    let (size, wanted) = (replicas(replica_set), desired(deployment));
    if wanted == 0 {
        return -size;
    }
    let counted = deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or(0);
    let before = sized_up_to(replica_set).filter(|most| *most > 0).unwrap_or(counted);
    if before == 0 {
        return 0;
    }
    let share = f64::from(size) * f64::from(wanted + max_surge(deployment)) / f64::from(before);
    share.round() as i32 - size
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// ReplicaSets of these sizes, oldest first, of a Deployment that was `before` and is now `wanted`, surge 2.
    fn check(before: i32, wanted: i32, sizes: &[i32], expected: &[i32]) {
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}});
        let spec = json!({"replicas": wanted, "selector": {}, "template": {}, "strategy": strategy});
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
        assert_eq!(proportions(&deployment, &sets.iter().collect::<Vec<_>>()), expected, "{before} {wanted} {sizes:?}");
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
