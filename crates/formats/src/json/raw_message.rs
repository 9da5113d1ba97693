//! Raw JSON: the text of a field as written, and compaction.

use super::scanner::{JsonScanner, SyntaxError};

/// Returns the raw text of a field of an object; the last duplicate wins. `None` if the field is absent or there is no
/// object.
pub fn raw_field<'b>(bytes: &'b [u8], name: &str) -> Option<&'b str> {
    let mut scan = JsonScanner { bytes, at: 0 };
    let mut found = None;
    walk_fields(&mut scan, |key, value| {
        if key == name.as_bytes() {
            found = Some(value);
        }
    })
    .ok()?;
    std::str::from_utf8(&bytes[found?]).ok()
}

fn walk_fields(
    scan: &mut JsonScanner<'_>,
    mut visit: impl FnMut(&[u8], std::ops::Range<usize>),
) -> Result<(), SyntaxError> {
    if scan.peek()? != b'{' || !scan.enter_collection(b'}')? {
        return Ok(());
    }
    loop {
        let key = scan.scan_key()?;
        scan.peek()?;
        let begins = scan.at;
        scan.skip_value()?;
        visit(&scan.bytes[key.start..key.end], begins..scan.at);
        if !scan.advance_entry(b'}')? {
            return Ok(());
        }
    }
}

/// Removes insignificant white space from JSON, and escapes the characters that Go escapes for HTML.
pub fn compact_json(text: &str) -> String {
    let (mut out, mut quoted, mut escaped) = (String::with_capacity(text.len()), false, false);
    for letter in text.chars() {
        match letter {
            ' ' | '\t' | '\r' | '\n' if !quoted => continue,
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(letter)));
                continue;
            }
            '"' if !escaped => quoted = !quoted,
            _ => {}
        }
        escaped = letter == '\\' && !escaped;
        out.push(letter);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_field_keeps_its_text() {
        let text = br#" { "a" : {"data": 1}, "data" : [ 1, {"x" :"}\""} ] , "z": null}"#;
        assert_eq!(raw_field(text, "data"), Some(r#"[ 1, {"x" :"}\""} ]"#));
        assert_eq!(raw_field(text, "z"), Some("null"));
        assert_eq!(raw_field(br#"{"data": 1, "data":2}"#, "data"), Some("2"));
        for none in [&br#"{"a": 1}"#[..], b"{}", b"[1]", b"{\"data\": ", b"", b"\xff"] {
            assert_eq!(raw_field(none, "data"), None);
        }
    }

    #[test]
    fn insignificant_white_space_is_removed() {
        assert_eq!(compact_json("{ \"a b\\\" \" :\n[1, 2 ]}"), r#"{"a b\" ":[1,2]}"#);
        assert_eq!(compact_json(r#"{"a":"<&>\\"}"#), r#"{"a":"\u003c\u0026\u003e\\"}"#);
        assert_eq!(compact_json(r#"{"a":1}"#), r#"{"a":1}"#);
    }
}
