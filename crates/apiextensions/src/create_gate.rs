//! Rejects creates while a CRD terminates, and lets its finalizer wait for in-flight creates.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tokio::sync::Notify;

/// Counts in-flight creates of one CRD's instances.
#[derive(Debug, Default)]
pub struct CreateGate {
    closed: AtomicBool,
    inside: AtomicUsize,
    empty: Notify,
}

/// An in-flight create; ends when dropped.
#[derive(Debug)]
pub struct InFlightCreate(Arc<CreateGate>);

impl CreateGate {
    /// Registers a create; `None` if the gate is closed.
    pub fn enter(self: Arc<Self>) -> Option<InFlightCreate> {
        // Counted before the check, so that either the closer sees this create or the create sees the closed gate.
        self.inside.fetch_add(1, Ordering::SeqCst);
        let entered = InFlightCreate(self);
        (!entered.0.closed.load(Ordering::SeqCst)).then_some(entered)
    }

    /// Rejects all further creates.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Waits until no create is in flight.
    pub async fn wait_until_drained(&self) {
        loop {
            let notified = self.empty.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if self.inside.load(Ordering::SeqCst) == 0 {
                return;
            }
            notified.await;
        }
    }
}

impl Drop for InFlightCreate {
    fn drop(&mut self) {
        if self.0.inside.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.empty.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn closed_gate_waits_for_in_flight_creates() {
        let gate = Arc::new(CreateGate::default());
        let inside = gate.clone().enter().unwrap();
        gate.close();
        assert!(gate.clone().enter().is_none());
        let waiting = tokio::spawn({
            let gate = gate.clone();
            async move { gate.wait_until_drained().await }
        });
        assert!(!waiting.is_finished());
        drop(inside);
        waiting.await.unwrap();
    }
}
