//! ttl-controller: annotates nodes with the time for which kubelets may cache Secrets and ConfigMaps, by cluster size.

use std::sync::atomic::{AtomicUsize, Ordering};

use client::{ApiErrorExt, RequeueAction, ResourceEvent, SharedInformer};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
};

const TTL_ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";
/// Least and greatest number of nodes of a step, and its seconds. Steps overlap, so that the TTL does not flap.
const BOUNDARIES: [(usize, usize, u32); 5] =
    [(0, 100, 0), (90, 500, 15), (450, 1000, 30), (900, 2000, 60), (1800, usize::MAX, 300)];

struct TtlController {
    client: Client,
    nodes: SharedInformer<Node>,
    node_count: AtomicUsize,
    step: AtomicUsize,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let (client, nodes) = (context.client.clone(), context.informers.informer_for());
    let build = |_| TtlController { client, nodes, node_count: AtomicUsize::new(0), step: AtomicUsize::new(0) };
    run_controller(&context, build).await;
}

impl Controller for TtlController {
    type Key = String;
    type Error = kube::Error;
    const WORKERS: usize = 5;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        watches.add(&self.nodes, |this, event, queue| {
            // Events of one informer arrive one after the other.
            let count = this.node_count.load(Ordering::Relaxed);
            let count = match event {
                ResourceEvent::Added(_) => count + 1,
                ResourceEvent::Updated { .. } => count,
                ResourceEvent::Deleted(_) => count.saturating_sub(1),
            };
            this.node_count.store(count, Ordering::Relaxed);
            this.step.store(next_step(this.step.load(Ordering::Relaxed), count), Ordering::Relaxed);
            if !matches!(event, ResourceEvent::Deleted(_)) {
                queue.add(event.object().name_any());
            }
        });
    }

    async fn sync(&self, name: &String) -> Result<RequeueAction, kube::Error> {
        let Some(node) = self.nodes.get("", name) else { return Ok(RequeueAction::AwaitChange) };
        let desired = BOUNDARIES.get(self.step.load(Ordering::Relaxed)).map_or(0, |(.., seconds)| *seconds);
        let current = node.annotations().get(TTL_ANNOTATION).and_then(|value| value.parse::<u32>().ok());
        if current == Some(desired) {
            return Ok(RequeueAction::AwaitChange);
        }
        let api: Api<Node> = Api::all(self.client.clone());
        let patch = json!({"metadata": {"annotations": {TTL_ANNOTATION: desired.to_string()}}});
        match api.patch_metadata(name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(RequeueAction::AwaitChange),
        }
    }
}

/// Returns the step after the number of nodes changed.
fn next_step(step: usize, count: usize) -> usize {
    match BOUNDARIES.get(step) {
        Some((_, most, _)) if count > *most => step + 1,
        Some((least, ..)) if count < *least => step.saturating_sub(1),
        _ => step,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_overlap() {
        assert_eq!((next_step(0, 100), next_step(0, 101)), (0, 1));
        assert_eq!((next_step(1, 90), next_step(1, 89)), (1, 0));
        assert_eq!((next_step(4, 1_000_000), next_step(4, 1799)), (4, 3));
    }
}
