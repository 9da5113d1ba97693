//! Indented JSON (`pretty=true`), as Go's `json.MarshalIndent` writes it.

/// Indents a compact JSON document by two spaces per level. The order of keys stays.
pub fn indent_json(compact: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(compact.len() * 2);
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (position, &byte) in compact.iter().enumerate() {
        if in_string {
            out.push(byte);
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        let is_empty = |close: u8| compact.get(position + 1) == Some(&close);
        match byte {
            b'"' => {
                in_string = true;
                out.push(byte);
            }
            b'{' | b'[' => {
                out.push(byte);
                depth += 1;
                if !is_empty(if byte == b'{' { b'}' } else { b']' }) {
                    start_line(&mut out, depth);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if !out.ends_with(b"{") && !out.ends_with(b"[") {
                    start_line(&mut out, depth);
                }
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                start_line(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            byte => out.push(byte),
        }
    }
    out
}

fn start_line(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.resize(out.len() + 2 * depth, b' ');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_indented_like_gos() {
        let compact = r#"{"b":[1,{"x":"a,\":{}[]\\"}],"a":{},"c":[],"d":"{"}"#;
        let want = "{\n  \"b\": [\n    1,\n    {\n      \"x\": \"a,\\\":{}[]\\\\\"\n    }\n  ],\n  \"a\": {},\n  \"c\": [],\n  \"d\": \"{\"\n}";
        assert_eq!(String::from_utf8(indent_json(compact.as_bytes())).unwrap(), want);
    }
}
