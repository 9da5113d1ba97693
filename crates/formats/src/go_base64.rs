//! Base64 as Go decodes it: line breaks and non-zero trailing bits are ignored.

use base64::{Engine, prelude::BASE64_STANDARD};

use crate::ParseError;

/// Returns Go's encoding of the decoded bytes if it differs from `text`; the error is Go's message.
pub fn canonicalize(text: &str) -> Result<Option<String>, ParseError> {
    if BASE64_STANDARD.decode(text.as_bytes()).is_ok() {
        return Ok(None);
    }
    let bytes =
        decode_base64(text.as_bytes()).map_err(|at| ParseError(format!("illegal base64 data at input byte {at}")))?;
    Ok(Some(BASE64_STANDARD.encode(bytes)))
}

/// Decodes base64; the error is the offset of the invalid byte, as Go reports it.
fn decode_base64(text: &[u8]) -> Result<Vec<u8>, usize> {
    let line_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let (mut out, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for (at, byte) in text.iter().enumerate().filter(|(_, byte)| !line_end(byte)) {
        let Some(six) = decode_sextet(*byte) else {
            check_padding(text, at, count)?;
            out.extend(&(bits << (6 * (4 - count))).to_be_bytes()[1..count]);
            return Ok(out);
        };
        bits = bits << 6 | six;
        count += 1;
        if count == 4 {
            out.extend(&bits.to_be_bytes()[1..]);
            (bits, count) = (0, 0);
        }
    }
    if count == 0 { Ok(out) } else { Err(text.len() - count) }
}

/// Checks that `at` is the padding that ends the input, after `letters` characters of a group of four.
fn check_padding(text: &[u8], at: usize, letters: usize) -> Result<(), usize> {
    if text[at] != b'=' || letters < 2 {
        return Err(at);
    }
    let next = |from: usize| (from..text.len()).find(|at| !matches!(text[*at], b'\n' | b'\r'));
    let mut last = at;
    if letters == 2 {
        last = next(at + 1).ok_or(text.len())?;
        if text[last] != b'=' {
            return Err(last - 1);
        }
    }
    next(last + 1).map_or(Ok(()), Err)
}

fn decode_sextet(byte: u8) -> Option<u32> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    ALPHABET.iter().position(|letter| *letter == byte).map(|at| at as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded_like_go() {
        let cases = [
            ("YQ==", Ok("YQ==")),
            ("YR==", Ok("YQ==")),
            ("YWJj\nZGVm", Ok("YWJjZGVm")),
            ("YWJ\r\nj\n", Ok("YWJj")),
            ("YQ=\n=\n", Ok("YQ==")),
            ("", Ok("")),
            ("%", Err(0)),
            ("YQ", Err(0)),
            ("YQ=", Err(3)),
            ("YQ==x", Err(4)),
            ("a", Err(0)),
            ("YW Jj", Err(2)),
            ("====", Err(0)),
            ("YQ=x", Err(2)),
            ("YWI=YQ==", Err(4)),
        ];
        for (given, want) in cases {
            let want = want.map(str::to_owned);
            let got = canonicalize(given).map(|other| other.unwrap_or_else(|| given.to_owned()));
            assert_eq!(
                got,
                want.map_err(|at| ParseError(format!("illegal base64 data at input byte {at}"))),
                "{given:?}"
            );
        }
    }
}
