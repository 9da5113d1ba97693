//! `kubectl attach`, and the attachment of `run` and `debug` to what they made.

use api::Value;

use super::{
    container_streams::{LocalStreams, initial_sizes, stream_locally, stream_request},
    pod_selection::{attachable_pod, choose_container, find_container, pod_running_timeout},
};
use crate::{
    errln,
    errors::{CommandError, CommandResult},
    object::{ObjectFields, name_of, namespace_of},
    outln,
    resource::ResourceBuilder,
    session::Session,
    usage::usage_error,
};

const DEFAULT_DETACH_KEYS: &str = "ctrl-p,ctrl-q";
const RECORDED: &str = "All commands and output from this session will be recorded in container logs, including \
                        credentials and sensitive information passed through the command prompt.";

/// Attaches to a process in a container.
pub fn run(session: &Session) -> CommandResult {
    let arguments = session.arguments();
    let mut builder = ResourceBuilder::from_session(session)?;
    let timeout = pod_running_timeout(session).map_err(|error| usage_error(session, &error.to_string()))?;
    match arguments.len() {
        0 => crate::bail!("at least 1 argument is required for attach"),
        1 => builder.default_resource = "pods".to_owned(),
        2 => builder.default_resource.clone_from(&arguments[0]),
        count => crate::bail!(
            "expected POD, TYPE/NAME, or TYPE NAME, (at most 2 arguments) saw {count}: [{}]",
            arguments.join(" ")
        ),
    }
    builder.arguments = arguments.last().cloned().into_iter().collect();
    let infos = builder.infos(session)?;
    let Some(info) = infos.first() else { crate::bail!("expected a resource") };
    let pod = attachable_pod(session, &info.object, timeout)?;
    let phase = pod.text("status.phase");
    if matches!(phase, "Succeeded" | "Failed") {
        crate::bail!("cannot attach a container in a completed pod; current phase is {phase}");
    }
    let attachment = ContainerAttachment {
        pod: &pod,
        container: session.flags.string("container"),
        streams: LocalStreams::from_flags(session),
        detach_keys: session.flags.string("detach-keys"),
    };
    attachment.run(session)
}

/// An attachment to a container of a pod.
pub struct ContainerAttachment<'a> {
    /// The pod.
    pub pod: &'a Value,
    /// The container; empty for the default one.
    pub container: String,
    /// The local streams.
    pub streams: LocalStreams,
    /// `--detach-keys`
    pub detach_keys: String,
}

impl ContainerAttachment<'_> {
    /// Attaches until the process or the connection ends.
    pub fn run(mut self, session: &Session) -> CommandResult {
        let container = choose_container(self.pod, &self.container, self.streams.quiet)
            .map_err(|error| CommandError::new(format!("cannot attach to the container: {error}")))?;
        let (name, has_terminal) = (container.text("name").to_owned(), container.flag("tty"));
        if self.streams.tty && !has_terminal && !self.streams.quiet {
            errln!("error: Unable to use a TTY - container {name} did not allocate one");
        }
        self.streams.tty = has_terminal;
        let terminal = self.streams.uses_terminal();
        let sizes = if terminal { initial_sizes(true) } else { Vec::new() };
        if !self.streams.quiet {
            errln!("{RECORDED}\nIf you don't see a command prompt, try pressing enter.");
        }
        let keys = if terminal && self.streams.stdin { parse_detach_keys(&self.detach_keys)? } else { Vec::new() };
        let request = stream_request(self.pod, "attach", &name, &[]);
        stream_locally(session, request, self.streams, terminal, sizes, keys)?;
        if terminal && !self.streams.quiet {
            outln!("{}", self.end_message(&name));
        }
        Ok(())
    }

    fn end_message(&self, container: &str) -> String {
        let ephemeral = find_container(self.pod, container).is_some_and(|(_, list)| list == "spec.ephemeralContainers");
        let again =
            format!("'kubectl attach {} -c {container} -n {} -i -t'", name_of(self.pod), namespace_of(self.pod));
        if ephemeral {
            return format!(
                "Session ended, the ephemeral container will not be restarted but may be reattached using {again} if \
                 it is still running"
            );
        }
        format!("Session ended, resume using {again} command")
    }
}

/// The bytes of `ctrl-p,ctrl-q` and the like.
fn parse_detach_keys(text: &str) -> CommandResult<Vec<u8>> {
    let text = if text.is_empty() { DEFAULT_DETACH_KEYS } else { text };
    let mut bytes = Vec::new();
    for key in text.split(',') {
        let byte = match (key.as_bytes(), key.strip_prefix("ctrl-").map(str::as_bytes)) {
            ([one], _) => *one,
            (_, Some([letter @ b'a'..=b'z'])) => letter - b'a' + 1,
            (_, Some(b"@")) => 0,
            (_, Some(b"[")) => 27,
            (_, Some(b"\\")) => 28,
            (_, Some(b"]")) => 29,
            (_, Some(b"^")) => 30,
            (_, Some(b"_")) => 31,
            _ => crate::bail!("could not bind detach keys: Unknown character: '{key}'"),
        };
        bytes.push(byte);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detach_keys_are_characters_or_control_characters() {
        assert_eq!(parse_detach_keys("").unwrap(), [16, 17]);
        assert_eq!(parse_detach_keys("x,ctrl-]").unwrap(), [b'x', 29]);
        assert!(parse_detach_keys("escape").is_err());
    }
}
