//! Tells which pods' containers changed, so that nobody has to ask.
//!
//! Three sources, the best that the runtime has: CRI's `GetContainerEvents` (containerd 1.7 and later, CRI-O), containerd's
//! own event service (every containerd), and otherwise the two lists of sandboxes and containers compared once a second,
//! only while there are pods. Whatever breaks, the next event is [`Change::All`], because something may have been missed.

use std::{collections::HashMap, time::Duration};

use futures::{Stream, StreamExt, stream};
use tokio::sync::{mpsc, watch};

use super::{Cri, Error, types};

/// The pause between two lists, and before a broken source is tried again.
const RELIST: Duration = Duration::from_secs(1);

/// A reason to look at the runtime again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Something about the containers or the sandbox of the pod with this uid.
    Pod(String),
    /// Anything may have changed.
    All,
}

/// How changes are learned from this runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    CriEvents,
    ContainerdEvents,
    Relist,
}

impl Source {
    /// What to use when the runtime does not have this source.
    fn next(self) -> Self {
        match self {
            Source::CriEvents => Source::ContainerdEvents,
            Source::ContainerdEvents | Source::Relist => Source::Relist,
        }
    }
}

impl Cri {
    /// The changes from now on; it ends when it is dropped. `wanted` says whether there are pods, so that nothing is listed
    /// for an idle node.
    pub fn changes(&self, wanted: watch::Receiver<bool>) -> impl Stream<Item = Change> + Send + Unpin + use<> {
        let (sender, receiver) = mpsc::channel(256);
        tokio::spawn(observe(self.clone(), wanted, sender));
        Box::pin(stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) }))
    }
}

async fn observe(cri: Cri, wanted: watch::Receiver<bool>, sender: mpsc::Sender<Change>) {
    let mut source = Source::CriEvents;
    while !sender.is_closed() {
        let ended = tokio::select! {
            ended = follow(&cri, source, &wanted, &sender) => ended,
            () = sender.closed() => return,
        };
        match ended {
            Err(error) if error.code() == Some(tonic::Code::Unimplemented) => source = source.next(),
            Err(error) => {
                tracing::debug!(%error, ?source, "the runtime's events broke off");
                tokio::time::sleep(RELIST).await;
            }
            Ok(()) => tokio::time::sleep(RELIST).await,
        }
    }
}

async fn follow(
    cri: &Cri,
    source: Source,
    wanted: &watch::Receiver<bool>,
    sender: &mpsc::Sender<Change>,
) -> Result<(), Error> {
    match source {
        Source::CriEvents => cri_events(cri, sender).await,
        Source::ContainerdEvents => super::events::follow(cri, sender).await,
        Source::Relist => relist(cri, wanted.clone(), sender).await,
    }
}

async fn cri_events(cri: &Cri, sender: &mpsc::Sender<Change>) -> Result<(), Error> {
    let fail = |status| Error::Call { method: "GetContainerEvents", status: Box::new(status) };
    // The answer begins with the first event, so nothing that happened before it may be relied upon.
    send(sender, Change::All).await;
    let stream = cri.runtime().get_container_events(types::GetEventsRequest {}).await.map_err(fail)?;
    let mut stream = stream.into_inner();
    while let Some(event) = stream.next().await {
        let event = event.map_err(fail)?;
        let uid = event.pod_sandbox_status.and_then(|status| status.metadata).map(|metadata| metadata.uid);
        send(sender, uid.map_or(Change::All, Change::Pod)).await;
    }
    Ok(())
}

/// What a list says of one pod: each id of a sandbox or a container with its state.
type Picture = HashMap<String, Vec<(String, i32)>>;

async fn relist(cri: &Cri, mut wanted: watch::Receiver<bool>, sender: &mpsc::Sender<Change>) -> Result<(), Error> {
    let mut known = picture(cri).await?;
    send(sender, Change::All).await;
    loop {
        // An error means that nobody can want anything any more.
        if wanted.wait_for(|wanted| *wanted).await.is_err() {
            return std::future::pending().await;
        }
        tokio::time::sleep(RELIST).await;
        let now = picture(cri).await?;
        for uid in differing(&known, &now) {
            send(sender, Change::Pod(uid)).await;
        }
        known = now;
    }
}

async fn picture(cri: &Cri) -> Result<Picture, Error> {
    let (sandboxes, containers) =
        tokio::try_join!(cri.list_sandboxes(HashMap::new()), cri.list_containers(HashMap::new()))?;
    let mut picture = Picture::new();
    let mut owners = HashMap::new();
    for sandbox in sandboxes {
        let uid = sandbox.metadata.map(|metadata| metadata.uid).unwrap_or_default();
        owners.insert(sandbox.id.clone(), uid.clone());
        picture.entry(uid).or_default().push((sandbox.id, sandbox.state));
    }
    for container in containers {
        if let Some(uid) = owners.get(&container.pod_sandbox_id) {
            picture.entry(uid.clone()).or_default().push((container.id, container.state));
        }
    }
    picture.values_mut().for_each(|states| states.sort());
    Ok(picture)
}

/// The pods that two pictures show differently.
fn differing(old: &Picture, new: &Picture) -> Vec<String> {
    let changed = new.iter().filter(|(uid, states)| old.get(*uid) != Some(*states)).map(|(uid, _)| uid.clone());
    let gone = old.keys().filter(|uid| !new.contains_key(*uid)).cloned();
    changed.chain(gone).collect()
}

/// A closed channel means that nobody listens; the observer's loop sees that itself.
pub(super) async fn send(sender: &mpsc::Sender<Change>, change: Change) {
    let _ = sender.send(change).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pods_that_differ_are_told() {
        let picture = |pods: &[(&str, &[(&str, i32)])]| -> Picture {
            let states = |states: &[(&str, i32)]| states.iter().map(|(id, state)| (id.to_string(), *state)).collect();
            pods.iter().map(|(uid, list)| (uid.to_string(), states(list))).collect()
        };
        let old = picture(&[("a", &[("s", 0), ("c", 1)]), ("b", &[("t", 0)]), ("gone", &[])]);
        let new = picture(&[("a", &[("s", 0), ("c", 2)]), ("b", &[("t", 0)]), ("new", &[("u", 0)])]);
        let mut told = differing(&old, &new);
        told.sort();
        assert_eq!(told, ["a", "gone", "new"]);
    }
}
