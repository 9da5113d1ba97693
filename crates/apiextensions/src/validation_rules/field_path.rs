//! Parses a rule's `fieldPath`, such as `.a.b` or `.a['b']`, which must name fields of the schema.

use crate::structural_schema::{AdditionalProperties, Structural};

/// Converts a `fieldPath` to the notation of field errors; `None` if it is invalid.
pub fn parse_field_path(path: &str, node: &Structural) -> Option<String> {
    let mut out = String::new();
    let mut at = node;
    let mut rest = path;
    while !rest.is_empty() {
        let (name, after) = next_field(rest)?;
        rest = after;
        if at.properties.iter().any(|(_, node)| !node.implied) {
            at = at.property(&name)?;
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&name);
        } else if let AdditionalProperties::Schema(inner) = &at.additional_properties {
            at = inner;
            out.push_str(&format!("[{name}]"));
        } else {
            return None;
        }
    }
    Some(out)
}

/// Parses the next field name; returns it and the rest of the path.
fn next_field(path: &str) -> Option<(String, &str)> {
    if let Some(rest) = path.strip_prefix('.') {
        let end = rest.find(['.', '[', ']']).unwrap_or(rest.len());
        return (end > 0).then(|| (rest[..end].to_owned(), &rest[end..]));
    }
    let rest = path.strip_prefix("['")?;
    let mut name = String::new();
    let mut letters = rest.char_indices();
    while let Some((at, c)) = letters.next() {
        match c {
            '\'' => {
                return rest[at + 1..].strip_prefix(']').map(|after| (name, after));
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
                _ => return None,
            }),
            c => name.push(c),
        }
    }
    None
}
