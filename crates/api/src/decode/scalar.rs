//! Scalars in canonical form: numbers that fit, quantities, times, durations and base64 as Go would write them.

use base64::{Engine, prelude::BASE64_STANDARD};

use crate::{
    Value, duration,
    quantity::{self, Quantity},
    schema::Ty,
    time,
};

/// Makes a scalar canonical; the error says what is wrong with a value of the right JSON type, and nothing of the wrong one.
pub fn canonical(ty: &Ty, value: &mut Value) -> Result<(), Option<String>> {
    match (ty, &mut *value) {
        (Ty::String | Ty::IntOrString, Value::String(_)) | (Ty::Bool, Value::Bool(_)) => Ok(()),
        (Ty::Int32 | Ty::IntOrString, Value::Number(number)) => {
            number.as_i64().and_then(|number| i32::try_from(number).ok()).map(drop).ok_or(None)
        }
        (Ty::Int64, Value::Number(number)) => number.as_i64().map(drop).ok_or(None),
        (Ty::Double, Value::Number(_)) => Ok(()),
        (Ty::Quantity, Value::String(text)) if quantity::is_canonical(text) => Ok(()),
        (Ty::Quantity, Value::String(text)) => replace(text, |text| Ok(Quantity::canonical(text.trim())?)),
        (Ty::Quantity, other) => {
            *value = Value::String(Quantity::canonical(&other.to_string()).map_err(str::to_owned)?);
            Ok(())
        }
        (Ty::Bytes, Value::String(text)) => bytes(text),
        (Ty::Bytes, Value::Array(items)) => {
            let bytes: Option<Vec<u8>> = items.iter().map(|item| u8::try_from(item.as_u64()?).ok()).collect();
            *value = Value::String(BASE64_STANDARD.encode(bytes.ok_or(None)?));
            Ok(())
        }
        (Ty::Duration, Value::String(text)) => replace(text, |text| Ok(duration::write(duration::read(text)?))),
        (Ty::Time, Value::String(text)) if time::is_canonical(text) => Ok(()),
        (Ty::Time, Value::String(text)) => replace(text, |text| Ok(time::seconds(time::read(text, false)?))),
        (Ty::MicroTime, Value::String(text)) => replace(text, |text| Ok(time::micros(time::read(text, true)?))),
        _ => Err(None),
    }
}

fn replace(text: &mut String, canonical: impl Fn(&str) -> Result<String, String>) -> Result<(), Option<String>> {
    *text = canonical(text)?;
    Ok(())
}

/// Base64, in which Go skips line ends and the last bits that stand for nothing.
fn bytes(text: &mut String) -> Result<(), Option<String>> {
    if BASE64_STANDARD.decode(text.as_bytes()).is_ok() {
        return Ok(());
    }
    match loose_base64(text.as_bytes()) {
        Ok(bytes) => {
            *text = BASE64_STANDARD.encode(bytes);
            Ok(())
        }
        Err(at) => Err(Some(format!("illegal base64 data at input byte {at}"))),
    }
}

/// The bytes, or the place that Go names.
fn loose_base64(text: &[u8]) -> Result<Vec<u8>, usize> {
    let line_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let (mut out, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for (at, byte) in text.iter().enumerate().filter(|(_, byte)| !line_end(byte)) {
        let Some(six) = sextet(*byte) else {
            padding(text, at, count)?;
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

/// What is at `at` must be the padding that ends the text, after some letters of four.
fn padding(text: &[u8], at: usize, letters: usize) -> Result<(), usize> {
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

fn sextet(byte: u8) -> Option<u32> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    LETTERS.iter().position(|letter| *letter == byte).map(|at| at as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_as_go_reads_it() {
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
            let mut text = given.to_owned();
            let got = bytes(&mut text).map(|()| text.as_str()).map_err(Option::unwrap);
            assert_eq!(got, want.map_err(|at| format!("illegal base64 data at input byte {at}")), "{given:?}");
        }
    }
}
