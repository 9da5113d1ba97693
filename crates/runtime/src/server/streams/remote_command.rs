//! Exec and attach: a command's standard files as streams of a connection.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use serde::Deserialize;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::pipe,
    sync::mpsc,
};

use super::{
    super::{RuntimeServer, exec::output_pipe, records::Sandbox},
    client_stream::{ClientStream, StreamWriter},
};
use crate::{
    cri::types::*,
    supervisor::{ExecSession, SupervisorClient, SupervisorError, SupervisorRequest, set_nonblocking},
};

/// Time in which a client opens its streams.
const STREAM_PATIENCE: Duration = Duration::from_secs(30);
/// Time for the last output after a command has ended.
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);

/// The streams of a command.
#[derive(Default)]
struct CommandStreams {
    error: Option<ClientStream>,
    stdin: Option<ClientStream>,
    stdout: Option<ClientStream>,
    stderr: Option<ClientStream>,
    resize: Option<ClientStream>,
}

/// A size of a terminal.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TerminalSize {
    width: u16,
    height: u16,
}

impl CommandStreams {
    /// Waits for the streams that were asked for.
    async fn accept(
        opened: &mut mpsc::Receiver<ClientStream>,
        wanted: [bool; 3],
        tty: bool,
        version: &str,
    ) -> Option<Self> {
        let has_resize = tty && version.starts_with(['v']) && version >= "v3";
        let expected = 1 + wanted.iter().filter(|wanted| **wanted).count() + usize::from(has_resize);
        let mut streams = Self::default();
        for _ in 0..expected {
            let stream = tokio::time::timeout(STREAM_PATIENCE, opened.recv()).await.ok()??;
            let slot = match stream.header("streamtype") {
                "error" => &mut streams.error,
                "stdin" => &mut streams.stdin,
                "stdout" => &mut streams.stdout,
                "stderr" => &mut streams.stderr,
                "resize" => &mut streams.resize,
                _ => return None,
            };
            *slot = Some(stream);
        }
        Some(streams)
    }
}

/// Runs a command with the streams of a client.
pub async fn run_exec(
    server: &Arc<RuntimeServer>,
    request: ExecRequest,
    protocol: &str,
    mut opened: mpsc::Receiver<ClientStream>,
) {
    let wanted = [request.stdin, request.stdout, request.stderr];
    let Some(mut streams) = CommandStreams::accept(&mut opened, wanted, request.tty, protocol).await else { return };
    let error = streams.error.take();
    let command = request.cmd.join(" ");
    let outcome = async {
        let container = server.running_container(&request.container_id).map_err(|_| SupervisorError::NotFound)?;
        let sandbox = server.sandbox(&container.sandbox).map_err(|_| SupervisorError::NotFound)?;
        if request.tty {
            let session = sandbox.supervisor.exec(&container.id, request.cmd, true, [None, None, None]).await?;
            return run_terminal(session, streams, &mut opened).await;
        }
        let files = CommandFiles::new(&streams)?;
        let session = sandbox.supervisor.exec(&container.id, request.cmd, false, files.theirs()).await?;
        run_pipes(session, files, streams, &mut opened).await
    };
    let outcome = outcome.await;
    report(error.as_ref(), protocol, &command, outcome).await;
    wait_for_client(&mut opened).await;
}

/// Connects a client to the first process of a container.
pub async fn run_attach(
    server: &Arc<RuntimeServer>,
    request: AttachRequest,
    protocol: &str,
    mut opened: mpsc::Receiver<ClientStream>,
) {
    let wanted = [request.stdin, request.stdout, request.stderr];
    let Some(mut streams) = CommandStreams::accept(&mut opened, wanted, request.tty, protocol).await else { return };
    let error = streams.error.take();
    let outcome = async {
        let container = server.running_container(&request.container_id).map_err(|_| SupervisorError::NotFound)?;
        let sandbox = server.sandbox(&container.sandbox).map_err(|_| SupervisorError::NotFound)?;
        if let Some(resize) = streams.resize.take() {
            tokio::spawn(resize_container(sandbox.clone(), container.id.clone(), resize));
        }
        let files = CommandFiles::new(&streams)?;
        let session = sandbox.supervisor.attach(&container.id, files.theirs()).await?;
        run_pipes(session, files, streams, &mut opened).await
    };
    // The end of the container is not an error of attach.
    let outcome = outcome.await.map(|_| 0);
    report(error.as_ref(), protocol, "attach", outcome).await;
    wait_for_client(&mut opened).await;
}

/// Pipes between this process and a command.
#[derive(Default)]
struct CommandFiles {
    stdin: Option<(pipe::Sender, OwnedFd)>,
    stdout: Option<(pipe::Receiver, OwnedFd)>,
    stderr: Option<(pipe::Receiver, OwnedFd)>,
}

impl CommandFiles {
    fn new(streams: &CommandStreams) -> std::io::Result<Self> {
        let mut files = Self::default();
        if streams.stdin.is_some() {
            let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
            set_nonblocking(&write);
            files.stdin = Some((pipe::Sender::from_owned_fd(write)?, read));
        }
        files.stdout = streams.stdout.is_some().then(output_pipe).transpose()?;
        files.stderr = streams.stderr.is_some().then(output_pipe).transpose()?;
        Ok(files)
    }

    fn theirs(&self) -> [Option<std::os::fd::BorrowedFd<'_>>; 3] {
        [
            self.stdin.as_ref().map(|(_, theirs)| theirs.as_fd()),
            self.stdout.as_ref().map(|(_, theirs)| theirs.as_fd()),
            self.stderr.as_ref().map(|(_, theirs)| theirs.as_fd()),
        ]
    }
}

