//! The few words of rtnetlink that `net` needs: a request, the messages that answer it, and their attributes.
//!
//! Everything is parsed from a byte buffer with bounds checks; a malformed message ends the walk and is an error.

use std::io;

use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER: usize = 16;

/// One message without its netlink header: the family's own header, then attributes.
pub(super) type Message = Vec<u8>;

/// All objects that a dump request of this kind returns. `header` is the family's own, for example an `ifinfomsg`.
pub(super) fn dump(kind: u16, header: &[u8]) -> io::Result<Vec<Message>> {
    exchange(kind, NLM_F_REQUEST | NLM_F_DUMP, header)
}

/// Asks the kernel to do something and returns once it is done.
pub(super) fn act(kind: u16, header: &[u8]) -> io::Result<()> {
    exchange(kind, NLM_F_REQUEST | NLM_F_ACK, header).map(drop)
}

fn exchange(kind: u16, flags: u16, header: &[u8]) -> io::Result<Vec<Message>> {
    // No protocol means number 0, which is NETLINK_ROUTE.
    let socket = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    net::send(&socket, &request(kind, flags, header), SendFlags::empty())?;
    let mut messages = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let (received, _) = net::recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if !collect(&buffer[..received], &mut messages)? {
            return Ok(messages);
        }
    }
}

fn request(kind: u16, flags: u16, header: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + header.len());
    message.extend(((HEADER + header.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]); // sequence and port: one request per socket needs neither
    message.extend(header);
    message
}

/// Splits a datagram into messages; false when it ends the answer.
fn collect(mut datagram: &[u8], messages: &mut Vec<Message>) -> io::Result<bool> {
    while !datagram.is_empty() {
        let length = u32_at(datagram, 0)? as usize;
        let kind = u16_at(datagram, 4)?;
        let body = datagram.get(HEADER..length).ok_or_else(malformed)?;
        match kind {
            NLMSG_DONE => return Ok(false),
            NLMSG_ERROR => {
                let code = u32_at(body, 0)? as i32;
                return if code == 0 { Ok(false) } else { Err(io::Error::from_raw_os_error(-code)) };
            }
            _ => messages.push(body.to_vec()),
        }
        datagram = datagram.get(aligned(length)..).unwrap_or_default();
    }
    Ok(true)
}

/// The attributes after a family header of `skip` bytes: type and payload.
pub(super) fn attributes(message: &[u8], skip: usize) -> io::Result<Vec<(u16, &[u8])>> {
    let mut rest = message.get(skip..).ok_or_else(malformed)?;
    let mut found = Vec::new();
    while rest.len() >= 4 {
        let length = u16_at(rest, 0)? as usize;
        // The two top bits say how the payload is encoded; they are no part of the type.
        let kind = u16_at(rest, 2)? & 0x3fff;
        found.push((kind, rest.get(4..length).ok_or_else(malformed)?));
        rest = rest.get(aligned(length)..).unwrap_or_default();
    }
    Ok(found)
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> io::Result<u16> {
    let field = bytes.get(at..at + 2).ok_or_else(malformed)?;
    Ok(u16::from_ne_bytes([field[0], field[1]]))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> io::Result<u32> {
    let field = bytes.get(at..at + 4).ok_or_else(malformed)?;
    Ok(u32::from_ne_bytes([field[0], field[1], field[2], field[3]]))
}

pub(super) fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed netlink message")
}

fn aligned(length: usize) -> usize {
    // A length of zero would never advance; four is the smallest step.
    length.max(4).next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_message_is_an_error() {
        let mut datagram = request(16, 0, &[0; 16]);
        datagram.truncate(20);
        assert!(collect(&datagram, &mut Vec::new()).is_err());
    }

    #[test]
    fn attributes_with_a_bad_length_are_an_error() {
        assert!(attributes(&[200, 0, 3, 0, 1, 2, 3, 4], 0).is_err());
        assert!(attributes(&[0, 0, 3, 0], 0).is_err());
        assert_eq!(attributes(&[6, 0, 3, 0, 1, 2, 0, 0], 0).unwrap(), [(3, &[1, 2][..])]);
    }
}
