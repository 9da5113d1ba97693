//! Pod workers: one task per pod, fed with pod updates from the API and events from the runtime (PLEG).

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use client::{
    ResourceEvent,
    panics::{PanicError, contain_panic},
};
use futures::{FutureExt, StreamExt, future::BoxFuture};
use k8s_openapi::api::core::v1::Pod;
use runtime::cri;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    admission::AdmissionRejection,
    blocking::run_blocking,
    context::{self, KubeletContext},
    eviction,
    pod_manager::is_static_pod,
    pod_status, pod_termination,
    pod_worker::{PodUpdate, PodWorker},
    resources::{self, QosClass},
    volumes,
};

/// Maximum number of concurrent orphan cleanups.
const MAX_PARALLEL_CLEANUPS: usize = 8;

/// Interval between orphan cleanups.
const ORPHAN_CLEANUP_INTERVAL: Duration = Duration::from_secs(60);

/// Channels to a pod worker.
struct PodWorkerHandle {
    /// Why the node does not admit the pod.
    rejection: Option<AdmissionRejection>,
    updates: watch::Sender<PodUpdate>,
    wake: Arc<Notify>,
    /// Number of panics of this pod's workers.
    panics: u32,
}

impl PodWorkerHandle {
    /// Returns the back-off of the next worker: none at first, then 1 s doubling up to 64 s.
    fn restart_delay(&self) -> Duration {
        match self.panics {
            0 => Duration::ZERO,
            panics => Duration::from_secs(1 << (panics - 1).min(6)),
        }
    }
}

/// The pod's uid and whether its worker finished or panicked.
type WorkerExit = (String, Result<(), PanicError>);

/// Runs the worker of one pod until the pod is finished.
type RunWorker = fn(
    Arc<KubeletContext>,
    watch::Receiver<PodUpdate>,
    Arc<Notify>,
    Option<AdmissionRejection>,
) -> BoxFuture<'static, ()>;

/// All pod workers.
struct PodWorkers {
    kubelet: Arc<KubeletContext>,
    handles: HashMap<String, PodWorkerHandle>,
    tasks: JoinSet<WorkerExit>,
    /// Whether the runtime must be watched.
    has_pods: watch::Sender<bool>,
    run_worker: RunWorker,
    /// Static pods that wait for the end of another with their name.
    waiting_static_pods: Vec<Arc<Pod>>,
}

/// Runs the pod workers until `shutdown`.
///
/// `static_pods` brings the events of static pods, `woken` the uids of pods to sync.
pub async fn run_pod_workers(
    kubelet: Arc<KubeletContext>,
    mut static_pods: mpsc::UnboundedReceiver<ResourceEvent<Pod>>,
    mut woken: mpsc::UnboundedReceiver<String>,
    shutdown: CancellationToken,
) {
    let (sender, mut api) = mpsc::unbounded_channel();
    kubelet.pods.add_event_handler(move |event| {
        // The receiver outlives the informer's handler except at shutdown.
        let _ = sender.send(event.clone());
    });
    let mut pods = PodWorkers::new(kubelet.clone(), |kubelet, updates, wake, rejection| {
        PodWorker::new(kubelet, updates, wake, rejection).run().boxed()
    });
    let mut runtime = kubelet.cri.watch_events(pods.has_pods.subscribe());
    let mut orphans = JoinSet::new();
    orphans.spawn(run_orphan_cleanup(kubelet.clone()));
    // New pods are admitted against all that run already.
    let synced = async { tokio::join!(kubelet.pods.wait_for_cache_sync(), kubelet.node.wait_for_cache_sync()) };
    if shutdown.run_until_cancelled(synced).await.is_none() {
        return;
    }
    pods.restore_admitted_pods();
    loop {
        tokio::select! {
            Some(change) = api.recv() => pods.handle_pod_event(change),
            Some(change) = static_pods.recv() => pods.handle_pod_event(change),
            Some(uid) = woken.recv() => pods.wake_worker(&uid),
            Some(change) = runtime.next() => pods.handle_runtime_event(change),
            Some(ended) = pods.tasks.join_next() => pods.handle_worker_exit(ended),
            () = shutdown.cancelled() => return,
        }
    }
}

impl PodWorkers {
    fn new(kubelet: Arc<KubeletContext>, run_worker: RunWorker) -> Self {
        let has_pods = watch::Sender::new(false);
        Self {
            kubelet,
            handles: HashMap::new(),
            tasks: JoinSet::new(),
            has_pods,
            run_worker,
            waiting_static_pods: Vec::new(),
        }
    }

