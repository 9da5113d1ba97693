//! The garbage collector: objects whose owners are all gone go too, and deletions that wait for dependents end.
//!
//! It follows the metadata of every kind of object in a graph. The graph only says what to look at: before anything is
//! deleted the server is asked about the object and about owners that the graph does not know.

mod graph;
mod item;
mod monitor;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use client::Queue;
use kube::Client;
use tokio::{
    sync::{Notify, watch},
    task::AbortHandle,
};

use self::graph::{Graph, Uid};
use crate::{
    Context,
    discovery::{self, Kind},
};

const WORKERS: usize = 10;
/// How long the first lists may take before work starts without them; asking the server makes that safe.
const FIRST_LISTS: Duration = Duration::from_secs(30);
/// A new kind is served a moment after its definition is seen.
const NEW_KINDS: Duration = Duration::from_secs(1);

struct Collector {
    client: Client,
    graph: Mutex<Graph>,
    /// Every kind ever watched, at the index that its nodes have.
    kinds: Mutex<Vec<Kind>>,
    queue: Queue<Uid>,
    rediscover: Notify,
}

/// The watches under way, by kind.
type Monitors = HashMap<usize, (AbortHandle, watch::Receiver<bool>)>;

/// Runs the loop until shutdown.
pub(crate) async fn run(context: Context) {
    let collector = Arc::new(Collector {
        client: context.client,
        graph: Mutex::default(),
        kinds: Mutex::default(),
        queue: Queue::new(),
        rediscover: Notify::new(),
    });
    let mut monitors = Monitors::new();
    let ready = async {
        collector.discover(&mut monitors).await;
        first_lists(&monitors).await;
    };
    if context.shutdown.run_until_cancelled(ready).await.is_none() {
        return;
    }
    let worker = collector.clone();
    let sync = move |uid: Uid| {
        let collector = worker.clone();
        async move { collector.sync(&uid).await }
    };
    let watching = context.shutdown.run_until_cancelled(collector.watch_kinds(&mut monitors));
    tokio::join!(watching, collector.queue.run(WORKERS, context.shutdown.clone(), sync));
    monitors.values().for_each(|(task, _)| task.abort());
}

/// Returns once every kind was listed, or the time for that is over.
async fn first_lists(monitors: &Monitors) {
    let lists = monitors.values().map(|(_, synced)| {
        let mut synced = synced.clone();
        async move { synced.wait_for(|synced| *synced).await.map(drop) }
    });
    if tokio::time::timeout(FIRST_LISTS, futures::future::join_all(lists)).await.is_err() {
        tracing::warn!("some kinds of objects could not be listed in time; collecting without them");
    }
}

impl Collector {
    /// Looks again which kinds there are whenever their definitions change.
    async fn watch_kinds(self: &Arc<Self>, monitors: &mut Monitors) {
        loop {
            self.rediscover.notified().await;
            tokio::time::sleep(NEW_KINDS).await;
            self.discover(monitors).await;
        }
    }

    /// Watches every kind that the server has.
    async fn discover(self: &Arc<Self>, monitors: &mut Monitors) {
        let kinds = loop {
            match discovery::kinds(&self.client).await {
                Ok(kinds) => break kinds,
                Err(error) => tracing::debug!(%error, "discovery failed, trying again"),
            }
            tokio::time::sleep(NEW_KINDS).await;
        };
        self.update_monitors(monitors, kinds.into_iter().filter(monitor::is_watched).collect());
    }

    fn update_monitors(self: &Arc<Self>, monitors: &mut Monitors, kinds: Vec<Kind>) {
        let wanted: Vec<usize> = kinds.iter().map(|kind| self.index_of(kind)).collect();
        monitors.retain(|index, (task, _)| {
            let keep = wanted.contains(index);
            if !keep {
                task.abort();
                self.wake(self.graph().retain(*index, &Default::default()));
            }
            keep
        });
        for (index, kind) in wanted.into_iter().zip(kinds) {
            monitors.entry(index).or_insert_with(|| {
                let (synced, is_synced) = watch::channel(false);
                let task = tokio::spawn(monitor::follow(self.clone(), index, kind, synced));
                (task.abort_handle(), is_synced)
            });
        }
    }

    fn index_of(&self, kind: &Kind) -> usize {
        let mut kinds = self.kinds();
        let same =
            |known: &Kind| known.resource.group == kind.resource.group && known.resource.kind == kind.resource.kind;
        kinds.iter().position(same).unwrap_or_else(|| {
            kinds.push(kind.clone());
            kinds.len() - 1
        })
    }

    /// Definitions of kinds are objects too.
    fn kinds_may_have_changed(&self, kind: &Kind) {
        if matches!(kind.resource.kind.as_str(), "CustomResourceDefinition" | "APIService") {
            self.rediscover.notify_one();
        }
    }

    fn wake(&self, uids: Vec<Uid>) {
        uids.into_iter().for_each(|uid| self.queue.add(uid));
    }

    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn kinds(&self) -> MutexGuard<'_, Vec<Kind>> {
        self.kinds.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
