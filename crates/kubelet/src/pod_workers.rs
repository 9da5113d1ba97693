//! Pod workers: one task per pod, fed with pod updates from the API and events from the runtime (PLEG).

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use client::ResourceEvent;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use runtime::cri;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    context::{self, KubeletContext},
    pod_termination,
    pod_worker::{PodUpdate, PodWorker},
    resources::{self, QosClass},
    runtime_status::labels,
    volumes,
};

/// Maximum number of concurrent orphan cleanups.
const MAX_PARALLEL_CLEANUPS: usize = 8;

/// Channels to a pod worker.
struct PodWorkerHandle {
    updates: watch::Sender<PodUpdate>,
    wake: Arc<Notify>,
}

/// All pod workers.
struct PodWorkers {
    kubelet: Arc<KubeletContext>,
    handles: HashMap<String, PodWorkerHandle>,
    tasks: JoinSet<String>,
    /// Whether the runtime must be watched.
    has_pods: watch::Sender<bool>,
}

/// Runs the pod workers until `shutdown`.
pub async fn run_pod_workers(kubelet: Arc<KubeletContext>, shutdown: CancellationToken) {
    let (sender, mut api) = mpsc::unbounded_channel();
    kubelet.pods.add_event_handler(move |change| {
        // The receiver outlives the informer's handler except at shutdown.
        let _ = sender.send(change.clone());
    });
    let (any, receiver) = watch::channel(false);
    let mut runtime = kubelet.cri.watch_events(receiver);
    let mut orphans = JoinSet::new();
    orphans.spawn(cleanup_orphaned_pods(kubelet.clone()));
    let mut pods = PodWorkers { kubelet, handles: HashMap::new(), tasks: JoinSet::new(), has_pods: any };
    loop {
        tokio::select! {
            Some(change) = api.recv() => pods.handle_pod_event(change),
            Some(change) = runtime.next() => pods.handle_runtime_event(change),
            Some(ended) = pods.tasks.join_next() => pods.handle_worker_exit(ended),
            Some(_) = orphans.join_next() => {}
            () = shutdown.cancelled() => return,
        }
    }
}

impl PodWorkers {
    fn handle_pod_event(&mut self, change: ResourceEvent<Pod>) {
        match change {
            ResourceEvent::Added(pod) => self.update_pod(PodUpdate::Sync(pod.clone()), &pod),
            ResourceEvent::Updated { old, new } => {
                if context::pod_uid(&old) != context::pod_uid(&new) {
                    self.update_pod(PodUpdate::Deleted(old.clone()), &old);
                }
                self.update_pod(PodUpdate::Sync(new.clone()), &new);
            }
            ResourceEvent::Deleted(pod) => self.update_pod(PodUpdate::Deleted(pod.clone()), &pod),
        }
    }

    fn update_pod(&mut self, update: PodUpdate, pod: &Pod) {
        if let Some(handle) = self.handles.get(context::pod_uid(pod)) {
            handle.updates.send_replace(update);
            return;
        }
        let uid = context::pod_uid(pod).to_string();
        let (sender, receiver) = watch::channel(update);
        let wake = Arc::new(Notify::new());
        let worker = PodWorker::new(self.kubelet.clone(), receiver, wake.clone());
        let key = uid.clone();
        self.tasks.spawn(async move {
            worker.run().await;
            key
        });
        self.handles.insert(uid, PodWorkerHandle { updates: sender, wake });
        self.has_pods.send_replace(true);
    }

    fn handle_runtime_event(&self, change: cri::RuntimeEvent) {
        // An error means that no log is followed.
        let _ = self.kubelet.changes.send(change.clone());
        match change {
            cri::RuntimeEvent::PodChanged(uid) => {
                self.handles.get(&uid).into_iter().for_each(|handle| handle.wake.notify_one())
            }
            cri::RuntimeEvent::Resync => self.handles.values().for_each(|handle| handle.wake.notify_one()),
        }
    }

    fn handle_worker_exit(&mut self, ended: Result<String, tokio::task::JoinError>) {
        match ended {
            Ok(uid) => {
                self.handles.remove(&uid);
            }
            // The worker restarts with back-off; see [`PodWorkers::update_pod`].
            Err(error) => tracing::error!(%error, "a pod's worker broke off"),
        }
        self.has_pods.send_replace(!self.handles.is_empty());
    }
}

/// Removes runtime objects and files of pods that are unknown to the API server.
async fn cleanup_orphaned_pods(kubelet: Arc<KubeletContext>) {
    // Runtime first, informer second: a pod that arrives in between is not an orphan.
    let sandboxes = match kubelet.cri.list_sandboxes(HashMap::new()).await {
        Ok(sandboxes) => sandboxes,
        Err(error) => return tracing::warn!(%error, "kubelet: sandboxes not listed, orphan cleanup skipped"),
    };
    let running = sandboxes.iter().filter_map(|sandbox| sandbox.labels.get(labels::POD_UID).cloned());
    let there: HashSet<String> = running.chain(volumes::list_pods_on_disk(&kubelet.root_dir)).collect();
    kubelet.pods.wait_for_cache_sync().await;
    let known: HashSet<String> = kubelet.pods.list().iter().map(|pod| context::pod_uid(pod).to_string()).collect();
    let orphans = futures::stream::iter(there.difference(&known));
    orphans.for_each_concurrent(MAX_PARALLEL_CLEANUPS, |uid| cleanup_orphaned_pod(kubelet.clone(), uid.clone())).await;
}

async fn cleanup_orphaned_pod(kubelet: Arc<KubeletContext>, uid: String) {
    tracing::info!(uid, "kubelet: removing orphaned pod");
    if let Err(error) = pod_termination::remove_orphaned_sandboxes(&kubelet, &uid).await {
        return tracing::warn!(uid, %error, "kubelet: orphaned sandbox not removed");
    }
    let cleaned = tokio::task::spawn_blocking(move || {
        let classes = [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort];
        let groups = classes.map(|qos| resources::pod_cgroup_path(&kubelet.cgroup_root, &uid, qos));
        pod_termination::remove_pod_files(&kubelet, &uid, &groups);
        pod_termination::remove_pod_logs(&kubelet, &uid);
    });
    if let Err(error) = cleaned.await {
        tracing::error!(%error, "kubelet: orphan cleanup panicked");
    }
}
