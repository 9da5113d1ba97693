//! Commands in containers that are run to their end, with their output in the answer.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use tokio::{io::AsyncReadExt, net::unix::pipe};
use tonic::Status;

use super::{RuntimeServer, internal, records::ContainerEntry};
use crate::{cri::types::*, supervisor::SupervisorError};

/// The most output of a command that is kept; the rest is dropped.
const MOST_OUTPUT: usize = 16 << 20;
/// Time for output of processes that a command left behind.
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);

impl RuntimeServer {
    /// Finds a container that runs.
    pub(super) fn running_container(&self, id: &str) -> Result<Arc<ContainerEntry>, Status> {
        let container = self.container(id)?;
        match container.life().is(ContainerState::ContainerRunning) {
            true => Ok(container),
            false => Err(Status::unknown(format!("container {:?} is not running", container.id))),
        }
    }

    pub(super) async fn exec_sync(&self, request: ExecSyncRequest) -> Result<ExecSyncResponse, Status> {
        let container = self.running_container(&request.container_id)?;
        let what = format!("failed to exec in container {:?}", container.id);
        let run = self.run_command(&container, request.cmd);
        let Ok(seconds @ 1..) = u64::try_from(request.timeout) else {
            return run.await.map_err(|error| internal(&what, &error));
        };
        match tokio::time::timeout(Duration::from_secs(seconds), run).await {
            Ok(ended) => ended.map_err(|error| internal(&what, &error)),
            // The command was killed when its session was dropped.
            Err(_) => Err(Status::deadline_exceeded(format!("{what}: timeout {seconds}s exceeded"))),
        }
    }

    async fn run_command(
        &self,
        container: &ContainerEntry,
        command: Vec<String>,
    ) -> Result<ExecSyncResponse, SupervisorError> {
        let sandbox = self.sandbox(&container.sandbox).map_err(|_| SupervisorError::NotFound)?;
        let (stdout, theirs_out) = output_pipe()?;
        let (stderr, theirs_err) = output_pipe()?;
        let files = [None, Some(theirs_out.as_fd()), Some(theirs_err.as_fd())];
        let mut session = sandbox.supervisor.exec(&container.id, command, false, files).await?;
        drop((theirs_out, theirs_err));
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let exit_code = {
            let reads = async { tokio::join!(read_output(stdout, &mut out), read_output(stderr, &mut err)) };
            tokio::pin!(reads);
            tokio::select! {
                code = session.wait_for_exit() => {
                    let code = code?;
                    // Processes that the command left behind may keep the pipes open.
                    let _ = tokio::time::timeout(DRAIN_PATIENCE, reads).await;
                    code
                }
                _ = &mut reads => session.wait_for_exit().await?,
            }
        };
        Ok(ExecSyncResponse { stdout: out, stderr: err, exit_code })
    }
}

/// A pipe: its read end for this process, its write end for a container.
pub fn output_pipe() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    crate::supervisor::set_nonblocking(&read);
    Ok((pipe::Receiver::from_owned_fd(read)?, write))
}

/// Reads to the end; what exceeds the limit is dropped, so that the command does not wait.
async fn read_output(mut source: pipe::Receiver, output: &mut Vec<u8>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = source.read(&mut buffer).await {
        let room = MOST_OUTPUT.saturating_sub(output.len());
        output.extend_from_slice(&buffer[..length.min(room)]);
    }
}
