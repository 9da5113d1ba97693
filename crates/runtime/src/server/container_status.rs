//! The status of containers in CRI's form.

use tonic::Status;

use super::{RuntimeServer, container_spec::log_path, events::has_labels, records::ContainerEntry};
use crate::cri::types::*;

impl RuntimeServer {
    pub(super) async fn list_containers(
        &self,
        request: ListContainersRequest,
    ) -> Result<ListContainersResponse, Status> {
        let filter = request.filter.unwrap_or_default();
        let matches = |container: &&std::sync::Arc<ContainerEntry>| {
            container.id.starts_with(&filter.id)
                && container.sandbox.starts_with(&filter.pod_sandbox_id)
                && filter.state.as_ref().is_none_or(|wanted| wanted.state == container.life().state)
                && has_labels(&container.config().labels, &filter.label_selector)
        };
        let mut containers: Vec<Container> =
            self.list_entries().iter().filter(matches).map(|container| self.listed(container)).collect();
        containers.sort_by_key(|container| container.created_at);
        Ok(ListContainersResponse { containers })
    }

    fn listed(&self, container: &ContainerEntry) -> Container {
        let config = container.config();
        Container {
            id: container.id.clone(),
            pod_sandbox_id: container.sandbox.clone(),
            metadata: config.metadata,
            image: config.image,
            image_ref: container.image.clone(),
            state: container.life().state,
            created_at: container.created_at,
            labels: config.labels,
            annotations: config.annotations,
            image_id: container.image.clone(),
        }
    }

    pub(super) async fn container_status(
        &self,
        request: ContainerStatusRequest,
    ) -> Result<ContainerStatusResponse, Status> {
        let container = self.container(&request.container_id)?;
        let mut info = std::collections::HashMap::new();
        if request.verbose {
            let text = serde_json::json!({ "pid": container.life().pid, "sandboxID": container.sandbox });
            info.insert("info".to_owned(), text.to_string());
        }
        Ok(ContainerStatusResponse { status: Some(self.status_of(&container)), info })
    }

    /// CRI's status of a container.
    pub(super) fn status_of(&self, container: &ContainerEntry) -> ContainerStatus {
        let (config, life) = (container.config(), container.life());
        let image = self.images.find(&container.image);
        let names = image.as_ref().and_then(|image| image.tags.first().or_else(|| image.digests.first()));
        let digest = image.as_ref().and_then(|image| image.digests.first());
        let mut image_spec = config.image.clone().unwrap_or_default();
        if let Some(name) = names {
            image_spec.image.clone_from(name);
        }
        let log = self.sandbox(&container.sandbox).ok().and_then(|sandbox| log_path(&sandbox, &config));
        let user = life.user.map(|(uid, gid, groups)| LinuxContainerUser {
            uid: i64::from(uid),
            gid: i64::from(gid),
            supplemental_groups: groups.into_iter().map(i64::from).collect(),
        });
        ContainerStatus {
            id: container.id.clone(),
            metadata: config.metadata,
            state: life.state,
            created_at: container.created_at,
            started_at: life.started_at,
            finished_at: life.finished_at,
            exit_code: life.exit_code,
            image: Some(image_spec),
            image_ref: digest.unwrap_or(&container.image).clone(),
            reason: life.reason,
            message: life.message,
            labels: config.labels,
            annotations: config.annotations,
            mounts: config.mounts,
            log_path: log.map(|path| path.display().to_string()).unwrap_or_default(),
            resources: config.linux.map(|linux| ContainerResources { linux: linux.resources }),
            image_id: container.image.clone(),
            user: user.map(|linux| ContainerUser { linux: Some(linux) }),
            stop_signal: config.stop_signal,
        }
    }
}
