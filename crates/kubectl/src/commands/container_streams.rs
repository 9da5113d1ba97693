//! Shared by `exec`, `attach`, `run`, `debug` and `cp`: the local streams of a command in a container.

use api::Value;

use crate::{
    errln,
    errors::{CommandError, CommandResult},
    object::{name_of, namespace_of},
    output::{write_err_bytes, write_out_bytes},
    rest::{RestRequest, block_on},
    session::Session,
    streams::{RawTerminal, RemoteCommand, TerminalSize, is_terminal_input, terminal_size},
};

/// The local streams that a command is connected with.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalStreams {
    /// `--stdin`
    pub stdin: bool,
    /// `--tty`
    pub tty: bool,
    /// `--quiet`
    pub quiet: bool,
}

impl LocalStreams {
    /// Reads the flags.
    pub fn from_flags(session: &Session) -> Self {
        let flags = &session.flags;
        LocalStreams { stdin: flags.bool("stdin"), tty: flags.bool("tty"), quiet: flags.bool("quiet") }
    }

    /// Whether there is a terminal to put in raw mode; says so if one was asked for and there is none.
    pub fn uses_terminal(self) -> bool {
        if !self.stdin || !self.tty {
            return false;
        }
        if !is_terminal_input() && !self.quiet {
            errln!("Unable to use a TTY - input is not a terminal or the right kind of file");
        }
        is_terminal_input()
    }
}

/// The request for a subresource of a pod that streams.
pub fn stream_request(pod: &Value, subresource: &str, container: &str, command: &[String]) -> RestRequest {
    let path = format!("/api/v1/namespaces/{}/pods/{}/{subresource}", namespace_of(pod), name_of(pod));
    let mut request = RestRequest::get(path).with_query("container", container);
    for word in command {
        request = request.with_query("command", word.as_str());
    }
    request
}

/// Adds the parameters that name the streams.
pub fn with_streams(mut request: RestRequest, stdin: bool, stderr: bool, tty: bool) -> RestRequest {
    for (name, wanted) in [("stdin", stdin), ("stdout", true), ("stderr", stderr), ("tty", tty)] {
        if wanted {
            request = request.with_query(name, "true");
        }
    }
    request
}

/// Connects the process' own streams with a container until the command ends; the terminal is restored at any end.
pub fn stream_locally(
    session: &Session,
    request: RestRequest,
    streams: LocalStreams,
    terminal: bool,
    sizes: Vec<TerminalSize>,
    detach_keys: Vec<u8>,
) -> CommandResult {
    let client = session.client()?;
    let request = with_streams(request, streams.stdin, !terminal, terminal);
    let command = RemoteCommand {
        request,
        stdin: streams.stdin.then(|| Box::pin(tokio::io::stdin()) as crate::streams::CommandInput),
        stdout: Some(Box::new(|data| {
            write_out_bytes(data);
            Ok(())
        })),
        stderr: (!terminal).then(|| Box::new(|data: &[u8]| write_err_bytes(data)) as _),
        tty: terminal,
        sizes,
        detach_keys,
    };
    let guard = terminal.then(RawTerminal::enter);
    let outcome = block_on(async {
        tokio::select! {
            outcome = command.run(client) => outcome,
            () = wait_for_termination(terminal) => Err(CommandError::Exit),
        }
    });
    drop(guard);
    outcome
}

/// Waits for a signal that ends the process; only with a terminal, which must be restored then.
async fn wait_for_termination(terminal: bool) {
    use tokio::signal::unix::{SignalKind, signal};
    if terminal {
        let kinds = [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate(), SignalKind::quit()];
        let mut signals: Vec<_> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
        if !signals.is_empty() {
            let waiting = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
            futures::future::select_all(waiting).await;
            return;
        }
    }
    std::future::pending().await
}

/// The sizes to send first: the current one, after one that is larger when the screen must be drawn anew.
pub fn initial_sizes(redraw: bool) -> Vec<TerminalSize> {
    let Some(size) = terminal_size() else { return Vec::new() };
    let larger = TerminalSize { width: size.width.saturating_add(1), height: size.height.saturating_add(1) };
    if redraw { vec![larger, size] } else { vec![size] }
}
