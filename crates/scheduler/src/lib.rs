//! The scheduler: assigns pending pods to nodes through the binding subresource.
//!
//! Pods wait in the [`scheduling_queue`]; nodes and their pods are in the [`cache`]; the [`scheduling_cycle`] filters
//! and scores nodes with the [`plugins`]. Binding runs in the background; until it is observed, the cache assumes it.

mod cache;
mod event_handlers;
mod plugins;
mod resources;
mod scheduling_cycle;
mod scheduling_queue;

use std::sync::{Arc, Mutex, MutexGuard};

use client::{EventRecorder, SharedInformer, SharedInformerFactory};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use tokio_util::sync::CancellationToken;

use self::{cache::SchedulerCache, scheduling_queue::SchedulingQueue};

/// Value of `spec.schedulerName` of the pods scheduled here; an empty name counts too.
const DEFAULT_SCHEDULER_NAME: &str = "default-scheduler";

struct Scheduler {
    client: Client,
    nodes: SharedInformer<Node>,
    pods: SharedInformer<Pod>,
    cache: Mutex<SchedulerCache>,
    queue: SchedulingQueue,
    recorder: EventRecorder,
    /// Cancelled when this scheduler stops; shared informers outlive it.
    shutdown: CancellationToken,
}

/// Schedules pods whose `schedulerName` is `default-scheduler` until `shutdown`.
///
/// The future is boxed, so that this crate and not its caller compiles the scheduler.
pub fn run_scheduler(
    client: Client,
    informers: SharedInformerFactory,
    shutdown: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(schedule_until(client, informers, shutdown))
}

async fn schedule_until(client: Client, informers: SharedInformerFactory, shutdown: CancellationToken) {
    let scheduler = Arc::new(Scheduler {
        nodes: informers.informer_for(),
        pods: informers.informer_for(),
        cache: Mutex::default(),
        queue: SchedulingQueue::default(),
        recorder: EventRecorder::new(client.clone(), DEFAULT_SCHEDULER_NAME, None),
        shutdown: shutdown.clone(),
        client,
    });
    let work = async {
        scheduler.add_event_handlers();
        scheduler.nodes.wait_for_cache_sync().await;
        scheduler.pods.wait_for_cache_sync().await;
        loop {
            let pod = scheduler.queue.pop().await;
            scheduler.attempt_scheduling(pod, Scheduler::schedule_one);
        }
    };
    shutdown.run_until_cancelled(work).await;
}

impl Scheduler {
    fn lock_cache(&self) -> MutexGuard<'_, SchedulerCache> {
        self.cache.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
