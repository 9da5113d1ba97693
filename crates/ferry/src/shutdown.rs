//! Shutdown of the running cluster: on a signal, on a panic, or when a component ends.
//!
//! Components end in the reverse order of their start, each before the one that it needs, within a common deadline.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::anyhow;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::JoinHandle,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// All components together end within this time; what has not ended then is abandoned.
const DEADLINE: Duration = Duration::from_secs(5);

/// The running components, in the order of their start.
pub struct ComponentSet {
    running: Vec<RunningComponent>,
    ended: mpsc::UnboundedReceiver<anyhow::Error>,
    report: mpsc::UnboundedSender<anyhow::Error>,
    stop: CancellationToken,
    panicked: Arc<AtomicBool>,
    deadline: Duration,
}

struct RunningComponent {
    name: &'static str,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl ComponentSet {
    /// No components yet. From now on signals and panics end the process in order.
    pub fn new() -> anyhow::Result<Self> {
        Self::with_deadline(DEADLINE)
    }

    /// As [`Self::new`], for components that together may take longer to end.
    pub fn with_deadline(deadline: Duration) -> anyhow::Result<Self> {
        let (report, ended) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let panicked = Arc::new(AtomicBool::new(false));
        stop_at_signal(SignalKind::terminate(), stop.clone())?;
        stop_at_signal(SignalKind::interrupt(), stop.clone())?;
        stop_at_panic(stop.clone(), panicked.clone());
        Ok(Self { running: Vec::new(), ended, report, stop, panicked, deadline })
    }

    /// Starts a component. It gets the token that asks it to end; ending earlier, or with an error, ends the process.
    pub fn start<F>(&mut self, name: &'static str, run: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let shutdown = CancellationToken::new();
        let (work, asked, report) = (run(shutdown.clone()), shutdown.clone(), self.report.clone());
        let task = tokio::spawn(async move {
            let error = match work.await {
                Ok(()) if asked.is_cancelled() => return,
                Ok(()) => anyhow!("{name} ended by itself"),
                Err(error) => error.context(format!("{name} failed")),
            };
            tracing::error!(error = format!("{error:#}"), "a component ended");
            // The receiver is gone once the shutdown has begun.
            let _ = report.send(error);
        });
        self.running.push(RunningComponent { name, shutdown, task });
    }

    /// Waits until the process must end: `Ok` when it was asked to.
    pub async fn wait_for_shutdown(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            () = self.stop.cancelled() => self.panic_or_ok(),
            error = self.ended.recv() => Err(error.unwrap_or_else(|| anyhow!("nothing runs"))),
        }
    }

    fn panic_or_ok(&self) -> anyhow::Result<()> {
        match self.panicked.load(Ordering::SeqCst) {
            true => Err(anyhow!("a task panicked; the log says where")),
            false => Ok(()),
        }
    }

    /// Ends all components in order.
    pub async fn stop_all(self) {
        let deadline = Instant::now() + self.deadline;
        for component in self.running.into_iter().rev() {
            component.shutdown.cancel();
            match tokio::time::timeout_at(deadline, component.task).await {
                Ok(_) => tracing::info!(component = component.name, "ended"),
                Err(_) => tracing::warn!(component = component.name, "did not end in time"),
            }
        }
    }
}

fn stop_at_signal(kind: SignalKind, stop: CancellationToken) -> anyhow::Result<()> {
    let mut signals = signal(kind)?;
    tokio::spawn(async move {
        signals.recv().await;
        tracing::info!(signal = kind.as_raw_value(), "asked to end");
        stop.cancel();
    });
    Ok(())
}

/// A task that panicked may have held anything: the process ends, and the next start begins from what is durable. Panics
/// that a component contains, such as those of one sync, are left to it.
fn stop_at_panic(stop: CancellationToken, panicked: Arc<AtomicBool>) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tracing::error!("{panic}");
        before(panic);
        if client::panics::is_contained() {
            return;
        }
        panicked.store(true, Ordering::SeqCst);
        stop.cancel();
    }));
}

#[cfg(test)]
mod tests {
    use client::panics::contain_panic_sync;

    use super::*;

    #[tokio::test]
    async fn contained_panic_does_not_stop_the_process() {
        let mut components = ComponentSet::new().unwrap();
        assert!(contain_panic_sync("shutdown-test", "key", || panic!("a bug")).is_err());
        assert!(tokio::time::timeout(Duration::from_millis(50), components.wait_for_shutdown()).await.is_err());
        assert!(std::thread::spawn(|| panic!("a bug")).join().is_err());
        assert!(components.wait_for_shutdown().await.is_err());
    }
}
