//! Recreate: all old pods end before the first new one starts.

use k8s_openapi::api::core::v1::Pod;

use super::{Error, limits::desired, rollout::Rollout, status};
use crate::{availability, ownership};

impl Rollout<'_> {
    /// One step: old ReplicaSets to zero; once no old pod is left, the new one to its size.
    pub(super) async fn recreate(&mut self) -> Result<(), Error> {
        let mut scaled = false;
        for index in 0..self.old.len() {
            scaled |= self.scale_old(index, 0, false).await?;
        }
        if scaled || self.old_pods_run() {
            return Ok(());
        }
        self.ensure_new().await?;
        self.scale_new(desired(&self.deployment)).await?;
        self.clean_up_if_complete().await
    }

    /// Pods that are being deleted still run.
    fn old_pods_run(&self) -> bool {
        let pods_of = |uid: &String| ownership::controlled::<Pod>(&self.controller.pods, uid);
        self.old.iter().any(|replica_set| {
            let pods = replica_set.metadata.uid.iter().flat_map(pods_of);
            status::actual(replica_set) > 0 || pods.into_iter().any(|pod| !availability::is_terminal(&pod))
        })
    }
}
