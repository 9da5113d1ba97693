//! Header blocks of SPDY/3.1: one zlib stream per direction, with a dictionary that both sides know.

use flate2::{Decompress, FlushDecompress, Status as InflateStatus};

/// Words of the dictionary that come with their length.
const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
    accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
    content-length content-location content-md5 content-range content-type date etag expect expires from host if-match \
    if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
    proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
    user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie \
    keep-alive origin";
/// The rest of the dictionary.
const TAIL: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 \
    Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not \
    Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov \
    Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, \
    GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,\
    text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";
/// The longest block of headers.
const LONGEST_BLOCK: usize = 64 << 10;

/// The peer does not speak the protocol.
#[derive(Debug, thiserror::Error)]
#[error("the stream is not SPDY/3.1: {0}")]
pub struct SpdyProtocolError(pub &'static str);

fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1423);
    for word in WORDS.split(' ') {
        let word = word.replace('_', " ");
        bytes.extend_from_slice(&(word.len() as u32).to_be_bytes());
        bytes.extend_from_slice(word.as_bytes());
    }
    bytes.extend_from_slice(TAIL.as_bytes());
    bytes
}

/// Reads the header blocks of one direction.
pub struct HeaderReader {
    inflate: Decompress,
}

impl HeaderReader {
    pub fn new() -> Self {
        Self { inflate: Decompress::new(true) }
    }

    /// Reads a block; names are in lower case.
    pub fn read(&mut self, block: &[u8]) -> Result<Vec<(String, String)>, SpdyProtocolError> {
        let text = self.inflate_block(block)?;
        let mut rest = text.as_slice();
        let count = take_number(&mut rest)?;
        let mut headers = Vec::new();
        for _ in 0..count.min(LONGEST_BLOCK) {
            let (name, value) = (take_text(&mut rest)?, take_text(&mut rest)?);
            headers.push((name.to_ascii_lowercase(), value));
        }
        Ok(headers)
    }

    fn inflate_block(&mut self, block: &[u8]) -> Result<Vec<u8>, SpdyProtocolError> {
        let mut text = Vec::with_capacity(4096);
        let mut used = 0;
        loop {
            if text.len() > LONGEST_BLOCK {
                return Err(SpdyProtocolError("headers are too long"));
            }
            text.reserve(4096);
            let before = (self.inflate.total_in(), text.len());
            let outcome = self.inflate.decompress_vec(&block[used..], &mut text, FlushDecompress::Sync);
            used += (self.inflate.total_in() - before.0) as usize;
            match outcome {
                Err(error) if error.needs_dictionary().is_some() => {
                    let set = self.inflate.set_dictionary(&dictionary());
                    set.map_err(|_| SpdyProtocolError("the dictionary of headers is another"))?;
                }
                Err(_) => return Err(SpdyProtocolError("headers are not compressed")),
                Ok(InflateStatus::StreamEnd) => return Ok(text),
                Ok(_) if used >= block.len() && text.len() < text.capacity() => return Ok(text),
                Ok(_) if before == (self.inflate.total_in(), text.len()) => return Ok(text),
                Ok(_) => {}
            }
        }
    }
}

fn take_number(rest: &mut &[u8]) -> Result<usize, SpdyProtocolError> {
    let (head, tail) = rest.split_first_chunk::<4>().ok_or(SpdyProtocolError("headers are cut off"))?;
    *rest = tail;
    Ok(u32::from_be_bytes(*head) as usize)
}

fn take_text(rest: &mut &[u8]) -> Result<String, SpdyProtocolError> {
    let length = take_number(rest)?;
    let text = rest.get(..length).ok_or(SpdyProtocolError("headers are cut off"))?;
    *rest = &rest[length..];
    Ok(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use flate2::{Compress, Compression, FlushCompress};

    use super::*;

    fn block(headers: &[(&str, &str)]) -> Vec<u8> {
        let mut bytes = (headers.len() as u32).to_be_bytes().to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes
    }

    #[test]
    fn blocks_share_one_stream_and_the_dictionary() {
        assert_eq!(dictionary().len(), 1423);
        let mut deflate = Compress::new(Compression::best(), true);
        deflate.set_dictionary(&dictionary()).unwrap();
        let mut reader = HeaderReader::new();
        for kind in ["error", "stdout"] {
            let mut compressed = Vec::with_capacity(4096);
            let headers = [("Streamtype", kind), ("port", "80")];
            deflate.compress_vec(&block(&headers), &mut compressed, FlushCompress::Sync).unwrap();
            let found = reader.read(&compressed).unwrap();
            assert_eq!(found, [("streamtype".to_owned(), kind.to_owned()), ("port".into(), "80".into())]);
        }
        assert!(HeaderReader::new().read(b"garbage").is_err());
    }
}
