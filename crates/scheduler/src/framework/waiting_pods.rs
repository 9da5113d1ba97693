//! Pods that Permit plug-ins keep waiting between scheduling and binding.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::watch;

use super::status::Status;

/// Plug-ins that a pod waits for, and how long at most.
pub type WaitTimes = Vec<(&'static str, Duration)>;

/// The waiting pods by uid.
#[derive(Default)]
pub struct WaitingPods {
    pods: Mutex<HashMap<Arc<str>, watch::Sender<WaitState>>>,
}

#[derive(Clone)]
enum WaitState {
    /// The plug-ins that have not allowed the pod yet.
    Waiting(Vec<&'static str>),
    Rejected(Status),
}

impl WaitingPods {
    /// Adds a pod that waits for plug-ins.
    pub fn add(&self, uid: &Arc<str>, waits: &WaitTimes) {
        let plugins = waits.iter().map(|(plugin, _)| *plugin).collect();
        self.lock().insert(uid.clone(), watch::Sender::new(WaitState::Waiting(plugins)));
    }

    /// Lets a plug-in allow a waiting pod; the last one lets it go on.
    pub fn allow(&self, uid: &str, plugin: &str) {
        if let Some(state) = self.lock().get(uid) {
            state.send_modify(|state| {
                if let WaitState::Waiting(plugins) = state {
                    plugins.retain(|waiting| *waiting != plugin);
                }
            });
        }
    }

    /// Rejects a waiting pod; returns whether it was waiting.
    pub fn reject(&self, uid: &str, plugin: &'static str, message: &str) -> bool {
        self.stop(uid, Status::unschedulable(message.to_owned()).with_plugin(plugin))
    }

    /// Ends the wait of a pod whose room another one gets; it is tried again after a back-off.
    pub fn preempt(&self, uid: &str, plugin: &'static str, message: &str) -> bool {
        self.stop(uid, Status::error(message).with_plugin(plugin))
    }

    fn stop(&self, uid: &str, status: Status) -> bool {
        match self.lock().get(uid) {
            Some(state) => {
                state.send_replace(WaitState::Rejected(status));
                true
            }
            None => false,
        }
    }

    /// Waits until all plug-ins have allowed the pod, one rejects it, or the wait is over.
    pub async fn wait(&self, uid: &str, waits: &WaitTimes) -> Result<(), Status> {
        let Some(mut state) = self.lock().get(uid).map(watch::Sender::subscribe) else { return Ok(()) };
        let decided = state.wait_for(|state| !matches!(state, WaitState::Waiting(plugins) if !plugins.is_empty()));
        let shortest = waits.iter().min_by_key(|(_, time)| *time);
        let limit = shortest.map_or(Duration::ZERO, |(_, time)| *time);
        let outcome = match tokio::time::timeout(limit, decided).await {
            Ok(Ok(state)) => match &*state {
                WaitState::Waiting(_) => Ok(()),
                WaitState::Rejected(status) => Err(status.clone()),
            },
            // The sender is dropped with the entry, below.
            Ok(Err(_)) => Ok(()),
            Err(_) => {
                let plugin = shortest.map_or("", |(plugin, _)| *plugin);
                let message = format!("rejected due to timeout after waiting {limit:?} at plugin {plugin}");
                Err(Status::unschedulable(message).with_plugin(plugin))
            }
        };
        self.lock().remove(uid);
        outcome
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, watch::Sender<WaitState>>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check(decide: impl FnOnce(&WaitingPods)) -> Result<(), String> {
        let (pods, uid) = (WaitingPods::default(), Arc::from("1"));
        let waits = vec![("a", Duration::from_secs(2)), ("b", Duration::from_secs(9))];
        pods.add(&uid, &waits);
        decide(&pods);
        pods.wait("1", &waits).await.map_err(|status| format!("{}: {}", status.plugin, status.message()))
    }

    #[tokio::test(start_paused = true)]
    async fn all_plugins_must_allow() {
        assert_eq!(check(|pods| ["a", "b"].into_iter().for_each(|plugin| pods.allow("1", plugin))).await, Ok(()));
        let rejected = check(|pods| assert!(pods.reject("1", "b", "no"))).await;
        assert_eq!(rejected, Err("b: no".into()));
        let late = check(|pods| pods.allow("1", "a")).await;
        assert_eq!(late, Err("a: rejected due to timeout after waiting 2s at plugin a".into()));
    }
}
