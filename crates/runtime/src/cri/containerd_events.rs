//! containerd's event service on the CRI socket, for versions without CRI's `GetContainerEvents`.
//!
//! Only task exits are used: the container's id.

use std::time::Duration;

use futures::StreamExt;
use tokio::sync::mpsc;
use tonic::codegen::http::uri::PathAndQuery;

use super::{
    CriClient, CriError,
    runtime_event::{RuntimeEvent, send_event},
    types::{ContainerState, PodSandboxState},
};

const SUBSCRIBE_METHOD: &str = "/containerd.services.events.v1.Events/Subscribe";
/// Exits in CRI's namespace; an OOM kill is followed by an exit.
const EVENT_FILTER: &str = r#"namespace==k8s.io,topic=="/tasks/exit""#;

/// Poll delays until CRI reports the exit, doubling; 20 s in total.
const INITIAL_POLL_DELAY: Duration = Duration::from_millis(5);
const MAX_POLL_DELAY: Duration = Duration::from_secs(10);

#[derive(Clone, PartialEq, prost::Message)]
struct SubscribeRequest {
    #[prost(string, repeated, tag = "1")]
    filters: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct EventEnvelope {
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(string, tag = "3")]
    topic: String,
    #[prost(message, optional, tag = "4")]
    event: Option<AnyMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AnyMessage {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `containerd.events.TaskExit`; `id` differs from `container_id` for an exec process.
#[derive(Clone, PartialEq, prost::Message)]
struct TaskExit {
    #[prost(string, tag = "1")]
    container_id: String,
    #[prost(string, tag = "2")]
    id: String,
}

/// Follows the events until the connection fails.
pub(super) async fn follow_containerd_events(
    cri: &CriClient,
    sender: &mpsc::Sender<RuntimeEvent>,
) -> Result<(), CriError> {
    let fail = |status| CriError::Call { method: "Events/Subscribe", status: Box::new(status) };
    let mut grpc = tonic::client::Grpc::new(cri.channel.clone());
    let unready = |error: tonic::transport::Error| fail(tonic::Status::unavailable(error.to_string()));
    grpc.ready().await.map_err(unready)?;
    let request = tonic::Request::new(SubscribeRequest { filters: vec![EVENT_FILTER.into()] });
    let codec = tonic_prost::ProstCodec::<SubscribeRequest, EventEnvelope>::default();
    let path = PathAndQuery::from_static(SUBSCRIBE_METHOD);
    // containerd sends headers with the first event, so earlier events may be missed.
    send_event(sender, RuntimeEvent::Resync).await;
    let mut stream = grpc.server_streaming(request, path, codec).await.map_err(fail)?.into_inner();
    while let Some(envelope) = stream.next().await {
        if let Some(id) = exited_container(envelope.map_err(fail)?) {
            // A separate task, so that a slow exit does not delay others.
            tokio::spawn(send_exit_event(cri.clone(), id, sender.clone()));
        }
    }
    Ok(())
}

async fn send_exit_event(cri: CriClient, id: String, sender: mpsc::Sender<RuntimeEvent>) {
    if let Some(uid) = wait_for_exit_status(&cri, &id).await {
        send_event(&sender, RuntimeEvent::PodChanged(uid)).await;
    }
}

/// Returns the container whose main process exited.
fn exited_container(envelope: EventEnvelope) -> Option<String> {
    let exit: TaskExit = prost::Message::decode(envelope.event?.value.as_slice()).ok()?;
    (exit.id == exit.container_id).then_some(exit.container_id)
}

/// Waits until CRI also reports the exit and returns the pod's uid. CRI processes the same event later; a reader before
/// that would see a running container and not look again.
///
/// `None` if the container is already removed.
async fn wait_for_exit_status(cri: &CriClient, id: &str) -> Option<String> {
    let mut pause = INITIAL_POLL_DELAY;
    loop {
        let (over, uid) = match cri.container_status(id).await {
            Ok(status) => (
                status.state == ContainerState::ContainerExited as i32,
                status.labels.get("io.kubernetes.pod.uid").cloned(),
            ),
            Err(_) => {
                let status = cri.sandbox_status(id).await.ok()?;
                (status.state == PodSandboxState::SandboxNotready as i32, status.metadata.map(|metadata| metadata.uid))
            }
        };
        if over || pause > MAX_POLL_DELAY {
            return uid;
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    #[test]
    fn exec_exit_is_not_a_container_exit() {
        let exit = |container: &str, id: &str| {
            let value = TaskExit { container_id: container.into(), id: id.into() }.encode_to_vec();
            EventEnvelope { event: Some(AnyMessage { type_url: String::new(), value }), ..Default::default() }
        };
        assert_eq!(exited_container(exit("c", "c")), Some("c".into()));
        assert_eq!(exited_container(exit("c", "e")), None);
        assert_eq!(exited_container(EventEnvelope::default()), None);
    }
}
