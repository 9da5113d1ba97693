//! The scheduler: gives every pod without a node the best node that fits, and binds it there through the API.
//!
//! Pods wait in the [`queue`], nodes and what runs on them are in the [`cache`], the [`cycle`] filters and scores nodes
//! with the [`plugins`]. Binding happens in the background; until it shows, the cache assumes it.

mod cache;
mod cycle;
mod plugins;
mod queue;
mod resources;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard};

use client::{Informer, Informers, Recorder};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use tokio_util::sync::CancellationToken;

use self::{cache::Cache, queue::Queue};

/// Pods that name this scheduler, or none, are scheduled here.
const NAME: &str = "default-scheduler";

struct Scheduler {
    client: Client,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    cache: Mutex<Cache>,
    queue: Queue,
    recorder: Recorder,
}

/// Schedules pods whose `schedulerName` is `default-scheduler` until `shutdown`.
pub async fn run(client: Client, informers: Informers, shutdown: CancellationToken) {
    let scheduler = Arc::new(Scheduler {
        nodes: informers.of(),
        pods: informers.of(),
        cache: Mutex::default(),
        queue: Queue::default(),
        recorder: Recorder::new(client.clone(), NAME, None),
        client,
    });
    let work = async {
        scheduler.watch();
        scheduler.nodes.synced().await;
        scheduler.pods.synced().await;
        loop {
            let waiting = scheduler.queue.next().await;
            scheduler.schedule(waiting).await;
        }
    };
    shutdown.run_until_cancelled(work).await;
}

impl Scheduler {
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
