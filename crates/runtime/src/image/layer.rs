//! The bytes of a layer: decompressed, counted and digested as they are read.

use std::{
    fs::File,
    io::{self, BufReader, Read},
};

use sha2::{Digest, Sha256};

use super::{ImageError, manifest::format_digest};

/// A reader that digests what it reads.
pub struct DigestReader<R> {
    inner: R,
    hash: Sha256,
    /// Bytes so far.
    pub length: u64,
}

impl<R: Read> DigestReader<R> {
    /// A reader of `inner`.
    pub fn new(inner: R) -> Self {
        Self { inner, hash: Sha256::new(), length: 0 }
    }

    /// The digest of everything that was read.
    pub fn digest(self) -> String {
        format_digest(&self.hash.finalize())
    }
}

impl<R: Read> Read for DigestReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.hash.update(&buffer[..length]);
        self.length += length as u64;
        Ok(length)
    }
}

/// Opens a layer, by its first bytes: gzip, zstd or plain.
pub fn open_layer(file: File) -> Result<Box<dyn Read + Send>, ImageError> {
    decompress(BufReader::with_capacity(256 << 10, file))
}

/// Decompresses what is read, by its first bytes: gzip, zstd or plain.
pub fn decompress<R: Read + Send + 'static>(mut reader: R) -> Result<Box<dyn Read + Send>, ImageError> {
    let mut magic = [0; 4];
    let length = read_up_to(&mut reader, &mut magic).map_err(invalid)?;
    let whole = io::Cursor::new(magic[..length].to_vec()).chain(reader);
    Ok(match compression(&magic[..length]) {
        Compression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(whole)),
        Compression::Zstd => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(whole)
                .map_err(|error| ImageError::Invalid(format!("invalid zstd stream: {error}")))?;
            Box::new(decoder)
        }
        Compression::None => Box::new(whole),
    })
}

/// The compression of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

/// Tells the compression by the first bytes.
pub fn compression(first: &[u8]) -> Compression {
    match first {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
        _ => Compression::None,
    }
}

fn invalid(error: io::Error) -> ImageError {
    ImageError::Io { operation: "read a layer".into(), source: error }
}

fn read_up_to(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match reader.read(&mut buffer[length..])? {
            0 => break,
            more => length += more,
        }
    }
    Ok(length)
}