    /// Counts the pods that an earlier run of this kubelet admitted.
    fn restore_admitted_pods(&mut self) {
        for pod in self.kubelet.pods.list().iter().filter(|pod| !pod_status::is_terminal(pod)) {
            self.kubelet.lock_admission().restore_pod(pod);
        }
    }

    /// Admits a new pod, or returns why not.
    fn admit_pod(&mut self, pod: &Pod) -> Option<AdmissionRejection> {
        if pod_status::is_terminal(pod) {
            return None;
        }
        if let Some(rejection) = eviction::check_pressure(&self.kubelet.evictions, pod) {
            return Some(rejection);
        }
        let node = self.kubelet.node.list().into_iter().next();
        self.kubelet.lock_admission().admit_pod(pod, node.as_deref()).err()
    }

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

    /// Whether an earlier static pod of the same name has not ended yet.
    fn is_static_name_taken(&self, pod: &Pod) -> bool {
        let same = |handle: &PodWorkerHandle| {
            let other = handle.updates.borrow().pod().clone();
            is_static_pod(&other)
                && context::pod_name(&other) == context::pod_name(pod)
                && context::pod_namespace(&other) == context::pod_namespace(pod)
        };
        is_static_pod(pod) && self.handles.values().any(same)
    }

    /// Starts static pods whose predecessors have ended.
    fn start_waiting_static_pods(&mut self) {
        for pod in std::mem::take(&mut self.waiting_static_pods) {
            let current = self.kubelet.pods.get(context::pod_namespace(&pod), context::pod_name(&pod));
            if current.is_some_and(|current| context::pod_uid(&current) == context::pod_uid(&pod)) {
                self.update_pod(PodUpdate::Sync(pod.clone()), &pod);
            }
        }
    }

    fn update_pod(&mut self, update: PodUpdate, pod: &Pod) {
        if pod_status::is_terminal(pod) {
            self.kubelet.lock_admission().release_pod(context::pod_uid(pod));
        }
        if let Some(handle) = self.handles.get(context::pod_uid(pod)) {
            handle.updates.send_replace(update);
            return;
        }
        let uid = context::pod_uid(pod).to_string();
        if let (PodUpdate::Sync(pod), true) = (&update, self.is_static_name_taken(pod)) {
            self.waiting_static_pods.push(pod.clone());
            return;
        }
        self.kubelet.pods.set_active(&uid, true);
        let (updates, wake) = (watch::Sender::new(update), Arc::new(Notify::new()));
        let handle = PodWorkerHandle { rejection: self.admit_pod(pod), updates, wake, panics: 0 };
        self.spawn_worker(uid.clone(), &handle);
        self.handles.insert(uid, handle);
        self.has_pods.send_replace(true);
    }

    /// Starts a worker; one that panicked before starts after a back-off.
    fn spawn_worker(&mut self, uid: String, handle: &PodWorkerHandle) {
        let (kubelet, updates, wake) = (self.kubelet.clone(), handle.updates.subscribe(), handle.wake.clone());
        let pod = context::format_pod(updates.borrow().pod());
        let (delay, run_worker, rejection) = (handle.restart_delay(), self.run_worker, handle.rejection.clone());
        self.tasks.spawn(async move {
            tokio::time::sleep(delay).await;
            let result = contain_panic("kubelet", pod, || run_worker(kubelet, updates, wake, rejection)).await;
            (uid, result)
        });
    }

    fn handle_runtime_event(&self, change: cri::RuntimeEvent) {
        // An error means that no log is followed.
        let _ = self.kubelet.changes.send(change.clone());
        match change {
            cri::RuntimeEvent::PodChanged(uid) => self.wake_worker(&uid),
            cri::RuntimeEvent::Resync => self.handles.values().for_each(|handle| handle.wake.notify_one()),
        }
    }

    fn wake_worker(&self, uid: &str) {
        self.handles.get(uid).into_iter().for_each(|handle| handle.wake.notify_one());
    }

