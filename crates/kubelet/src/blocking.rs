//! Keeps blocking work off the async threads, and the kubelet off the other components' threads.

use std::{io, time::Duration};

use tokio::{runtime::Builder, sync::oneshot};

/// Worker threads of the kubelet's runtime: pod workers mostly wait for the container runtime and the API server.
const WORKER_THREADS: usize = 2;
/// Time that blocking work may take after the kubelet has stopped.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs blocking file, mount or cgroup work on the blocking thread pool. A panic of the work continues in the caller.
pub async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only a runtime that shuts down cancels blocking work; the caller is being dropped as well.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Runs the future that `build` returns on a multi-threaded runtime of its own, in a thread named `kubelet`.
pub async fn run_on_own_runtime<F, T>(build: impl FnOnce() -> F + Send + 'static) -> io::Result<T>
where
    F: Future<Output = T>,
    T: Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    let runtime = Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .thread_name("kubelet-worker")
        .enable_all()
        .build()?;
    std::thread::Builder::new().name("kubelet".into()).spawn(move || {
        let output = runtime.block_on(build());
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        // The receiver is gone if the caller was dropped.
        let _ = sender.send(output);
    })?;
    receiver.await.map_err(|_| io::Error::other("the kubelet's thread panicked"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread_name() -> String {
        std::thread::current().name().unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn own_runtime_uses_its_own_threads() {
        let outer = thread_name();
        let names = run_on_own_runtime(|| async {
            let worker = tokio::spawn(async { thread_name() }).await.unwrap();
            let blocking = run_blocking(thread_name).await;
            [thread_name(), worker, blocking]
        });
        let [main, worker, blocking] = names.await.unwrap();
        assert_eq!(
            (main.as_str(), worker.as_str(), blocking.as_str()),
            ("kubelet", "kubelet-worker", "kubelet-worker")
        );
        assert_ne!(outer, main);
    }

    #[tokio::test]
    async fn blocking_work_leaves_the_async_thread_free() {
        let (sender, receiver) = std::sync::mpsc::channel();
        // The work ends only when the async thread goes on.
        let work = tokio::spawn(run_blocking(move || receiver.recv().unwrap()));
        tokio::task::yield_now().await;
        sender.send(7).unwrap();
        assert_eq!(work.await.unwrap(), 7);
    }
}
