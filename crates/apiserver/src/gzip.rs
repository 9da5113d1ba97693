//! gzip streams of independently compressed pieces, which lists join without compressing again.
//!
//! A piece ends on a byte boundary and has no back-references to earlier pieces, so concatenated pieces are one
//! deflate stream. The CRC of the stream is combined from those of the pieces with one polynomial multiplication each.

use bytes::{BufMut, Bytes, BytesMut};
use flate2::{Compress, Compression, Crc, FlushCompress};

/// Minimum size of a compressed response; upstream's limit.
pub const MIN_COMPRESSED_SIZE: usize = 128 * 1024;

/// The gzip header: deflate, no name, no time, fastest, unknown system.
const HEADER: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];
/// An empty last block.
const END: &[u8] = &[0x03, 0x00];
/// The polynomial of the checksum, its lowest power in the highest bit.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// The polynomial 1.
const ONE: u32 = 1 << 31;
/// The polynomial x^8: one more byte.
const BYTE: u32 = 1 << 23;

/// Bytes that were compressed by themselves.
#[derive(Clone, Debug)]
pub struct GzipPiece {
    deflated: Bytes,
    checksum: u32,
    length: u32,
    /// Factor of the preceding checksum.
    shift: u32,
}

impl GzipPiece {
    /// Compresses bytes.
    pub fn compress(bytes: &[u8]) -> Self {
        let mut checksum = Crc::new();
        checksum.update(bytes);
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Self { deflated: deflate_piece(bytes), checksum: checksum.sum(), length, shift: shift_for_length(length) }
    }
}

fn deflate_piece(bytes: &[u8]) -> Bytes {
    let mut compress = Compress::new(Compression::fast(), false);
    let mut out = Vec::with_capacity(bytes.len() / 2 + 64);
    let mut done = 0;
    loop {
        let before = compress.total_in();
        // Memory to memory, with room to spare: it cannot fail, and it ends when it leaves room unused.
        let _ = compress.compress_vec(&bytes[done..], &mut out, FlushCompress::Sync);
        done += usize::try_from(compress.total_in() - before).unwrap_or_default();
        if done == bytes.len() && out.len() < out.capacity() {
            out.shrink_to_fit();
            return out.into();
        }
        out.reserve(bytes.len() - done + 64);
    }
}

/// A stream that grows piece by piece.
pub struct GzipStream {
    out: BytesMut,
    checksum: u32,
    length: u32,
}

impl GzipStream {
    /// An empty stream with room for so many bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        let mut out = BytesMut::with_capacity(capacity + HEADER.len() + END.len() + 8);
        out.put_slice(HEADER);
        Self { out, checksum: 0, length: 0 }
    }

    /// Appends a piece.
    pub fn push_piece(&mut self, piece: &GzipPiece) {
        self.out.put_slice(&piece.deflated);
        self.checksum = multiply_polynomials(piece.shift, self.checksum) ^ piece.checksum;
        self.length = self.length.wrapping_add(piece.length);
    }

    /// The whole stream.
    pub fn finish(mut self) -> Bytes {
        self.out.put_slice(END);
        self.out.put_u32_le(self.checksum);
        self.out.put_u32_le(self.length);
        self.out.freeze()
    }
}

/// A body that is one piece.
pub fn compress_body(bytes: &[u8]) -> Bytes {
    let piece = GzipPiece::compress(bytes);
    let mut stream = GzipStream::with_capacity(piece.deflated.len());
    stream.push_piece(&piece);
    stream.finish()
}

/// x to the power of 8 times `length`.
fn shift_for_length(mut length: u32) -> u32 {
    let (mut result, mut square) = (ONE, BYTE);
    while length > 0 {
        if length & 1 == 1 {
            result = multiply_polynomials(square, result);
        }
        square = multiply_polynomials(square, square);
        length >>= 1;
    }
    result
}

/// The product of two polynomials modulo that of the checksum.
fn multiply_polynomials(a: u32, mut b: u32) -> u32 {
    let (mut product, mut bit) = (0, ONE);
    while bit != 0 {
        // Without branches: the bits are as good as random.
        product ^= b & 0u32.wrapping_sub(u32::from(a & bit != 0));
        b = (b >> 1) ^ (POLYNOMIAL & 0u32.wrapping_sub(b & 1));
        bit >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn read(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).expect("a gzip stream with a right checksum");
        out
    }

    #[test]
    fn pieces_join_to_one_stream() {
        let pieces: Vec<Vec<u8>> =
            (0..200usize).map(|n| (0..n * 37).map(|at| (at * n % 251) as u8).collect()).collect();
        let mut stream = GzipStream::with_capacity(16);
        for piece in &pieces {
            stream.push_piece(&GzipPiece::compress(piece));
        }
        assert_eq!(read(&stream.finish()), pieces.concat());
    }

    #[test]
    fn incompressible_bytes_round_trip() {
        let noise: Vec<u8> = (0..300_000).map(|_| fastrand::u8(..)).collect();
        assert_eq!(read(&compress_body(&noise)), noise);
        assert_eq!(read(&compress_body(b"")), b"");
    }
}
