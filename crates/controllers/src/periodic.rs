//! Controllers that examine their caches at intervals.

use std::time::Duration;

use crate::ControllerContext;

/// Work that is repeated.
pub(crate) trait PeriodicTask: Sync {
    /// Time between the end of a run and the start of the next.
    const PERIOD: Duration;

    /// Completes when the caches are ready.
    fn wait_until_ready(&self) -> impl Future<Output = ()> + Send;

    /// Does the work once.
    fn run_once(&self) -> impl Future<Output = ()> + Send;
}

/// Repeats a task until shutdown.
pub(crate) async fn run_periodically<T: PeriodicTask>(context: &ControllerContext, task: T) {
    let run = async {
        task.wait_until_ready().await;
        loop {
            task.run_once().await;
            tokio::time::sleep(T::PERIOD).await;
        }
    };
    context.shutdown.run_until_cancelled(run).await;
}
