//! The `Recreate` strategy: all old pods terminate before the first new one starts.

use super::{DeploymentSyncError, limits::desired_replicas, rollout::DeploymentRollout, status};
use crate::{controller_ref, pod_availability, pod_view::PodView};

impl DeploymentRollout<'_> {
    /// Scales old ReplicaSets to zero; once no old pod runs, scales up the new one.
    pub(super) async fn rollout_recreate(&mut self) -> Result<(), DeploymentSyncError> {
        let mut scaled = false;
        for index in 0..self.old.len() {
            scaled |= self.scale_old_replica_set(index, 0, false).await?;
        }
        if scaled || self.old_pods_running() {
            return Ok(());
        }
        self.ensure_new_replica_set().await?;
        self.scale_new_replica_set(desired_replicas(&self.deployment)).await?;
        self.cleanup_if_complete().await
    }

    /// Whether an old pod still runs; terminating pods count.
    fn old_pods_running(&self) -> bool {
        let pods_of = |uid: &String| controller_ref::controlled_objects::<PodView>(&self.controller.pods, uid);
        self.old.iter().any(|replica_set| {
            let pods = replica_set.metadata.uid.iter().flat_map(pods_of);
            status::actual_replicas(replica_set) > 0
                || pods.into_iter().any(|pod| !pod_availability::is_pod_terminal(&pod))
        })
    }
}
