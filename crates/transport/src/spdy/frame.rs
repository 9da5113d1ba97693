//! Encodes and decodes the SPDY/3.1 frames that a streaming client needs.
//!
//! Header blocks are one zlib stream per direction. Ours is made of stored blocks, each followed by an empty one so that
//! the peer's reader hands out what it has; the peer's are skipped, because they carry nothing that is needed.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Flag of the last frame of a stream.
const FIN: u8 = 1;
const VERSION: u16 = 3;
/// Largest accepted frame: Go's copy buffers have 32 KiB.
const MAX_LENGTH: usize = 1 << 20;

const SYN_STREAM: u16 = 1;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;

/// A received frame.
#[derive(Debug, PartialEq, Eq)]
pub enum SpdyFrame {
    /// Data of a stream.
    Data {
        /// Stream ID.
        stream: u32,
        /// Whether it is the last frame.
        fin: bool,
        /// Payload.
        data: Bytes,
    },
    /// The peer reset a stream.
    Reset(u32),
    /// Echoed unchanged.
    Ping(u32),
    /// The peer closes the connection.
    GoAway,
    /// An ignored frame: replies, settings, window updates.
    Other,
}

/// The peer does not speak SPDY/3.1, or sends oversized frames.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the stream is not SPDY/3.1: {0}")]
pub struct MalformedFrame(&'static str);

/// Takes one complete frame from `buffer`, if it contains one.
pub fn decode_frame(buffer: &mut BytesMut) -> Result<Option<SpdyFrame>, MalformedFrame> {
    if buffer.len() < 8 {
        return Ok(None);
    }
    let word = u32::from_be_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]);
    let flags = buffer[4];
    let length = u32::from_be_bytes([0, buffer[5], buffer[6], buffer[7]]) as usize;
    if length > MAX_LENGTH {
        return Err(MalformedFrame("a frame is longer than 1 MiB"));
    }
    if buffer.len() < 8 + length {
        buffer.reserve(8 + length - buffer.len());
        return Ok(None);
    }
    buffer.advance(8);
    let mut payload = buffer.split_to(length).freeze();
    if word >> 31 == 0 {
        return Ok(Some(SpdyFrame::Data { stream: word, fin: flags & FIN != 0, data: payload }));
    }
    if (word >> 16) as u16 & 0x7fff != VERSION {
        return Err(MalformedFrame("a control frame of another version"));
    }
    let kind = word as u16;
    if matches!(kind, RST_STREAM | PING) && payload.len() < 4 {
        return Err(MalformedFrame("a control frame is too short"));
    }
    Ok(Some(match kind {
        RST_STREAM => SpdyFrame::Reset(payload.get_u32() & 0x7fff_ffff),
        PING => SpdyFrame::Ping(payload.get_u32()),
        GOAWAY => SpdyFrame::GoAway,
        _ => SpdyFrame::Other,
    }))
}

/// Encodes a data frame; `data` must be shorter than 16 MiB.
pub fn encode_data(stream: u32, fin: bool, data: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(8 + data.len());
    frame.put_u32(stream);
    frame.put_u32(u32::from(if fin { FIN } else { 0 }) << 24 | data.len() as u32);
    frame.put_slice(data);
    frame.freeze()
}

/// Encodes a ping reply.
pub fn encode_ping(id: u32) -> Bytes {
    encode_control_frame(PING, &id.to_be_bytes())
}

/// Encodes the reset of a stream that is given up.
pub fn encode_reset(stream: u32) -> Bytes {
    const CANCEL: u32 = 5;
    let mut payload = [0; 8];
    payload[..4].copy_from_slice(&stream.to_be_bytes());
    payload[4..].copy_from_slice(&CANCEL.to_be_bytes());
    encode_control_frame(RST_STREAM, &payload)
}

/// Encodes SYN_STREAM frames; keeps the state of the zlib stream.
#[derive(Debug, Default)]
pub struct SynStreamEncoder {
    begun: bool,
}

