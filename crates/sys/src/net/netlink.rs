//! Minimal rtnetlink: requests, response messages and attributes.
//!
//! Parsing is bounds-checked; a malformed message is an error.

use std::io;

use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER_LENGTH: usize = 16;

/// A message without its netlink header: the family header, then attributes.
pub(super) type Message = Vec<u8>;

/// Sends a dump request and returns its messages. `header` is the family header, for example an `ifinfomsg`.
pub(super) fn dump_objects(kind: u16, header: &[u8]) -> io::Result<Vec<Message>> {
    exchange_messages(kind, NLM_F_REQUEST | NLM_F_DUMP, header)
}

/// Sends a command and waits for its acknowledgement.
pub(super) fn send_command(kind: u16, header: &[u8]) -> io::Result<()> {
    exchange_messages(kind, NLM_F_REQUEST | NLM_F_ACK, header).map(drop)
}

fn exchange_messages(kind: u16, flags: u16, header: &[u8]) -> io::Result<Vec<Message>> {
    // The default protocol is 0, NETLINK_ROUTE.
    let socket = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    net::send(&socket, &encode_request(kind, flags, header), SendFlags::empty())?;
    let mut messages = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let (received, _) = net::recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if !collect_messages(&buffer[..received], &mut messages)? {
            return Ok(messages);
        }
    }
}

fn encode_request(kind: u16, flags: u16, header: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER_LENGTH + header.len());
    message.extend(((HEADER_LENGTH + header.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]); // sequence and port: one request per socket needs neither
    message.extend(header);
    message
}

/// Splits a datagram into messages; returns false at the end of the response.
fn collect_messages(mut datagram: &[u8], messages: &mut Vec<Message>) -> io::Result<bool> {
    while !datagram.is_empty() {
        let length = read_u32(datagram, 0)? as usize;
        let kind = read_u16(datagram, 4)?;
        let body = datagram.get(HEADER_LENGTH..length).ok_or_else(malformed_error)?;
        match kind {
            NLMSG_DONE => return Ok(false),
            NLMSG_ERROR => {
                let code = read_u32(body, 0)? as i32;
                return if code == 0 { Ok(false) } else { Err(io::Error::from_raw_os_error(-code)) };
            }
            _ => messages.push(body.to_vec()),
        }
        datagram = datagram.get(align_length(length)..).unwrap_or_default();
    }
    Ok(true)
}

/// Parses the attributes after a family header of `skip` bytes: type and payload.
pub(super) fn parse_attributes(message: &[u8], skip: usize) -> io::Result<Vec<(u16, &[u8])>> {
    let mut rest = message.get(skip..).ok_or_else(malformed_error)?;
    let mut found = Vec::new();
    while rest.len() >= 4 {
        let length = read_u16(rest, 0)? as usize;
        // The two top bits are flags.
        let kind = read_u16(rest, 2)? & 0x3fff;
        found.push((kind, rest.get(4..length).ok_or_else(malformed_error)?));
        rest = rest.get(align_length(length)..).unwrap_or_default();
    }
    Ok(found)
}

pub(super) fn read_u16(bytes: &[u8], at: usize) -> io::Result<u16> {
    let field = bytes.get(at..at + 2).ok_or_else(malformed_error)?;
    Ok(u16::from_ne_bytes([field[0], field[1]]))
}

pub(super) fn read_u32(bytes: &[u8], at: usize) -> io::Result<u32> {
    let field = bytes.get(at..at + 4).ok_or_else(malformed_error)?;
    Ok(u32::from_ne_bytes([field[0], field[1], field[2], field[3]]))
}

pub(super) fn malformed_error() -> io::Error {
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
        let mut datagram = encode_request(16, 0, &[0; 16]);
        datagram.truncate(20);
        assert!(collect_messages(&datagram, &mut Vec::new()).is_err());
    }

    #[test]
    fn attribute_with_invalid_length_is_an_error() {
        assert!(parse_attributes(&[200, 0, 3, 0, 1, 2, 3, 4], 0).is_err());
        assert!(parse_attributes(&[0, 0, 3, 0], 0).is_err());
        assert_eq!(parse_attributes(&[6, 0, 3, 0, 1, 2, 0, 0], 0).unwrap(), [(3, &[1, 2][..])]);
    }
}
