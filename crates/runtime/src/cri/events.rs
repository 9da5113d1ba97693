//! containerd's own event service, on the same socket as its CRI: for versions that lack CRI's `GetContainerEvents`.
//!
//! Only two facts are taken from an event: that a task of CRI's namespace ended, and its container's id.

use std::time::Duration;

use futures::StreamExt;
use tokio::sync::mpsc;
use tonic::codegen::http::uri::PathAndQuery;

use super::{
    Cri, Error,
    changes::{Change, send},
    types::{ContainerState, PodSandboxState},
};

const METHOD: &str = "/containerd.services.events.v1.Events/Subscribe";
/// CRI's containers live in this namespace; an out-of-memory kill is followed by an exit.
const FILTER: &str = r#"namespace==k8s.io,topic=="/tasks/exit""#;

/// The pauses while CRI does not show an end, from first to last: 20 s in all.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_secs(10);

#[derive(Clone, PartialEq, prost::Message)]
struct Subscribe {
    #[prost(string, repeated, tag = "1")]
    filters: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Envelope {
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(string, tag = "3")]
    topic: String,
    #[prost(message, optional, tag = "4")]
    event: Option<Any>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `containerd.events.TaskExit`: `id` differs from `container_id` when it is a command inside the container that ended.
#[derive(Clone, PartialEq, prost::Message)]
struct TaskExit {
    #[prost(string, tag = "1")]
    container_id: String,
    #[prost(string, tag = "2")]
    id: String,
}

/// Follows the events until the connection breaks.
pub(super) async fn follow(cri: &Cri, sender: &mpsc::Sender<Change>) -> Result<(), Error> {
    let fail = |status| Error::Call { method: "Events/Subscribe", status: Box::new(status) };
    let mut grpc = tonic::client::Grpc::new(cri.channel.clone());
    let unready = |error: tonic::transport::Error| fail(tonic::Status::unavailable(error.to_string()));
    grpc.ready().await.map_err(unready)?;
    let request = tonic::Request::new(Subscribe { filters: vec![FILTER.into()] });
    let codec = tonic_prost::ProstCodec::<Subscribe, Envelope>::default();
    let path = PathAndQuery::from_static(METHOD);
    // containerd sends its headers with the first event, so nothing that happens before it may be relied upon.
    send(sender, Change::All).await;
    let mut stream = grpc.server_streaming(request, path, codec).await.map_err(fail)?.into_inner();
    while let Some(envelope) = stream.next().await {
        if let Some(id) = ended(envelope.map_err(fail)?) {
            // Beside this loop: one that CRI is slow to notice must not hold up the others.
            tokio::spawn(tell(cri.clone(), id, sender.clone()));
        }
    }
    Ok(())
}

async fn tell(cri: Cri, id: String, sender: mpsc::Sender<Change>) {
    if let Some(uid) = owner(&cri, &id).await {
        send(&sender, Change::Pod(uid)).await;
    }
}

/// The container whose main process ended.
fn ended(envelope: Envelope) -> Option<String> {
    let exit: TaskExit = prost::Message::decode(envelope.event?.value.as_slice()).ok()?;
    (exit.id == exit.container_id).then_some(exit.container_id)
}

/// Whose container or sandbox that was, once CRI too shows it as ended: it hears of the same event, but on a busy machine
/// much later, and whoever looked before that would not look again.
///
/// One that is gone already was removed by whoever knows about it.
async fn owner(cri: &Cri, id: &str) -> Option<String> {
    let mut pause = FIRST_PAUSE;
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
        if over || pause > LAST_PAUSE {
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
    fn commands_in_a_container_are_not_its_end() {
        let exit = |container: &str, id: &str| {
            let value = TaskExit { container_id: container.into(), id: id.into() }.encode_to_vec();
            Envelope { event: Some(Any { type_url: String::new(), value }), ..Default::default() }
        };
        assert_eq!(ended(exit("c", "c")), Some("c".into()));
        assert_eq!(ended(exit("c", "e")), None);
        assert_eq!(ended(Envelope::default()), None);
    }
}
