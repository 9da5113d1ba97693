//! Running a command in a container: local streams on one side, the connection on the other, and the exit status.

use std::pin::Pin;

use api::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    signal::unix::{Signal, SignalKind, signal},
};

use super::{
    TerminalSize,
    command_connection::{CommandConnection, CommandOutput, CommandWriter, InputClosed, StreamSelection},
    terminal_size,
};
use crate::{
    errors::{CommandError, CommandResult},
    rest::{RestClient, RestRequest},
};

/// The input of a command.
pub type CommandInput = Pin<Box<dyn AsyncRead>>;

/// The destination of output.
pub type OutputSink<'a> = Box<dyn FnMut(&[u8]) -> CommandResult + 'a>;

/// A remote command or an attachment to one.
pub struct RemoteCommand<'a> {
    /// Path and query.
    pub request: RestRequest,
    /// The input; `None` opens no stream for it.
    pub stdin: Option<CommandInput>,
    /// The destination of standard output.
    pub stdout: Option<OutputSink<'a>>,
    /// The destination of standard error.
    pub stderr: Option<OutputSink<'a>>,
    /// Whether there is a terminal; its sizes are sent.
    pub tty: bool,
    /// Sizes that are sent first.
    pub sizes: Vec<TerminalSize>,
    /// Keys that end the input and the command's connection.
    pub detach_keys: Vec<u8>,
}

impl RemoteCommand<'_> {
    /// Runs until the command or the connection ends. The status of the command becomes the error.
    pub async fn run(mut self, client: &RestClient) -> CommandResult {
        let streams = StreamSelection {
            stdin: self.stdin.is_some(),
            stdout: self.stdout.is_some(),
            stderr: self.stderr.is_some(),
            tty: self.tty,
        };
        let CommandConnection { writer, mut output } = CommandConnection::open(client, &self.request, streams).await?;
        let resized = if self.tty { signal(SignalKind::window_change()).ok() } else { None };
        let feed = feed_input(
            writer,
            self.stdin.take(),
            resized,
            std::mem::take(&mut self.sizes),
            std::mem::take(&mut self.detach_keys),
        );
        tokio::pin!(feed);
        let mut feeding = true;
        loop {
            tokio::select! {
                item = output.recv() => match item {
                    Some(CommandOutput::Stdout(data)) => write_to(&mut self.stdout, &data)?,
                    Some(CommandOutput::Stderr(data)) => write_to(&mut self.stderr, &data)?,
                    Some(CommandOutput::Exit(status)) => return decode_status(&status),
                    None => return Ok(()),
                },
                detached = &mut feed, if feeding => {
                    if detached {
                        return Ok(());
                    }
                    feeding = false;
                }
            }
        }
    }
}

fn write_to(sink: &mut Option<OutputSink<'_>>, data: &[u8]) -> CommandResult {
    match sink {
        Some(write) => write(data),
        None => Ok(()),
    }
}

/// Sends input and sizes until the command takes no more; returns whether the user detached.
async fn feed_input(
    mut writer: CommandWriter,
    mut stdin: Option<CommandInput>,
    mut resized: Option<Signal>,
    sizes: Vec<TerminalSize>,
    detach_keys: Vec<u8>,
) -> bool {
    for size in sizes {
        if writer.resize(size).await.is_err() {
            return false;
        }
    }
    let mut timer = CommandWriter::ping_timer();
    let mut buffer = vec![0; 32 << 10];
    let mut keys = DetachKeys { sequence: detach_keys, matched: 0 };
    loop {
        let outcome = tokio::select! {
            read = read_input(&mut stdin, &mut buffer) => match read {
                0 => {
                    stdin = None;
                    writer.close_stdin().await
                }
                count => {
                    let (data, detached) = keys.filter(&buffer[..count]);
                    if detached {
                        return true;
                    }
                    if data.is_empty() { Ok(()) } else { writer.write_stdin(&data).await }
                }
            },
            () = wait_for_signal(&mut resized) => match terminal_size() {
                Some(size) => writer.resize(size).await,
                None => Ok(()),
            },
            _ = timer.tick() => writer.keep_alive().await,
        };
        if let Err(InputClosed) = outcome {
            return false;
        }
    }
}

