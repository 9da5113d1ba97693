//! The skeleton that every controller runs on: informer events → keys → work queue → workers → `sync` → requeue.
//!
//! A controller states what it watches, how an event maps to keys, and how to sync one key. [`run_controller`] waits for
//! the caches, runs the workers, contains panics, requeues failures with back-off and traces every sync.

use std::{fmt, hash::Hash, sync::Arc};

use client::{BackoffBounds, RequeueAction, ResourceEvent, SharedInformer, WorkQueue, informer::CachedObject};
use futures::future::{BoxFuture, FutureExt, join_all};
use tokio_util::sync::CancellationToken;

use crate::ControllerContext;

/// A level-triggered controller.
pub(crate) trait Controller: Send + Sync + Sized + 'static {
    /// The key of its work queue.
    type Key: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static;
    /// The error of a failed sync.
    type Error: fmt::Display + Send + 'static;
    /// Number of concurrent syncs, unless the options have another.
    const WORKERS: usize;
    /// Back-off of failed syncs.
    const BACKOFF: BackoffBounds = BackoffBounds::DEFAULT;

    /// Adds the indexes and event handlers of the watched informers.
    fn watch(&self, watches: &mut ControllerWatches<Self>);

    /// Reconciles one key with the caches and the server.
    fn sync(&self, key: &Self::Key) -> impl Future<Output = Result<RequeueAction, Self::Error>> + Send;

    /// Completes after initialization beyond the caches of the watched informers.
    fn wait_until_ready(self: &Arc<Self>) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Runs beside the workers until it is cancelled.
    fn run_in_background(self: &Arc<Self>) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Stops what the controller started, after the workers have ended.
    fn stop(&self) {}
}

/// Collects the informers that a controller watches.
pub(crate) struct ControllerWatches<C: Controller> {
    controller: Arc<C>,
    queue: WorkQueue<C::Key>,
    shutdown: CancellationToken,
    syncs: Vec<BoxFuture<'static, ()>>,
}

impl<C: Controller> ControllerWatches<C> {
    /// Calls `handler` with every event of `informer`; it adds the affected keys to the queue.
    pub(crate) fn add<K: CachedObject>(
        &mut self,
        informer: &SharedInformer<K>,
        handler: impl Fn(&C, &ResourceEvent<K>, &WorkQueue<C::Key>) + Send + Sync + 'static,
    ) {
        let (controller, queue, shutdown) = (self.controller.clone(), self.queue.clone(), self.shutdown.clone());
        informer.add_event_handler(move |event| {
            // Informers are shared and outlive a controller that lost its leadership.
            if !shutdown.is_cancelled() {
                handler(&controller, event, &queue);
            }
        });
        self.require_cache(informer);
    }

    /// Waits for the cache of an informer that only `sync` reads.
    pub(crate) fn require_cache<K: CachedObject>(&mut self, informer: &SharedInformer<K>) {
        let informer = informer.clone();
        self.syncs.push(async move { informer.wait_for_cache_sync().await }.boxed());
    }
}

/// Builds a controller with its queue and runs it until shutdown.
pub(crate) async fn run_controller<C: Controller>(
    context: &ControllerContext,
    build: impl FnOnce(WorkQueue<C::Key>) -> C,
) {
    let workers = context.options.concurrent_syncs.get(context.name).copied().unwrap_or(C::WORKERS);
    let queue = WorkQueue::with_backoff(context.name, C::BACKOFF);
    let controller = Arc::new(build(queue.clone()));
    let mut watches = ControllerWatches {
        controller: controller.clone(),
        queue: queue.clone(),
        shutdown: context.shutdown.clone(),
        syncs: Vec::new(),
    };
    controller.watch(&mut watches);
    let ready = async {
        join_all(watches.syncs).await;
        controller.wait_until_ready().await;
    };
    if context.shutdown.run_until_cancelled(ready).await.is_some() {
        let worker = controller.clone();
        let sync = move |key: C::Key| {
            let controller = worker.clone();
            async move { controller.sync(&key).await }
        };
        let background = context.shutdown.run_until_cancelled(controller.run_in_background());
        tokio::join!(background, queue.run_workers(workers, context.shutdown.clone(), sync));
    }
    controller.stop();
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use client::SharedInformerFactory;
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{ResourceExt, client::Body};
    use serde_json::json;

    use super::*;
    use crate::ControllerOptions;

    /// A client whose server lists one ConfigMap `web` and never sends a watch event.
    fn client_with_one_config_map() -> kube::Client {
        client::transport::in_process_client(
            tower::service_fn(|request: Request<Body>| async move {
                if request.uri().query().unwrap_or_default().contains("watch=true") {
                    let item = json!({"type": "ADDED", "object": {"apiVersion": "v1", "kind": "ConfigMap",
                        "metadata": {"name": "web", "namespace": "ns", "uid": "1", "resourceVersion": "1"}}});
                    let bookmark = json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "ConfigMap",
                        "metadata": {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}}});
                    let events = format!("{item}\n{bookmark}\n");
                    return Ok::<_, tower::BoxError>(Response::new(Body::from(events.into_bytes())));
                }
                Ok(Response::new(Body::from(b"{}".to_vec())))
            }),
            "test",
        )
    }

    /// Fails, panics and then succeeds; a successful sync ends the controller.
    struct Flaky {
        config_maps: SharedInformer<ConfigMap>,
        calls: Arc<AtomicUsize>,
        shutdown: CancellationToken,
    }

    impl Controller for Flaky {
        type Key = String;
        type Error = &'static str;
        const WORKERS: usize = 2;

        fn watch(&self, watches: &mut ControllerWatches<Self>) {
            watches.add(&self.config_maps, |_, event, queue| queue.add(event.object().name_any()));
        }

        async fn sync(&self, key: &String) -> Result<RequeueAction, &'static str> {
            assert_eq!(key, "web");
            match self.calls.fetch_add(1, Ordering::SeqCst) {
                0 => Err("conflict"),
                1 => panic!("a bug"),
                _ => {
                    self.shutdown.cancel();
                    Ok(RequeueAction::AwaitChange)
                }
            }
        }
    }

    #[tokio::test]
    async fn events_are_synced_and_failures_and_panics_are_retried() {
        let (calls, shutdown, client) = (Arc::default(), CancellationToken::new(), client_with_one_config_map());
        let informers = SharedInformerFactory::new(client.clone(), shutdown.clone());
        let context = ControllerContext {
            name: "flaky-controller",
            client,
            informers: informers.clone(),
            options: Arc::new(ControllerOptions::default()),
            shutdown: shutdown.clone(),
        };
        let flaky = Flaky { config_maps: informers.informer_for(), calls: Arc::clone(&calls), shutdown };
        run_controller(&context, |_| flaky).await;
        assert_eq!(calls.load(Ordering::SeqCst), 3);
        assert_eq!(client::panics::panic_count("flaky-controller"), 1);
    }
}