async fn run_pipes(
    mut session: ExecSession,
    files: CommandFiles,
    streams: CommandStreams,
    opened: &mut mpsc::Receiver<ClientStream>,
) -> Result<i32, SupervisorError> {
    if let (Some((ours, _)), Some(stream)) = (files.stdin, streams.stdin) {
        tokio::spawn(copy_input(stream, ours));
    }
    let copy = |file: Option<(pipe::Receiver, OwnedFd)>, stream: Option<ClientStream>| {
        let source = file.map(|(ours, _)| ours);
        let target = stream.as_ref().map(ClientStream::writer);
        async move {
            if let (Some(source), Some(target)) = (source, target) {
                copy_output(source, target).await;
            }
            stream
        }
    };
    let outputs = async { tokio::join!(copy(files.stdout, streams.stdout), copy(files.stderr, streams.stderr)) };
    finish_session(&mut session, outputs, opened).await
}

async fn run_terminal(
    mut session: ExecSession,
    streams: CommandStreams,
    opened: &mut mpsc::Receiver<ClientStream>,
) -> Result<i32, SupervisorError> {
    let terminal = session.terminal.take().ok_or(SupervisorError::Unexpected)?;
    set_nonblocking(&terminal);
    let writer = pipe::Sender::from_owned_fd_unchecked(terminal.try_clone()?)?;
    let reader = pipe::Receiver::from_owned_fd_unchecked(terminal.try_clone()?)?;
    if let Some(stream) = streams.stdin {
        tokio::spawn(copy_input(stream, writer));
    }
    if let Some(resize) = streams.resize {
        tokio::spawn(resize_terminal(terminal, resize));
    }
    let stdout = streams.stdout;
    let outputs = async {
        if let Some(stream) = &stdout {
            copy_output(reader, stream.writer()).await;
        }
    };
    finish_session(&mut session, outputs, opened).await
}

/// Waits for the command and its output; a client that disconnects ends the command.
async fn finish_session<T>(
    session: &mut ExecSession,
    outputs: impl Future<Output = T>,
    opened: &mut mpsc::Receiver<ClientStream>,
) -> Result<i32, SupervisorError> {
    tokio::pin!(outputs);
    let mut done = false;
    loop {
        tokio::select! {
            code = session.wait_for_exit() => {
                let code = code?;
                if !done {
                    // Processes that the command left behind may keep its files open.
                    let _ = tokio::time::timeout(DRAIN_PATIENCE, &mut outputs).await;
                }
                return Ok(code);
            }
            _ = &mut outputs, if !done => done = true,
            more = opened.recv() => if more.is_none() {
                return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into());
            },
        }
    }
}

async fn copy_input(mut stream: ClientStream, mut target: pipe::Sender) {
    while let Some(data) = stream.data.recv().await {
        if target.write_all(&data).await.is_err() {
            return;
        }
    }
}

async fn copy_output(mut source: pipe::Receiver, target: StreamWriter) {
    let mut buffer = vec![0; 32 << 10];
    // A terminal whose other side is closed fails: that is its end.
    while let Ok(length @ 1..) = source.read(&mut buffer).await {
        if !target.send(&buffer[..length]).await {
            return;
        }
    }
    target.finish().await;
}

async fn resize_terminal(terminal: OwnedFd, mut stream: ClientStream) {
    while let Some(data) = stream.data.recv().await {
        if let Ok(size) = serde_json::from_slice::<TerminalSize>(&data) {
            // A terminal that is gone has no size.
            let _ = sys::descriptor_passing::resize_terminal(terminal.as_fd(), size.width, size.height);
        }
    }
}

async fn resize_container(sandbox: Arc<Sandbox>, container: String, mut stream: ClientStream) {
    let supervisor: &SupervisorClient = &sandbox.supervisor;
    while let Some(data) = stream.data.recv().await {
        if let Ok(TerminalSize { width, height }) = serde_json::from_slice::<TerminalSize>(&data) {
            let request = SupervisorRequest::Resize { container: container.clone(), width, height };
            // A container that has ended has no terminal.
            let _ = supervisor.call(&request).await;
        }
    }
}

/// Says on the error stream how it ended: a status since version 4, text on failure before.
async fn report(error: Option<&ClientStream>, protocol: &str, command: &str, outcome: Result<i32, SupervisorError>) {
    let Some(writer) = error.map(ClientStream::writer) else { return };
    let failure = match outcome {
        Ok(0) => None,
        Ok(code) => {
            let message = format!(
                "command terminated with non-zero exit code: error executing command [{command}], exit code {code}"
            );
            let causes = json!([{ "reason": "ExitCode", "message": code.to_string() }]);
            Some((message, "NonZeroExitCode", json!({ "causes": causes })))
        }
        Err(error) => {
            let message = format!("error executing command in container: {error}");
            Some((message, "InternalError", json!({ "causes": [{ "message": error.to_string() }] })))
        }
    };
    let text = match (protocol, failure) {
        ("v4.channel.k8s.io", None) => json!({ "metadata": {}, "status": "Success" }).to_string(),
        ("v4.channel.k8s.io", Some((message, reason, details))) => {
            let code = if reason == "InternalError" { json!(500) } else { json!(null) };
            let mut status = json!({
                "metadata": {}, "status": "Failure", "message": message, "reason": reason, "details": details,
            });
            if !code.is_null() {
                status["code"] = code;
            }
            status.to_string()
        }
        (_, None) => String::new(),
        (_, Some((message, ..))) => message,
    };
    if text.is_empty() || writer.send(text.as_bytes()).await {
        writer.finish().await;
    }
}

/// Gives the client time to read everything and to close the connection.
async fn wait_for_client(opened: &mut mpsc::Receiver<ClientStream>) {
    let closed = async { while opened.recv().await.is_some() {} };
    let _ = tokio::time::timeout(DRAIN_PATIENCE, closed).await;
}