    /// Forgets a finished worker and restarts one that panicked.
    fn handle_worker_exit(&mut self, ended: Result<WorkerExit, tokio::task::JoinError>) {
        match ended {
            Ok((uid, Ok(()))) => {
                self.handles.remove(&uid);
                self.kubelet.lock_admission().release_pod(&uid);
                self.kubelet.objects.release_pod(&uid);
                self.kubelet.evictions.release_pod(&uid);
                self.kubelet.probe_counts.release_pod(&uid);
                self.kubelet.pods.set_active(&uid, false);
                self.start_waiting_static_pods();
            }
            Ok((uid, Err(PanicError))) => {
                if let Some(mut handle) = self.handles.remove(&uid) {
                    handle.panics += 1;
                    self.spawn_worker(uid.clone(), &handle);
                    self.handles.insert(uid, handle);
                }
            }
            Err(error) => tracing::error!(%error, "kubelet: pod worker failed"),
        }
        self.has_pods.send_replace(!self.handles.is_empty());
    }
}

/// Removes orphaned pods now and at an interval: a busy mount is retried.
async fn run_orphan_cleanup(kubelet: Arc<KubeletContext>) {
    loop {
        cleanup_orphaned_pods(kubelet.clone()).await;
        tokio::time::sleep(ORPHAN_CLEANUP_INTERVAL).await;
    }
}

/// Whether a uid is safe as a part of paths.
fn is_safe_uid(uid: &str) -> bool {
    !uid.is_empty() && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Removes runtime objects and files of pods that are unknown to the API server.
async fn cleanup_orphaned_pods(kubelet: Arc<KubeletContext>) {
    // Files first, informer second: a pod that arrives in between is not an orphan. A sandbox without files belongs to
    // another kubelet that shares the runtime.
    let (root_dir, logs_dir) = (kubelet.root_dir.clone(), kubelet.pod_logs_dir.clone());
    let found: HashSet<String> = run_blocking(move || {
        let pods = volumes::list_pods_on_disk(&root_dir).into_iter();
        pods.chain(pod_termination::list_pods_with_logs(&logs_dir)).filter(|uid| is_safe_uid(uid)).collect()
    })
    .await;
    // A static pod that has not been read yet is no orphan.
    kubelet.pods.wait_for_all_sources().await;
    let known: HashSet<String> = kubelet.pods.list().iter().map(|pod| context::pod_uid(pod).to_string()).collect();
    // A pod that is gone from the API may still be ended by its worker.
    let orphans = found.difference(&known).filter(|uid| !kubelet.pods.is_active(uid));
    let orphans = futures::stream::iter(orphans);
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
        if pod_termination::remove_pod_files(&kubelet, &uid, &groups) {
            pod_termination::remove_pod_logs(&kubelet, &uid);
        }
    });
    if let Err(error) = cleaned.await {
        tracing::error!(%error, "kubelet: orphan cleanup panicked");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;

    static RUNS: AtomicUsize = AtomicUsize::new(0);

    /// Panics twice, then finishes once the pod is deleted.
    fn run_flaky_worker(
        _: Arc<KubeletContext>,
        mut updates: watch::Receiver<PodUpdate>,
        _: Arc<Notify>,
        _: Option<AdmissionRejection>,
    ) -> BoxFuture<'static, ()> {
        async move {
            assert!(RUNS.fetch_add(1, Ordering::SeqCst) >= 2, "a bug");
            let deleted = updates.wait_for(|update| matches!(update, PodUpdate::Deleted(_))).await;
            deleted.map(drop).unwrap();
        }
        .boxed()
    }

    #[tokio::test(start_paused = true)]
    async fn panicking_worker_is_restarted_with_backoff_and_sees_later_updates() {
        let mut workers = PodWorkers::new(Arc::new(KubeletContext::unreachable()), run_flaky_worker);
        let pod: Arc<Pod> = Arc::new(
            serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "ns", "uid": "1"}})).unwrap(),
        );
        let (started, before) = (tokio::time::Instant::now(), client::panics::panic_count("kubelet"));
        workers.handle_pod_event(ResourceEvent::Added(pod.clone()));
        for _ in 0..2 {
            let exit = workers.tasks.join_next().await.unwrap();
            workers.handle_worker_exit(exit);
            assert_eq!(workers.handles.len(), 1);
        }
        workers.handle_pod_event(ResourceEvent::Deleted(pod));
        let exit = workers.tasks.join_next().await.unwrap();
        workers.handle_worker_exit(exit);
        assert!(workers.handles.is_empty());
        assert_eq!(started.elapsed().as_secs(), 1 + 2);
        assert!(client::panics::panic_count("kubelet") >= before + 2);
    }
}
