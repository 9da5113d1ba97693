//! The node process's side of a supervisor's socket.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use sys::descriptor_passing::{receive_with_descriptors, send_with_descriptors};
use tokio::{io::Interest, net::UnixStream};

use super::protocol::{LONGEST_MESSAGE, SupervisorRequest, SupervisorResponse, encode_message};

/// A request to a supervisor failed.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// The supervisor is gone or does not answer.
    #[error("the pod's supervisor: {0}")]
    Io(#[from] io::Error),
    /// The supervisor says why it failed.
    #[error("{0}")]
    Failed(String),
    /// There is no such container.
    #[error("the container does not run")]
    NotFound,
    /// The answer is another than expected.
    #[error("the pod's supervisor sent an unexpected answer")]
    Unexpected,
}

/// A supervisor, known by its socket.
#[derive(Clone, Debug)]
pub struct SupervisorClient {
    socket: PathBuf,
}

/// A connection with whole messages.
pub struct MessageStream {
    stream: UnixStream,
    input: Vec<u8>,
    /// Descriptors that came with messages.
    pub descriptors: Vec<OwnedFd>,
}

/// A command that runs in a container; dropping it kills the command.
pub struct ExecSession {
    messages: MessageStream,
    /// The terminal, if the command has one.
    pub terminal: Option<OwnedFd>,
}

impl ExecSession {
    /// Waits for the end of the command.
    pub async fn wait_for_exit(&mut self) -> Result<i32, SupervisorError> {
        match self.messages.receive().await? {
            Some(SupervisorResponse::Exited { code }) => Ok(code),
            Some(_) => Err(SupervisorError::Unexpected),
            None => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
        }
    }
}

impl SupervisorClient {
    /// The supervisor that listens at a path.
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// Sends a request and returns the answer, unless it is an error.
    pub async fn call(&self, request: &SupervisorRequest) -> Result<SupervisorResponse, SupervisorError> {
        Ok(self.open(request, &[]).await?.0)
    }

    /// Runs a command with these standard files.
    pub async fn exec(
        &self,
        container: &str,
        arguments: Vec<String>,
        terminal: bool,
        files: [Option<BorrowedFd<'_>>; 3],
    ) -> Result<ExecSession, SupervisorError> {
        let present = files.map(|file| file.is_some());
        let request = SupervisorRequest::Exec { container: container.into(), arguments, terminal, files: present };
        let descriptors: Vec<BorrowedFd<'_>> = files.into_iter().flatten().collect();
        match self.open(&request, &descriptors).await? {
            (SupervisorResponse::Started(_), mut messages) => {
                Ok(ExecSession { terminal: messages.descriptors.pop(), messages })
            }
            _ => Err(SupervisorError::Unexpected),
        }
    }

    /// Attaches descriptors to a container; they are detached when the session is dropped.
    pub async fn attach(
        &self,
        container: &str,
        files: [Option<BorrowedFd<'_>>; 3],
    ) -> Result<ExecSession, SupervisorError> {
        let present = files.map(|file| file.is_some());
        let request = SupervisorRequest::Attach { container: container.into(), files: present };
        let descriptors: Vec<BorrowedFd<'_>> = files.into_iter().flatten().collect();
        match self.open(&request, &descriptors).await? {
            (SupervisorResponse::Done, messages) => Ok(ExecSession { terminal: None, messages }),
            _ => Err(SupervisorError::Unexpected),
        }
    }

    /// Subscribes to events.
    pub async fn subscribe(&self) -> Result<MessageStream, SupervisorError> {
        Ok(self.open(&SupervisorRequest::Subscribe, &[]).await?.1)
    }

    async fn open(
        &self,
        request: &SupervisorRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(SupervisorResponse, MessageStream), SupervisorError> {
        let stream = UnixStream::connect(&self.socket).await?;
        let mut messages = MessageStream::new(stream);
        messages.send(&encode_message(request), descriptors).await?;
        match messages.receive().await? {
            Some(SupervisorResponse::Failed(message)) => Err(SupervisorError::Failed(message)),
            Some(SupervisorResponse::NotFound) => Err(SupervisorError::NotFound),
            Some(response) => Ok((response, messages)),
            None => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
        }
    }
}

impl MessageStream {
    /// Messages of a stream.
    pub fn new(stream: UnixStream) -> Self {
        Self { stream, input: Vec::new(), descriptors: Vec::new() }
    }

    async fn send(&mut self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut rest = bytes;
        let mut descriptors = descriptors;
        while !rest.is_empty() {
            self.stream.writable().await?;
            let write = || send_with_descriptors(self.stream.as_fd(), rest, descriptors);
            match self.stream.try_io(Interest::WRITABLE, write) {
                Ok(sent) => {
                    rest = &rest[sent..];
                    descriptors = &[];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives a message; `None` at the end.
    pub async fn receive(&mut self) -> io::Result<Option<SupervisorResponse>> {
        let mut buffer = vec![0; 16 << 10];
        loop {
            if let Some(head) = self.input.first_chunk::<4>() {
                let length = u32::from_le_bytes(*head) as usize;
                if length > LONGEST_MESSAGE {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                if self.input.len() >= 4 + length {
                    let message = serde_json::from_slice(&self.input[4..4 + length])?;
                    self.input.drain(..4 + length);
                    return Ok(Some(message));
                }
            }
            self.stream.readable().await?;
            let mut descriptors = std::mem::take(&mut self.descriptors);
            let read = || receive_with_descriptors(self.stream.as_fd(), &mut buffer, &mut descriptors);
            let received = self.stream.try_io(Interest::READABLE, read);
            self.descriptors = descriptors;
            match received {
                Ok(0) => return Ok(None),
                Ok(length) => self.input.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}
