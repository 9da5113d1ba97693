//! A connection of the node process to a supervisor.

use std::{
    io,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use serde::Serialize;
use sys::descriptor_passing::{receive_with_descriptors, send_with_descriptors};

use super::protocol::{LONGEST_MESSAGE, SupervisorRequest, encode_message};

/// A connection.
pub struct Connection {
    /// A number that is not used again.
    pub id: u64,
    /// The socket.
    pub socket: UnixStream,
    input: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    /// Whether events are sent on it.
    pub is_subscribed: bool,
}

/// The outcome of a receive.
pub enum Received {
    /// A request with its descriptors.
    Request(SupervisorRequest, Vec<OwnedFd>),
    /// No complete message yet.
    Nothing,
    /// The connection has ended.
    End,
}

impl Connection {
    /// A connection on a socket.
    pub fn new(id: u64, socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { id, socket, input: Vec::new(), descriptors: Vec::new(), is_subscribed: false })
    }

    /// Receives what is there.
    pub fn receive(&mut self) -> Received {
        let mut buffer = vec![0; 64 << 10];
        match receive_with_descriptors(&self.socket, &mut buffer, &mut self.descriptors) {
            Ok(0) => return Received::End,
            Ok(length) => self.input.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Received::End,
        }
        self.next_request()
    }

    /// Takes a request that is complete.
    pub fn next_request(&mut self) -> Received {
        let Some(head) = self.input.first_chunk::<4>() else { return Received::Nothing };
        let length = u32::from_le_bytes(*head) as usize;
        if length > LONGEST_MESSAGE {
            return Received::End;
        }
        if self.input.len() < 4 + length {
            return Received::Nothing;
        }
        let request = serde_json::from_slice(&self.input[4..4 + length]);
        self.input.drain(..4 + length);
        match request {
            Ok(request) => Received::Request(request, std::mem::take(&mut self.descriptors)),
            Err(_) => Received::End,
        }
    }

    /// Sends a message; false if the node process does not read.
    pub fn send<T: Serialize>(&self, message: &T, descriptors: &[BorrowedFd<'_>]) -> bool {
        let bytes = encode_message(message);
        let mut rest = match send_with_descriptors(&self.socket, &bytes, descriptors) {
            Ok(sent) => &bytes[sent..],
            Err(_) => return false,
        };
        while !rest.is_empty() {
            match send_with_descriptors(&self.socket, rest, &[]) {
                Ok(sent) => rest = &rest[sent..],
                Err(_) => return false,
            }
        }
        true
    }
}
