//! A gate that who creates an instance goes through: once it is closed, nobody comes in, and who closes it can wait until
//! everybody is out.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tokio::sync::Notify;

/// A gate.
#[derive(Debug, Default)]
pub struct Gate {
    closed: AtomicBool,
    inside: AtomicUsize,
    empty: Notify,
}

/// Somebody is inside, until it is dropped.
#[derive(Debug)]
pub struct Entered(Arc<Gate>);

impl Gate {
    /// `None` if it is closed.
    pub fn enter(self: Arc<Self>) -> Option<Entered> {
        // Counted before looking, so that who closes either sees us or is seen.
        self.inside.fetch_add(1, Ordering::SeqCst);
        let entered = Entered(self);
        (!entered.0.closed.load(Ordering::SeqCst)).then_some(entered)
    }

    /// Lets nobody in any more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Waits until nobody is inside.
    pub async fn drained(&self) {
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

impl Drop for Entered {
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
    async fn who_closes_waits_for_who_is_inside() {
        let gate = Arc::new(Gate::default());
        let inside = gate.clone().enter().unwrap();
        gate.close();
        assert!(gate.clone().enter().is_none());
        let waiting = tokio::spawn({
            let gate = gate.clone();
            async move { gate.drained().await }
        });
        assert!(!waiting.is_finished());
        drop(inside);
        waiting.await.unwrap();
    }
}
