//! `kubectl exec`

use api::Value;

use super::{
    container_streams::{LocalStreams, initial_sizes, stream_locally, stream_request},
    pod_selection::{attachable_pod, choose_container, find_container, invalid_container, pod_running_timeout},
};
use crate::{
    errors::CommandResult,
    object::{self, ObjectFields},
    resource::ResourceBuilder,
    session::Session,
    usage::usage_error,
};

/// Runs a command in a container.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let arguments = session.arguments();
    let named = !arguments.is_empty() && flags.dash_position != Some(0);
    let command = match flags.dash_position {
        Some(at) => arguments[at.min(arguments.len())..].to_vec(),
        None if arguments.len() > 1 || named && flags.changed("filename") => {
            let text = "exec [POD] [COMMAND] is not supported anymore. Use exec [POD] -- [COMMAND] instead";
            return Err(usage_error(session, text));
        }
        None => Vec::new(),
    };
    let mut builder = ResourceBuilder::from_session(session)?;
    let timeout = pod_running_timeout(session).map_err(|error| usage_error(session, &error.to_string()))?;
    if !named && builder.filenames.is_empty() {
        crate::bail!("pod, type/name or --filename must be specified");
    }
    if command.is_empty() {
        crate::bail!("you must specify at least one command for the container");
    }
    builder.default_resource = "pods".to_owned();
    builder.arguments = if named { vec![arguments[0].clone()] } else { Vec::new() };
    let objects = builder.infos(session)?;
    let [info] = objects.as_slice() else { crate::bail!("cannot exec into multiple objects at a time") };
    if object::is_list(&info.object) {
        crate::bail!("cannot exec into multiple objects at a time");
    }
    let pod = attachable_pod(session, &info.object, timeout)?;
    let container = container_for_exec(&pod, &flags.string("container"), flags.bool("quiet"))?;
    let streams = LocalStreams::from_flags(session);
    let terminal = streams.uses_terminal();
    let request = stream_request(&pod, "exec", &container, &command);
    let sizes = if terminal { initial_sizes(false) } else { Vec::new() };
    stream_locally(session, request, streams, terminal, sizes, Vec::new())
}

/// The name of the container to run a command in; the pod must not have ended.
pub fn container_for_exec(pod: &Value, name: &str, quiet: bool) -> CommandResult<String> {
    let phase = pod.text("status.phase");
    if matches!(phase, "Succeeded" | "Failed") {
        crate::bail!("cannot exec into a container in a completed pod; current phase is {phase}");
    }
    if !name.is_empty() && find_container(pod, name).is_none() {
        return Err(invalid_container(pod, name));
    }
    Ok(choose_container(pod, name, quiet)?.text("name").to_owned())
}
