//! Waiting for a pod that a command made, and attaching to it.

use api::Value;

use super::{
    attach::ContainerAttachment,
    container_streams::LocalStreams,
    logs::print_log,
    pod_selection::choose_container,
    wait_condition::{WaitDeadline, list_single, watch_single},
};
use crate::{
    discovery::RestMapping,
    errln,
    errors::{CommandError, CommandResult, status_error},
    object::{ObjectFields, name_of, namespace_of},
    resource::ResourceInfo,
    session::Session,
};

/// The mapping of pods.
pub fn pod_mapping() -> RestMapping {
    RestMapping {
        version: "v1".into(),
        kind: "Pod".into(),
        resource: "pods".into(),
        namespaced: true,
        ..Default::default()
    }
}

/// Waits until `reached` says so; a deleted pod is an error.
pub fn wait_for_pod(
    session: &Session,
    pod: &Value,
    nanos: i64,
    reached: &mut dyn FnMut(&Value) -> bool,
) -> CommandResult<Value> {
    let info = ResourceInfo {
        mapping: pod_mapping(),
        namespace: namespace_of(pod).to_owned(),
        name: name_of(pod).to_owned(),
        ..Default::default()
    };
    let client = session.client()?;
    let deadline = WaitDeadline::after(nanos);
    loop {
        let (item, version) = list_single(client, &info)?;
        if let Some(item) = item
            && reached(&item)
        {
            return Ok(item);
        }
        if deadline.left().is_none() {
            crate::bail!("timed out waiting for the condition");
        }
        let found = watch_single(client, &info, &version, deadline, &mut |event, object| match event {
            "DELETED" => Err(status_error(404, "NotFound", "pods \"\" not found")),
            _ => Ok(reached(object).then(|| object.clone())),
        })?;
        if let Some(found) = found {
            return Ok(found);
        }
    }
}

fn is_completed(pod: &Value) -> bool {
    matches!(pod.text("status.phase"), "Succeeded" | "Failed")
}

fn is_running_and_ready(pod: &Value) -> bool {
    let mut conditions = pod.list("status.conditions").iter();
    pod.text("status.phase") == "Running"
        && conditions.any(|condition| condition.text("type") == "Ready" && condition.text("status") == "True")
}

/// Attaches to a pod that `run` made, then waits for its exit code.
pub fn attach_to_new_pod(session: &Session, pod: &Value, restart: &str) -> CommandResult {
    let flags = &session.flags;
    let timeout = flags.duration("pod-running-timeout");
    let pod = wait_for_pod(session, pod, timeout, &mut |pod| is_completed(pod) || is_running_and_ready(pod))?;
    let streams = LocalStreams::from_flags(session);
    let container = choose_container(&pod, "", streams.quiet)?.text("name").to_owned();
    if is_completed(&pod) {
        print_log(session, &pod, &container)?;
    } else {
        if let Err(error) = print_log(session, &pod, &container) {
            errln!("warning: couldn't fetch pre-attach logs: {error}");
        }
        let detach_keys = flags.string("detach-keys");
        let attachment = ContainerAttachment { pod: &pod, container: container.clone(), streams, detach_keys };
        attach_or_print_log(session, &pod, &container, attachment)?;
    }
    if flags.bool("leave-stdin-open") || !matches!(restart, "Never" | "OnFailure") {
        return Ok(());
    }
    let ended = |pod: &Value| match restart {
        "OnFailure" => pod.text("status.phase") == "Succeeded",
        _ => is_completed(pod),
    };
    let pod = wait_for_pod(session, &pod, timeout, &mut { ended })?;
    exit_of_pod(&pod)
}

/// Attaches; a failure falls back to the log.
pub fn attach_or_print_log(
    session: &Session,
    pod: &Value,
    container: &str,
    attachment: ContainerAttachment,
) -> CommandResult {
    match attachment.run(session) {
        Err(CommandError::Exit) => Err(CommandError::Exit),
        Err(error) => {
            errln!("warning: couldn't attach to pod/{}, falling back to streaming logs: {error}", name_of(pod));
            print_log(session, pod, container)
        }
        Ok(()) => Ok(()),
    }
}

fn exit_of_pod(pod: &Value) -> CommandResult {
    let full = format!("{}/{}", namespace_of(pod), name_of(pod));
    match pod.text("status.phase") {
        "Succeeded" => return Ok(()),
        "Failed" => {}
        phase => crate::bail!("pod {full} left in phase {phase}"),
    }
    let status = pod.list("status.containerStatuses").first();
    let ended = status.and_then(|status| status.at("state.terminated"));
    match ended.and_then(|ended| ended.integer("exitCode").map(|code| (ended, code))) {
        Some((ended, code)) if code != 0 => {
            let text = format!("pod {full} terminated ({})\n{}", ended.text("reason"), ended.text("message"));
            Err(CommandError::ExitCode(i32::try_from(code).unwrap_or(1), text))
        }
        _ => crate::bail!("pod {full} failed with unknown exit code"),
    }
}
