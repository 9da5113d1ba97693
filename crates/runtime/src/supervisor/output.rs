//! The output of a container on its way to the log and to attached clients, and the input of clients on its way back.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{fs::OFlags, io::Errno};

use super::log_file::{LineBuffer, LogFile};

/// Bytes that wait for a client; one that is slower is cut off, because the container must not wait.
const MOST_PENDING: usize = 4 << 20;
/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// A stream of output.
pub struct OutputStream {
    /// The read end.
    pub source: OwnedFd,
    line: LineBuffer,
    /// Whether it is the error stream.
    is_stderr: bool,
}

/// An attached client.
pub struct AttachedClient {
    /// The connection that asked for it.
    pub connection: u64,
    /// Its input.
    pub stdin: Option<OwnedFd>,
    outputs: [Option<ClientOutput>; 2],
}

struct ClientOutput {
    target: OwnedFd,
    pending: Vec<u8>,
}

impl AttachedClient {
    /// A client with these descriptors.
    pub fn new(connection: u64, stdin: Option<OwnedFd>, stdout: Option<OwnedFd>, stderr: Option<OwnedFd>) -> Self {
        let output = |target: Option<OwnedFd>| {
            target.map(|target| {
                set_nonblocking(&target);
                ClientOutput { target, pending: Vec::new() }
            })
        };
        if let Some(stdin) = &stdin {
            set_nonblocking(stdin);
        }
        Self { connection, stdin, outputs: [output(stdout), output(stderr)] }
    }

    /// The descriptors whose pending bytes can be written when they are ready.
    pub fn waiting_outputs(&self) -> impl Iterator<Item = &OwnedFd> {
        let waiting = self.outputs.iter().flatten().filter(|output| !output.pending.is_empty());
        waiting.map(|output| &output.target)
    }

    /// Writes pending bytes.
    pub fn flush(&mut self) {
        for slot in &mut self.outputs {
            if slot.as_mut().is_some_and(|output| !output.flush()) {
                *slot = None;
            }
        }
    }

    fn send(&mut self, is_stderr: bool, bytes: &[u8]) {
        let slot = &mut self.outputs[usize::from(is_stderr)];
        let Some(output) = slot else { return };
        output.pending.extend_from_slice(bytes);
        if !output.flush() || output.pending.len() > MOST_PENDING {
            *slot = None;
        }
    }
}

impl ClientOutput {
    /// Writes what can be written now; false if the client is gone.
    fn flush(&mut self) -> bool {
        while !self.pending.is_empty() {
            match rustix::io::write(&self.target, &self.pending) {
                Ok(written) => drop(self.pending.drain(..written)),
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }
}

impl OutputStream {
    /// A stream that is read from a pipe or terminal.
    pub fn new(source: OwnedFd, is_stderr: bool) -> Self {
        set_nonblocking(&source);
        Self { source, line: LineBuffer::new(if is_stderr { "stderr" } else { "stdout" }), is_stderr }
    }

    /// Copies what is there; false at the end of the stream.
    pub fn copy(&mut self, log: &mut Option<LogFile>, clients: &mut [AttachedClient]) -> bool {
        let mut buffer = vec![0; CHUNK];
        loop {
            match rustix::io::read(&self.source, &mut buffer) {
                Ok(0) => {
                    self.finish(log);
                    return false;
                }
                Ok(length) => {
                    let bytes = &buffer[..length];
                    if let Some(log) = log {
                        self.line.write(bytes, log);
                    }
                    clients.iter_mut().for_each(|client| client.send(self.is_stderr, bytes));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                // A terminal whose other side is closed.
                Err(_) => {
                    self.finish(log);
                    return false;
                }
            }
        }
    }

    /// Writes a line without end.
    pub fn finish(&mut self, log: &mut Option<LogFile>) {
        if let Some(log) = log {
            self.line.finish(log);
        }
    }
}

/// Copies input of a client to a container; false at its end.
pub fn copy_input(source: &OwnedFd, target: &OwnedFd) -> bool {
    let mut buffer = [0; 4096];
    match rustix::io::read(source, &mut buffer) {
        Ok(0) => false,
        Ok(length) => write_all(target, &buffer[..length]).is_ok(),
        Err(Errno::AGAIN | Errno::INTR) => true,
        Err(_) => false,
    }
}

/// Writes everything; input of a program that does not read is dropped.
fn write_all(target: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(target, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut poll = [rustix::event::PollFd::new(target, rustix::event::PollFlags::OUT)];
                let patience = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
                if rustix::event::poll(&mut poll, Some(&patience))? == 0 {
                    return Ok(());
                }
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Makes reads and writes return at once.
pub fn set_nonblocking(file: impl AsFd) {
    if let Ok(flags) = rustix::fs::fcntl_getfl(&file) {
        // A descriptor that cannot be changed is a closed one, whose reads end at once.
        let _ = rustix::fs::fcntl_setfl(&file, flags | OFlags::NONBLOCK);
    }
}
