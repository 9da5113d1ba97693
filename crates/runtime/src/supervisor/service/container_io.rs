//! Input and output of a container.

use std::os::fd::OwnedFd;

use super::*;

/// The pipes of a container without a terminal.
#[derive(Default)]
pub(super) struct ContainerPipes {
    /// The ends of the child.
    pub child: StandardFiles,
    /// The ends that are read.
    pub outputs: Vec<OutputStream>,
    /// The end of its input that is written.
    pub stdin: Option<OwnedFd>,
}

impl ContainerPipes {
    pub fn new(spec: &ContainerSpec) -> io::Result<Self> {
        let mut pipes = Self::default();
        if spec.process.terminal {
            return Ok(pipes);
        }
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io::Error::from);
        let (stdout, stderr) = (pipe()?, pipe()?);
        pipes.outputs = vec![OutputStream::new(stdout.0, false), OutputStream::new(stderr.0, true)];
        (pipes.child.stdout, pipes.child.stderr) = (Some(stdout.1), Some(stderr.1));
        if spec.stdin {
            let stdin = pipe()?;
            crate::supervisor::output::set_nonblocking(&stdin.1);
            (pipes.child.stdin, pipes.stdin) = (Some(stdin.0), Some(stdin.1));
        }
        Ok(pipes)
    }
}

impl SupervisedContainer {
    pub(super) fn is_running(&self) -> bool {
        self.process.exit.is_none() && self.starting.is_none()
    }

    /// Takes the terminal: its output is the container's, and input goes to it.
    pub(super) fn take_terminal(&mut self, master: OwnedFd) {
        if let (Ok(output), Ok(input)) = (master.try_clone(), master.try_clone()) {
            self.outputs = vec![OutputStream::new(output, false)];
            self.stdin = self.spec.stdin.then_some(input);
        }
        self.terminal = Some(master);
    }

    pub(super) fn copy_output(&mut self) {
        let (log, clients) = (&mut self.log, &mut self.clients);
        self.outputs.retain_mut(|output| output.copy(log, clients));
    }

    /// Copies the last output of a container that has ended.
    pub(super) fn drain(&mut self) {
        self.copy_output();
        for mut output in self.outputs.drain(..) {
            output.finish(&mut self.log);
        }
        self.clients.iter_mut().for_each(AttachedClient::flush);
    }

    /// Moves input of clients to the container and pending output to clients.
    pub(super) fn serve_clients(&mut self) {
        let mut ended = Vec::new();
        for client in &mut self.clients {
            client.flush();
            if let Some(source) = &client.stdin {
                let goes_on = self.stdin.as_ref().is_some_and(|target| copy_input(source, target));
                if !goes_on {
                    client.stdin = None;
                    ended.push(client.connection);
                }
            }
        }
        if !ended.is_empty() && self.spec.stdin_once {
            self.close_stdin();
        }
    }

    /// Detaches clients.
    pub(super) fn detach(&mut self, is_gone: impl Fn(&AttachedClient) -> bool) {
        let had_input = self.clients.iter().any(|client| is_gone(client) && client.stdin.is_some());
        self.clients.retain(|client| !is_gone(client));
        if had_input && self.spec.stdin_once {
            self.close_stdin();
        }
    }

    fn close_stdin(&mut self) {
        self.stdin = None;
        // What reads a terminal sees no end of input until the terminal is closed; a pipe is closed now.
    }
}
