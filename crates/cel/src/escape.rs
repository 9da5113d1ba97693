//! Escaping of field names: names that CEL's grammar does not allow are escaped as in CRD validation rules.

use std::borrow::Cow;

use formats::names::is_cel_reserved;

const ESCAPES: [(&str, &str); 4] = [("__", "underscores"), (".", "dot"), ("-", "dash"), ("/", "slash")];

/// Returns the escaped name of a field; `None` if the field is not accessible from CEL.
pub fn escape_identifier(name: &str) -> Option<Cow<'_, str>> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if is_cel_reserved(name) {
        return Some(Cow::Owned(format!("__{name}__")));
    }
    if !name.contains("__") && name.bytes().all(|c| c == b'_' || c.is_ascii_alphanumeric()) {
        return Some(Cow::Borrowed(name));
    }
    let mut escaped = String::with_capacity(name.len() + 8);
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some((text, word)) = ESCAPES.iter().find(|(text, _)| rest.starts_with(text)) {
            escaped.extend(["__", word, "__"]);
            rest = &rest[text.len()..];
        } else if c == '_' || c.is_ascii_alphanumeric() {
            escaped.push(c);
            rest = &rest[1..];
        } else {
            return None;
        }
    }
    Some(Cow::Owned(escaped))
}

/// Returns the field name of an escaped identifier; `None` if it is not a valid escape.
pub fn unescape_identifier(escaped: &str) -> Option<Cow<'_, str>> {
    if !escaped.contains("__") {
        return Some(Cow::Borrowed(escaped));
    }
    let mut name = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some(at) = rest.find("__") {
        let inner = &rest[at + 2..];
        // An escape sequence contains no underscore and is closed by two.
        let Some(end) = inner.find('_').filter(|end| *end > 0 && inner[*end..].starts_with("__")) else {
            name.push_str(&rest[..=at]);
            rest = &rest[at + 1..];
            continue;
        };
        let word = &inner[..end];
        name.push_str(&rest[..at]);
        match ESCAPES.iter().find(|(_, known)| *known == word) {
            Some((text, _)) => name.push_str(text),
            None if is_cel_reserved(word) && word.len() + 4 == escaped.len() => name.push_str(word),
            None => return None,
        }
        rest = &inner[end + 2..];
    }
    name.push_str(rest);
    Some(Cow::Owned(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_identifiers_round_trip() {
        for (name, escaped) in [
            ("plain", "plain"),
            ("a-b.c/d", "a__dash__b__dot__c__slash__d"),
            ("namespace", "__namespace__"),
            ("a__b", "a__underscores__b"),
            ("_x", "_x"),
        ] {
            assert_eq!(escape_identifier(name).as_deref(), Some(escaped));
            assert_eq!(unescape_identifier(escaped).as_deref(), Some(name));
        }
        for name in ["", "1a", "a b", "ü"] {
            assert_eq!(escape_identifier(name), None, "{name}");
        }
        assert_eq!(unescape_identifier("__nope__"), None);
        assert_eq!(unescape_identifier("___").as_deref(), Some("___"));
    }
}
