//! Pods between scheduling and binding that plug-ins do work for: preemption can give up the work instead of deleting the pod.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

/// The pods by uid.
#[derive(Default)]
pub struct PreBindPods {
    pods: Mutex<HashMap<Arc<str>, CancellationToken>>,
}

impl PreBindPods {
    /// Runs the work for a pod; `None` if it was given up.
    ///
    /// Once this has returned the work cannot be given up any more.
    pub async fn run<T>(&self, uid: &Arc<str>, work: impl Future<Output = T>) -> Option<T> {
        let token = CancellationToken::new();
        self.lock().insert(uid.clone(), token.clone());
        let result = token.run_until_cancelled(work).await;
        self.lock().remove(uid);
        result.filter(|_| !token.is_cancelled())
    }

    /// Gives up the work for a pod; returns whether there was any.
    pub fn cancel(&self, uid: &str) -> bool {
        match self.lock().remove(uid) {
            Some(token) => {
                token.cancel();
                true
            }
            None => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, CancellationToken>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_given_up_only_while_it_lasts() {
        let (pods, uid) = (PreBindPods::default(), Arc::from("1"));
        assert_eq!(pods.run(&uid, async { 1 }).await, Some(1));
        assert!(!pods.cancel("1"));
        let endless = async {
            assert!(pods.cancel("1"));
            std::future::pending::<()>().await;
        };
        assert_eq!(pods.run(&uid, endless).await, None);
    }
}
