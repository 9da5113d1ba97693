//! Events of the container runtime, whatever their source.

use tokio::sync::mpsc;

/// A runtime event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeEvent {
    /// A container or the sandbox of the pod with this uid changed.
    PodChanged(String),
    /// Events may be lost; all pods must be examined.
    Resync,
}

/// Sends an event; a closed channel is handled by the event loop.
pub(super) async fn send_event(sender: &mpsc::Sender<RuntimeEvent>, change: RuntimeEvent) {
    let _ = sender.send(change).await;
}
