//! Parses a rule's `fieldPath`, such as `.a.b` or `.a['b']`, which must name fields of the schema.

use crate::schema::{Node, Others};

/// Converts a `fieldPath` to the notation of field errors; `Err` if it is invalid.
pub fn field_path(path: &str, node: &Node) -> Result<String, String> {
    let mut out = String::new();
    let mut at = node;
    let mut rest = path;
    while !rest.is_empty() {
        let (name, after) = step(rest)?;
        rest = after;
        if at.properties.iter().any(|(_, node)| !node.implied) {
            at = at.property(&name).ok_or("does not refer to a valid field")?;
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&name);
        } else if let Others::Node(inner) = &at.others {
            at = inner;
            out.push_str(&format!("[{name}]"));
        } else {
            return Err("does not refer to a valid field".to_owned());
        }
    }
    Ok(out)
}

/// Parses the next field name; returns it and the rest of the path.
fn step(path: &str) -> Result<(String, &str), String> {
    if let Some(rest) = path.strip_prefix('.') {
        let end = rest.find(['.', '[', ']']).unwrap_or(rest.len());
        return match end {
            0 => Err("unexpected end of JSON path".to_owned()),
            end => Ok((rest[..end].to_owned(), &rest[end..])),
        };
    }
    let Some(rest) = path.strip_prefix("['") else {
        return Err(format!("expected [ or . but got: {path}"));
    };
    let mut name = String::new();
    let mut letters = rest.char_indices();
    while let Some((at, c)) = letters.next() {
        match c {
            '\'' => {
                let after = rest[at + 1..].strip_prefix(']').ok_or("unexpected end of JSON path")?;
                return Ok((name, after));
            }
            '\\' => name.push(match letters.next().map(|(_, c)| c) {
                Some('a') => '\u{7}',
                Some('b') => '\u{8}',
                Some('f') => '\u{c}',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('v') => '\u{b}',
                Some(c @ ('\'' | '\\')) => c,
                _ => return Err("invalid string literal".to_owned()),
            }),
            c => name.push(c),
        }
    }
    Err("unexpected end of JSON path".to_owned())
}
