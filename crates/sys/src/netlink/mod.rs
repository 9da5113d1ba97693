//! Netlink: sockets, requests, response messages and attributes, for rtnetlink, nf_tables and conntrack.
//!
//! Parsing is bounds-checked; a malformed message is an error.

mod attributes;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::net::{self, AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

pub(crate) use attributes::{AttributeBuffer, parse_attributes, read_text, read_u16, read_u32};

/// A request.
pub(crate) const NLM_F_REQUEST: u16 = 1;
/// The kernel acknowledges the request.
pub(crate) const NLM_F_ACK: u16 = 4;
/// The request lists all objects.
pub(crate) const NLM_F_DUMP: u16 = 0x300;
/// An existing object is replaced.
pub(crate) const NLM_F_REPLACE: u16 = 0x100;
/// An existing object is an error.
pub(crate) const NLM_F_EXCL: u16 = 0x200;
/// A missing object is created.
pub(crate) const NLM_F_CREATE: u16 = 0x400;
/// The object is added behind others.
pub(crate) const NLM_F_APPEND: u16 = 0x800;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Length of a netlink header.
pub(crate) const HEADER_LENGTH: usize = 16;
/// Receive buffer; the kernel sends messages of dumps in pieces of at most 32 KiB.
const BUFFER_SIZE: usize = 64 * 1024;

/// A message without its netlink header: the family header, then attributes.
pub(crate) type Message = Vec<u8>;

/// A netlink socket of one protocol.
pub(crate) struct NetlinkSocket {
    socket: OwnedFd,
}

impl NetlinkSocket {
    /// Opens an rtnetlink socket.
    pub fn route() -> io::Result<Self> {
        // The default protocol is 0, NETLINK_ROUTE.
        Self::open(None, SocketFlags::CLOEXEC)
    }

    /// Opens an nfnetlink socket.
    pub fn netfilter() -> io::Result<Self> {
        Self::open(Some(net::netlink::NETFILTER), SocketFlags::CLOEXEC)
    }

    /// Opens a non-blocking socket that receives the events of multicast `groups` (a bit mask).
    pub fn subscribe(protocol: Option<Protocol>, groups: u32) -> io::Result<Self> {
        let socket = Self::open(protocol, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        net::bind(&socket.socket, &net::netlink::SocketAddrNetlink::new(0, groups))?;
        Ok(socket)
    }

    fn open(protocol: Option<Protocol>, flags: SocketFlags) -> io::Result<Self> {
        let socket = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        Ok(Self { socket })
    }

    /// The descriptor.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Gives up the descriptor.
    pub fn into_fd(self) -> OwnedFd {
        self.socket
    }

    /// Sends one request and collects its response until the end of a dump or the acknowledgement.
    pub fn exchange(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<Message>> {
        self.send(&encode_request(kind, flags, 0, body))?;
        let mut messages = Vec::new();
        let mut buffer = vec![0; BUFFER_SIZE];
        loop {
            let received = self.receive(&mut buffer, RecvFlags::empty())?;
            if !collect_messages(buffer.get(..received).unwrap_or_default(), &mut messages)? {
                return Ok(messages);
            }
        }
    }

    /// Sends bytes as they are.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        net::send(&self.socket, bytes, SendFlags::empty()).map(drop).map_err(Into::into)
    }

    /// Receives one datagram; an empty one is an error.
    pub fn receive(&self, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
        loop {
            match net::recv(&self.socket, &mut *buffer, flags) {
                Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((received, _)) => return Ok(received),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Sends an rtnetlink dump request and returns its messages. `body` is the family header and attributes.
pub(crate) fn dump_objects(kind: u16, body: &[u8]) -> io::Result<Vec<Message>> {
    NetlinkSocket::route()?.exchange(kind, NLM_F_REQUEST | NLM_F_DUMP, body)
}

/// Sends an rtnetlink command and waits for its acknowledgement.
pub(crate) fn send_command(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    NetlinkSocket::route()?.exchange(kind, NLM_F_REQUEST | NLM_F_ACK | flags, body).map(drop)
}

/// Encodes a netlink message: header and body.
pub(crate) fn encode_request(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER_LENGTH + body.len());
    append_request(&mut message, kind, flags, sequence, body);
    message
}

/// Appends a netlink message, padded to a multiple of four bytes.
pub(crate) fn append_request(out: &mut Vec<u8>, kind: u16, flags: u16, sequence: u32, body: &[u8]) {
    out.extend(((HEADER_LENGTH + body.len()) as u32).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend(sequence.to_ne_bytes());
    out.extend([0; 4]); // the kernel knows the port of the socket
    out.extend(body);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Splits a datagram into messages; returns false at the end of the response.
fn collect_messages(datagram: &[u8], messages: &mut Vec<Message>) -> io::Result<bool> {
    for message in split_datagram(datagram) {
        let message = message?;
        match message.kind {
            NLMSG_DONE => return Ok(false),
            NLMSG_ERROR => {
                let code = read_u32(message.body, 0)? as i32;
                return if code == 0 { Ok(false) } else { Err(io::Error::from_raw_os_error(-code)) };
            }
            _ => messages.push(message.body.to_vec()),
        }
    }
    Ok(true)
}

/// A message within a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramMessage<'a> {
    /// The message type.
    pub kind: u16,
    /// The sequence number of the request that it answers.
    pub sequence: u32,
    /// Payload behind the netlink header.
    pub body: &'a [u8],
}

impl DatagramMessage<'_> {
    /// The error code of an error message; 0 is an acknowledgement. `None` for other messages.
    pub fn error_code(&self) -> Option<i32> {
        (self.kind == NLMSG_ERROR).then(|| read_u32(self.body, 0).map_or(0, |code| -(code as i32)))
    }
}

/// Iterates over the messages of a datagram; ends after a malformed one.
pub(crate) fn split_datagram(mut datagram: &[u8]) -> impl Iterator<Item = io::Result<DatagramMessage<'_>>> {
    std::iter::from_fn(move || {
        if datagram.is_empty() {
            return None;
        }
        let first = first_message(datagram);
        let length = first.as_ref().map_or(datagram.len(), |message| HEADER_LENGTH + message.body.len());
        datagram = datagram.get(align_length(length)..).unwrap_or_default();
        Some(first)
    })
}

fn first_message(datagram: &[u8]) -> io::Result<DatagramMessage<'_>> {
    let length = read_u32(datagram, 0)? as usize;
    let body = datagram.get(HEADER_LENGTH..length).ok_or_else(malformed_error)?;
    Ok(DatagramMessage { kind: read_u16(datagram, 4)?, sequence: read_u32(datagram, 8)?, body })
}

pub(crate) fn malformed_error() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed netlink message")
}

fn align_length(length: usize) -> usize {
    // A length of zero would not advance.
    length.max(4).next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_message_is_an_error() {
        let mut datagram = encode_request(16, 0, 0, &[0; 16]);
        datagram.truncate(20);
        assert!(collect_messages(&datagram, &mut Vec::new()).is_err());
    }

    #[test]
    fn datagram_is_split_at_padded_lengths() {
        let mut datagram = encode_request(20, 0, 7, &[1, 2, 3]);
        append_request(&mut datagram, 21, 0, 8, &[4]);
        let messages: Vec<_> = split_datagram(&datagram).map(Result::unwrap).collect();
        assert_eq!(messages[0], DatagramMessage { kind: 20, sequence: 7, body: &[1, 2, 3] });
        assert_eq!((messages[1].kind, messages[1].sequence, messages.len()), (21, 8, 2));
    }
}
