//! Container statuses while all containers of a pod are restarted in place.

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, PodSpec, PodStatus,
};

use crate::pod_spec::restarts_all_containers;

/// Reason of containers that are removed for the restart.
const RESTARTING_ALL_CONTAINERS: &str = "RestartingAllContainers";
const REMOVED_MESSAGE: &str = "The container is removed because RestartAllContainers in place";
/// Exit code of a container whose end was not seen.
const UNKNOWN_EXIT_CODE: i32 = 137;

/// Whether a reported container status is the end that restarts all containers.
pub fn has_reset_source(spec: &PodSpec, status: &PodStatus) -> bool {
    let exit_code = |name: &str| {
        let statuses = [&status.init_container_statuses, &status.container_statuses];
        let found = statuses.into_iter().flat_map(|list| list.iter().flatten()).find(|status| status.name == name)?;
        Some(found.state.as_ref()?.terminated.as_ref()?.exit_code)
    };
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    containers.any(|container| exit_code(&container.name).is_some_and(|code| restarts_all_containers(container, code)))
}

/// Sets the status of a container that was removed: it waits, and ended for this reason.
pub fn mark_container_reset(status: &mut ContainerStatus, restart_count: i32) {
    let waiting =
        ContainerStateWaiting { reason: Some(RESTARTING_ALL_CONTAINERS.into()), message: Some(REMOVED_MESSAGE.into()) };
    let terminated = ContainerStateTerminated {
        exit_code: UNKNOWN_EXIT_CODE,
        reason: Some(RESTARTING_ALL_CONTAINERS.into()),
        message: Some(REMOVED_MESSAGE.into()),
        ..Default::default()
    };
    status.state = Some(ContainerState { waiting: Some(waiting), ..Default::default() });
    status.last_state = Some(ContainerState { terminated: Some(terminated), ..Default::default() });
    status.restart_count = restart_count + 1;
}

/// Whether a container ended because all containers are restarted.
pub fn is_reset_end(end: &ContainerStateTerminated) -> bool {
    end.reason.as_deref() == Some(RESTARTING_ALL_CONTAINERS)
}

/// Returns the last end of a container whose earlier runs the runtime has forgotten.
pub fn last_state_of_removed(old: &ContainerStatus, container_id: Option<&str>) -> Option<ContainerState> {
    let ended = |state: &Option<ContainerState>| state.clone().filter(|state| state.terminated.is_some());
    let other_run = old.container_id.as_deref() != container_id;
    ended(&old.state).filter(|_| other_run).or_else(|| ended(&old.last_state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn end_of_a_forgotten_run_is_kept() {
        let ended = |code: i32| json!({ "terminated": { "exitCode": code } });
        let old = |state: serde_json::Value, last: serde_json::Value| -> ContainerStatus {
            serde_json::from_value(
                json!({ "name": "c", "containerID": "c://1", "image": "", "imageID": "", "ready": false,
                "restartCount": 1, "state": state, "lastState": last }),
            )
            .unwrap()
        };
        let code = |state: Option<ContainerState>| state.map(|state| state.terminated.unwrap().exit_code);
        assert_eq!(code(last_state_of_removed(&old(ended(3), ended(2)), Some("c://2"))), Some(3));
        assert_eq!(code(last_state_of_removed(&old(ended(3), ended(2)), Some("c://1"))), Some(2));
        assert_eq!(code(last_state_of_removed(&old(json!({ "running": {} }), json!({})), Some("c://2"))), None);
    }
}
