//! The pods of this node: gives every pod its worker, and tells workers of changes in the API and in the runtime.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use client::Change;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use runtime::cri;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    agent::{self, Agent},
    resources::{self, Qos},
    terminate,
    truth::labels,
    volumes,
    worker::{Desired, Worker},
};

/// How many pods that are gone are removed at a time.
const PARALLEL_ORPHANS: usize = 8;

/// How a worker is spoken to.
struct Handle {
    desired: watch::Sender<Desired>,
    wake: Arc<Notify>,
}

/// The workers.
struct Pods {
    agent: Arc<Agent>,
    handles: HashMap<String, Handle>,
    tasks: JoinSet<String>,
    /// Whether there are pods whose containers must be watched.
    any: watch::Sender<bool>,
}

/// Runs until `shutdown`.
pub async fn run(agent: Arc<Agent>, shutdown: CancellationToken) {
    let (sender, mut api) = mpsc::unbounded_channel();
    agent.pods.on_change(move |change| {
        // The receiver is gone only when this function has returned.
        let _ = sender.send(change.clone());
    });
    let (any, receiver) = watch::channel(false);
    let mut runtime = agent.cri.changes(receiver);
    let mut orphans = JoinSet::new();
    orphans.spawn(remove_orphans(agent.clone()));
    let mut pods = Pods { agent, handles: HashMap::new(), tasks: JoinSet::new(), any };
    loop {
        tokio::select! {
            Some(change) = api.recv() => pods.change(change),
            Some(change) = runtime.next() => pods.wake(change),
            Some(ended) = pods.tasks.join_next() => pods.ended(ended),
            Some(_) = orphans.join_next() => {}
            () = shutdown.cancelled() => return,
        }
    }
}

impl Pods {
    fn change(&mut self, change: Change<Pod>) {
        match change {
            Change::Added(pod) => self.set(Desired::Pod(pod.clone()), &pod),
            Change::Updated { old, new } => {
                if agent::uid(&old) != agent::uid(&new) {
                    self.set(Desired::Gone(old.clone()), &old);
                }
                self.set(Desired::Pod(new.clone()), &new);
            }
            Change::Deleted(pod) => self.set(Desired::Gone(pod.clone()), &pod),
        }
    }

    fn set(&mut self, desired: Desired, pod: &Pod) {
        if let Some(handle) = self.handles.get(agent::uid(pod)) {
            handle.desired.send_replace(desired);
            return;
        }
        let uid = agent::uid(pod).to_string();
        let (sender, receiver) = watch::channel(desired);
        let wake = Arc::new(Notify::new());
        let worker = Worker::new(self.agent.clone(), receiver, wake.clone());
        let key = uid.clone();
        self.tasks.spawn(async move {
            worker.run().await;
            key
        });
        self.handles.insert(uid, Handle { desired: sender, wake });
        self.any.send_replace(true);
    }

    fn wake(&self, change: cri::Change) {
        // Nobody may be following a log.
        let _ = self.agent.changes.send(change.clone());
        match change {
            cri::Change::Pod(uid) => self.handles.get(&uid).into_iter().for_each(|handle| handle.wake.notify_one()),
            cri::Change::All => self.handles.values().for_each(|handle| handle.wake.notify_one()),
        }
    }

    fn ended(&mut self, ended: Result<String, tokio::task::JoinError>) {
        match ended {
            Ok(uid) => {
                self.handles.remove(&uid);
            }
            // Its handle stays: a pod that made its worker panic would do so again.
            Err(error) => tracing::error!(%error, "a pod's worker broke off"),
        }
        self.any.send_replace(!self.handles.is_empty());
    }
}

/// Removes what the runtime and the disk have of pods that the API server does not know.
async fn remove_orphans(agent: Arc<Agent>) {
    // First what is there, then what is known: a pod that arrives in between is no orphan.
    let sandboxes = match agent.cri.list_sandboxes(HashMap::new()).await {
        Ok(sandboxes) => sandboxes,
        Err(error) => return tracing::warn!(%error, "orphaned sandboxes cannot be looked for"),
    };
    let running = sandboxes.iter().filter_map(|sandbox| sandbox.labels.get(labels::POD_UID).cloned());
    let there: HashSet<String> = running.chain(volumes::pods_on_disk(&agent.root_dir)).collect();
    agent.pods.synced().await;
    let known: HashSet<String> = agent.pods.list().iter().map(|pod| agent::uid(pod).to_string()).collect();
    let orphans = futures::stream::iter(there.difference(&known));
    orphans.for_each_concurrent(PARALLEL_ORPHANS, |uid| remove_orphan(agent.clone(), uid.clone())).await;
}

async fn remove_orphan(agent: Arc<Agent>, uid: String) {
    tracing::info!(uid, "removing what is left of a pod that is gone");
    if let Err(error) = terminate::remove_orphan(&agent, &uid).await {
        return tracing::warn!(uid, %error, "an orphaned sandbox cannot be removed");
    }
    let cleaned = tokio::task::spawn_blocking(move || {
        let classes = [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort];
        let groups = classes.map(|qos| resources::cgroup(&agent.cgroup_root, &uid, qos));
        terminate::remove_from_node(&agent, &uid, &groups);
        terminate::remove_logs(&agent, &uid);
    });
    if let Err(error) = cleaned.await {
        tracing::error!(%error, "cleaning up after a pod broke off");
    }
}