impl SynStreamEncoder {
    /// Encodes a frame that opens `stream`; header names must be in lower case.
    pub fn encode_syn_stream(&mut self, stream: u32, headers: &[(&str, &str)]) -> Bytes {
        let mut block = BytesMut::new();
        block.put_u32(headers.len() as u32);
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            block.put_u32(text.len() as u32);
            block.put_slice(text.as_bytes());
        }
        let mut payload = BytesMut::new();
        payload.put_u32(stream);
        payload.put_u32(0); // no associated stream
        payload.put_u16(0); // highest priority, no slot
        if !std::mem::replace(&mut self.begun, true) {
            payload.put_slice(&[0x78, 0x01]); // zlib, no dictionary
        }
        write_stored_block(&mut payload, &block);
        write_stored_block(&mut payload, &[]);
        encode_control_frame(SYN_STREAM, &payload)
    }
}

/// Writes a stored deflate block of less than 64 KiB.
fn write_stored_block(out: &mut BytesMut, data: &[u8]) {
    let length = data.len() as u16;
    out.put_u8(0);
    out.put_u16_le(length);
    out.put_u16_le(!length);
    out.put_slice(data);
}

fn encode_control_frame(kind: u16, payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(8 + payload.len());
    frame.put_u16(0x8000 | VERSION);
    frame.put_u16(kind);
    frame.put_u32(payload.len() as u32);
    frame.put_slice(payload);
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_decoded_from_any_split() {
        let mut wire = BytesMut::new();
        wire.put_slice(&encode_data(5, false, b"hello"));
        wire.put_slice(&encode_ping(2));
        wire.put_slice(&encode_data(5, true, b""));
        wire.put_slice(&encode_control_frame(RST_STREAM, &[0, 0, 0, 5, 0, 0, 0, 5]));
        wire.put_slice(&encode_control_frame(4, &[0; 4]));
        let mut buffer = BytesMut::new();
        let mut frames = Vec::new();
        for byte in wire {
            buffer.put_u8(byte);
            frames.extend(decode_frame(&mut buffer).unwrap());
        }
        let hello = Bytes::from_static(b"hello");
        let expected = [
            SpdyFrame::Data { stream: 5, fin: false, data: hello },
            SpdyFrame::Ping(2),
            SpdyFrame::Data { stream: 5, fin: true, data: Bytes::new() },
            SpdyFrame::Reset(5),
            SpdyFrame::Other,
        ];
        assert_eq!(frames, expected);
    }

    /// Every input decodes to frames or an error, and every frame consumes bytes.
    #[test]
    fn decoding_arbitrary_bytes_terminates() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let mut bytes: Vec<u8> = (0..random.usize(..64)).map(|_| random.u8(..)).collect();
            if random.bool() && bytes.len() >= 8 {
                // A control frame of the right version, with a plausible length.
                bytes[..6].copy_from_slice(&[0x80, 0x03, 0, random.u8(..12), random.u8(..), 0]);
                bytes[6] = 0;
                bytes[7] = random.u8(..64);
            }
            let mut buffer = BytesMut::from(&bytes[..]);
            let mut left = buffer.len();
            while let Ok(Some(_)) = decode_frame(&mut buffer) {
                assert!(buffer.len() < left);
                left = buffer.len();
            }
        }
    }

    #[test]
    fn malformed_frames_are_rejected() {
        let mut http = BytesMut::from(&b"\x80\x02\0\x01\0\0\0\0"[..]);
        assert!(decode_frame(&mut http).is_err());
        let mut long = BytesMut::from(&b"\0\0\0\x01\0\xff\xff\xff"[..]);
        assert!(decode_frame(&mut long).is_err());
        let mut short = BytesMut::from(&b"\x80\x03\0\x06\0\0\0\x01\0"[..]);
        assert!(decode_frame(&mut short).is_err());
    }
}
