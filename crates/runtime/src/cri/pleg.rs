//! Pod lifecycle event generator (PLEG): reports the pods whose containers changed.
//!
//! It uses the best available source: CRI's `GetContainerEvents` (containerd 1.7 and later, CRI-O), containerd's event
//! service, or else comparing lists once a second while there are pods. After a failure the next event is
//! [`RuntimeEvent::Resync`], because events may be lost.

use std::{collections::HashMap, time::Duration};

use futures::{Stream, StreamExt, stream};
use tokio::sync::{mpsc, watch};

use super::{
    CriClient, CriError,
    runtime_event::{RuntimeEvent, send_event},
    types,
};

/// Relist interval and retry delay of a failed source.
const RELIST_PERIOD: Duration = Duration::from_secs(1);

/// Source of runtime events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventSource {
    CriEvents,
    ContainerdEvents,
    Relist,
}

impl EventSource {
    /// Returns the source to use if the runtime lacks this one.
    fn fallback(self) -> Self {
        match self {
            EventSource::CriEvents => EventSource::ContainerdEvents,
            EventSource::ContainerdEvents | EventSource::Relist => EventSource::Relist,
        }
    }
}

impl CriClient {
    /// Streams events until dropped. `has_pods` tells whether there are pods; an idle node is not relisted.
    pub fn watch_events(
        &self,
        has_pods: watch::Receiver<bool>,
    ) -> impl Stream<Item = RuntimeEvent> + Send + Unpin + use<> {
        let (sender, receiver) = mpsc::channel(256);
        tokio::spawn(run_event_source(self.clone(), has_pods, sender));
        Box::pin(stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) }))
    }
}

async fn run_event_source(cri: CriClient, has_pods: watch::Receiver<bool>, sender: mpsc::Sender<RuntimeEvent>) {
    let mut source = EventSource::CriEvents;
    while !sender.is_closed() {
        let ended = tokio::select! {
            ended = follow_source(&cri, source, &has_pods, &sender) => ended,
            () = sender.closed() => return,
        };
        match ended {
            Err(error) if error.code() == Some(tonic::Code::Unimplemented) => source = source.fallback(),
            Err(error) => {
                tracing::debug!(%error, ?source, "PLEG: event stream failed, retrying");
                tokio::time::sleep(RELIST_PERIOD).await;
            }
            Ok(()) => tokio::time::sleep(RELIST_PERIOD).await,
        }
    }
}

async fn follow_source(
    cri: &CriClient,
    source: EventSource,
    has_pods: &watch::Receiver<bool>,
    sender: &mpsc::Sender<RuntimeEvent>,
) -> Result<(), CriError> {
    match source {
        EventSource::CriEvents => follow_cri_events(cri, sender).await,
        EventSource::ContainerdEvents => super::containerd_events::follow_containerd_events(cri, sender).await,
        EventSource::Relist => relist_periodically(cri, has_pods.clone(), sender).await,
    }
}

async fn follow_cri_events(cri: &CriClient, sender: &mpsc::Sender<RuntimeEvent>) -> Result<(), CriError> {
    let fail = |status| CriError::Call { method: "GetContainerEvents", status: Box::new(status) };
    // The response starts with the first event, so earlier events may be missed.
    send_event(sender, RuntimeEvent::Resync).await;
    let stream = cri.runtime_service().get_container_events(types::GetEventsRequest {}).await.map_err(fail)?;
    let mut stream = stream.into_inner();
    while let Some(event) = stream.next().await {
        let event = event.map_err(fail)?;
        let uid = event.pod_sandbox_status.and_then(|status| status.metadata).map(|metadata| metadata.uid);
        send_event(sender, uid.map_or(RuntimeEvent::Resync, RuntimeEvent::PodChanged)).await;
    }
    Ok(())
}

/// States of sandboxes and containers by pod uid.
type PodStates = HashMap<String, Vec<(String, i32)>>;

async fn relist_periodically(
    cri: &CriClient,
    mut has_pods: watch::Receiver<bool>,
    sender: &mpsc::Sender<RuntimeEvent>,
) -> Result<(), CriError> {
    let mut known = list_pod_states(cri).await?;
    send_event(sender, RuntimeEvent::Resync).await;
    loop {
        // An error means that the kubelet has stopped.
        if has_pods.wait_for(|has_pods| *has_pods).await.is_err() {
            return std::future::pending().await;
        }
        tokio::time::sleep(RELIST_PERIOD).await;
        let now = list_pod_states(cri).await?;
        for uid in changed_pods(&known, &now) {
            send_event(sender, RuntimeEvent::PodChanged(uid)).await;
        }
        known = now;
    }
}

async fn list_pod_states(cri: &CriClient) -> Result<PodStates, CriError> {
    let (sandboxes, containers) =
        tokio::try_join!(cri.list_sandboxes(HashMap::new()), cri.list_containers(HashMap::new()))?;
    let mut states = PodStates::new();
    let mut owners = HashMap::new();
    for sandbox in sandboxes {
        let uid = sandbox.metadata.map(|metadata| metadata.uid).unwrap_or_default();
        owners.insert(sandbox.id.clone(), uid.clone());
        states.entry(uid).or_default().push((sandbox.id, sandbox.state));
    }
    for container in containers {
        if let Some(uid) = owners.get(&container.pod_sandbox_id) {
            states.entry(uid.clone()).or_default().push((container.id, container.state));
        }
    }
    states.values_mut().for_each(|states| states.sort());
    Ok(states)
}

/// Returns the pods whose states differ.
fn changed_pods(old: &PodStates, new: &PodStates) -> Vec<String> {
    let changed = new.iter().filter(|(uid, states)| old.get(*uid) != Some(*states)).map(|(uid, _)| uid.clone());
    let gone = old.keys().filter(|uid| !new.contains_key(*uid)).cloned();
    changed.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_pods_are_reported() {
        let states = |pods: &[(&str, &[(&str, i32)])]| -> PodStates {
            let states = |states: &[(&str, i32)]| states.iter().map(|(id, state)| (id.to_string(), *state)).collect();
            pods.iter().map(|(uid, list)| (uid.to_string(), states(list))).collect()
        };
        let old = states(&[("a", &[("s", 0), ("c", 1)]), ("b", &[("t", 0)]), ("gone", &[])]);
        let new = states(&[("a", &[("s", 0), ("c", 2)]), ("b", &[("t", 0)]), ("new", &[("u", 0)])]);
        let mut reported = changed_pods(&old, &new);
        reported.sort();
        assert_eq!(reported, ["a", "gone", "new"]);
    }
}