/// Reads some input; 0 at its end. Without input it waits forever.
async fn read_input(stdin: &mut Option<CommandInput>, buffer: &mut [u8]) -> usize {
    match stdin {
        // An input that cannot be read has ended.
        Some(input) => input.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

async fn wait_for_signal(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Looks for the keys that detach.
struct DetachKeys {
    sequence: Vec<u8>,
    matched: usize,
}

impl DetachKeys {
    /// The input without keys that may belong to the sequence, and whether the sequence is complete.
    fn filter(&mut self, input: &[u8]) -> (Vec<u8>, bool) {
        if self.sequence.is_empty() {
            return (input.to_vec(), false);
        }
        let mut passed = Vec::with_capacity(input.len());
        for byte in input {
            if self.sequence.get(self.matched) == Some(byte) {
                self.matched += 1;
                if self.matched == self.sequence.len() {
                    return (passed, true);
                }
                continue;
            }
            passed.extend_from_slice(&self.sequence[..self.matched]);
            self.matched = usize::from(self.sequence.first() == Some(byte));
            if self.matched == 0 {
                passed.push(*byte);
            }
        }
        (passed, false)
    }
}

/// The error that the status of a command stands for.
fn decode_status(status: &[u8]) -> CommandResult {
    if status.is_empty() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(status);
    let status: Value = serde_json::from_slice(status).map_err(|error| {
        CommandError::new(format!("error stream protocol error: {error} in {}", api::json::go_quote(&text)))
    })?;
    let field = |name: &str| status.get(name).and_then(Value::as_str).unwrap_or_default();
    match (field("status"), field("reason")) {
        ("Success", _) => Ok(()),
        ("Failure", "NonZeroExitCode") => Err(exit_code_error(&status)),
        ("Failure", _) => Err(CommandError::new(field("message"))),
        _ => Err(CommandError::new("error stream protocol error: unknown error")),
    }
}

fn exit_code_error(status: &Value) -> CommandError {
    let protocol = |what: &str| CommandError::new(format!("error stream protocol error: {what}"));
    let Some(details) = status.get("details").filter(|details| details.is_object()) else {
        return protocol("details must be set");
    };
    let causes = details.get("causes").and_then(Value::as_array);
    let cause = causes.into_iter().flatten().find(|cause| cause["reason"] == "ExitCode");
    let Some(cause) = cause else { return protocol("no ExitCode cause given") };
    let message = cause.get("message").and_then(Value::as_str).unwrap_or_default();
    match message.parse::<u8>() {
        Ok(code) => CommandError::ExitCode(code.into(), format!("command terminated with exit code {code}")),
        Err(_) => protocol(&format!("invalid exit code value {}", api::json::go_quote(message))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_of_a_command_becomes_its_exit_code() {
        let check = |status: &str, wanted: &str| {
            let got = decode_status(status.as_bytes()).map_or_else(|error| error.to_string(), |()| "ok".to_owned());
            assert_eq!(got, wanted, "{status}");
        };
        check("", "ok");
        check(r#"{"status":"Success"}"#, "ok");
        check(
            r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#,
            "command terminated with exit code 3",
        );
        check(r#"{"status":"Failure","reason":"NonZeroExitCode"}"#, "error stream protocol error: details must be set");
        check(
            r#"{"status":"Failure","reason":"NonZeroExitCode","details":{}}"#,
            "error stream protocol error: no ExitCode cause given",
        );
        check(r#"{"status":"Failure","reason":"InternalError","message":"broken"}"#, "broken");
        check("[]", "error stream protocol error: unknown error");
    }

    #[test]
    fn detach_keys_are_withheld_until_they_are_complete() {
        let mut keys = DetachKeys { sequence: vec![16, 17], matched: 0 };
        assert_eq!(keys.filter(b"ab\x10"), (b"ab".to_vec(), false));
        assert_eq!(keys.filter(b"c"), (b"\x10c".to_vec(), false));
        assert_eq!(keys.filter(b"d\x10\x11e"), (b"d".to_vec(), true));
    }
}
