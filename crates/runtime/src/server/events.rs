//! Events: what supervisors report, and what listeners of CRI hear.

use std::{collections::HashMap, sync::Arc};

use futures::{Stream, stream};
use tokio::sync::broadcast::error::RecvError;
use tonic::Status;

use super::{
    RuntimeServer,
    records::{ContainerEntry, Sandbox, now},
    sandboxes::sandbox_status,
};
use crate::{
    cri::types::*,
    supervisor::{ExitRecord, MessageStream, SupervisorEvent, SupervisorResponse},
};

impl RuntimeServer {
    /// Follows a supervisor until it ends.
    pub(super) fn watch_supervisor(self: &Arc<Self>, sandbox: Arc<Sandbox>, mut messages: MessageStream) {
        let server = self.clone();
        tokio::spawn(async move {
            while let Ok(Some(message)) = messages.receive().await {
                match message {
                    SupervisorResponse::Event(SupervisorEvent::Exited { container, exit }) => {
                        if let Ok(container) = server.container(&container) {
                            server.record_exit(&sandbox, &container, &exit);
                        }
                    }
                    SupervisorResponse::Event(SupervisorEvent::PauseEnded) => {
                        // Its containers have ended with the namespace.
                        let _ = sandbox.update(|state| state.ready = false);
                        server.publish(&sandbox, &sandbox.id, ContainerEventType::ContainerStoppedEvent);
                    }
                    _ => {}
                }
            }
            server.handle_supervisor_end(&sandbox).await;
        });
    }

    /// Records the end of a container.
    pub(super) fn record_exit(&self, sandbox: &Arc<Sandbox>, container: &Arc<ContainerEntry>, exit: &ExitRecord) {
        let recorded = container.update(|life| {
            life.state = ContainerState::ContainerExited as i32;
            life.exit_code = exit.exit_code;
            life.finished_at = exit.finished_at;
            if life.started_at == 0 {
                life.started_at = exit.started_at;
            }
            life.reason = match (exit.out_of_memory, exit.exit_code) {
                (true, _) => "OOMKilled",
                (false, 0) => "Completed",
                (false, _) => "Error",
            }
            .into();
        });
        if let Err(error) = recorded {
            tracing::warn!(container = container.id, %error, "container runtime: exit not written");
        }
        self.remove_cgroup(container);
        self.publish(sandbox, &container.id, ContainerEventType::ContainerStoppedEvent);
    }

    /// Records the end of a container whose exit code is unknown.
    pub(super) fn record_lost_exit(&self, container: &Arc<ContainerEntry>) {
        let exit = ExitRecord::read(&container.exit_file()).ok().flatten();
        let recorded = container.update(|life| {
            life.state = ContainerState::ContainerExited as i32;
            match &exit {
                Some(exit) => {
                    (life.exit_code, life.finished_at) = (exit.exit_code, exit.finished_at);
                    life.reason = if exit.out_of_memory {
                        "OOMKilled"
                    } else if exit.exit_code == 0 {
                        "Completed"
                    } else {
                        "Error"
                    }
                    .into();
                }
                None => {
                    (life.exit_code, life.finished_at) = (255, now());
                    life.reason = "Unknown".into();
                }
            }
        });
        if let Err(error) = recorded {
            tracing::warn!(container = container.id, %error, "container runtime: exit not written");
        }
    }

    /// A supervisor has ended: so has everything in the pod.
    async fn handle_supervisor_end(&self, sandbox: &Arc<Sandbox>) {
        if self.sandbox(&sandbox.id).is_err() || !sandbox.state().ready {
            return;
        }
        tracing::warn!(
            sandbox = sandbox.id,
            "container runtime: the pod's supervisor ended, its containers are killed"
        );
        self.kill_leftovers(sandbox).await;
        for container in self.containers_of(&sandbox.id) {
            if container.life().is(ContainerState::ContainerRunning) {
                self.record_lost_exit(&container);
                self.publish(sandbox, &container.id, ContainerEventType::ContainerStoppedEvent);
            }
        }
        let _ = sandbox.update(|state| state.ready = false);
        self.publish(sandbox, &sandbox.id, ContainerEventType::ContainerStoppedEvent);
    }

    pub(super) fn publish(&self, sandbox: &Sandbox, id: &str, kind: ContainerEventType) {
        if self.events.receiver_count() == 0 {
            return;
        }
        let containers = self.containers_of(&sandbox.id);
        let event = ContainerEventResponse {
            container_id: id.into(),
            container_event_type: kind as i32,
            created_at: now(),
            pod_sandbox_status: Some(sandbox_status(sandbox)),
            containers_statuses: containers.iter().map(|container| self.status_of(container)).collect(),
        };
        // Listeners may have gone meanwhile.
        let _ = self.events.send(event);
    }

    pub(super) async fn get_container_events(
        &self,
        _request: GetEventsRequest,
    ) -> Result<impl Stream<Item = Result<ContainerEventResponse, Status>> + Send + 'static + use<>, Status> {
        Ok(stream::unfold(self.events.subscribe(), |mut events| async move {
            match events.recv().await {
                Ok(event) => Some((Ok(event), events)),
                Err(RecvError::Lagged(_)) => Some((Err(Status::resource_exhausted("events were lost")), events)),
                Err(RecvError::Closed) => None,
            }
        }))
    }
}

/// Whether an object has all labels of a selector.
pub fn has_labels(labels: &HashMap<String, String>, selector: &HashMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}
