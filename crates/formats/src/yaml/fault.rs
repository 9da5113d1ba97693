//! Translates our YAML parser's errors to the messages and line numbers of Go's library.
//!
//! Go omits the number of the first line; its scanner counts lines from 1, its parser from 0.

use granit_parser::ScanError;

use super::Error;

/// The stage of Go's library that reports an error: its scanner and its parser count lines differently.
#[derive(Clone, Copy)]
enum By {
    Scanner,
    Parser,
}

/// Our parser's message prefixes, with the stage and the message of Go's library.
const WORDS: &[(&str, By, &str)] = &[
    ("unexpected character", By::Scanner, "found character that cannot start any token"),
    ("tabs disallowed", By::Scanner, "found character that cannot start any token"),
    ("unsupported YAML major version", By::Parser, "found incompatible YAML document"),
    ("the handle wasn't declared", By::Parser, "found undefined tag handle"),
    ("misplaced bracket", By::Parser, "did not find expected node content"),
];

/// Formats the prefix `line 3: `, or an empty string for line 0.
pub fn shown_line(line: usize) -> String {
    if line == 0 { String::new() } else { format!("line {line}: ") }
}

/// Checks that the text has only characters that YAML allows.
pub fn characters(text: &str) -> Result<(), Error> {
    let allowed = |c: char| match c {
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}' => true,
        c => c == '\u{feff}' || c > '\u{ffff}',
    };
    match text.chars().all(allowed) {
        true => Ok(()),
        false => Err(Error::Value("control characters are not allowed".to_owned())),
    }
}

/// Translates a syntax error; `mapping` tells whether the innermost open collection is a mapping.
pub fn syntax(text: &str, error: &ScanError, mapping: Option<bool>) -> Error {
    let (line, told) = (error.marker().line(), error.info());
    let info: &str = &told;
    let at = |by: By, index: usize, message: &str| {
        let line = match by {
            By::Scanner if index > 0 => index + 1,
            _ => index,
        };
        Error::Syntax { line, message: message.to_owned() }
    };
    let here = line.saturating_sub(1);
    if let Some(bracket) = info.strip_prefix("unclosed bracket '") {
        return at(By::Parser, text.lines().count(), expected_in(bracket, text.trim_end()));
    }
    if let Some(bracket) = info.strip_prefix("mismatched bracket '") {
        let start: usize = text.split_inclusive('\n').take(here).map(str::len).sum();
        let close = if bracket.starts_with('[') { '}' } else { ']' };
        let end = text[start..].find(close).map_or(text.len(), |at| start + at);
        return at(By::Parser, here, expected_in(bracket, text[..end].trim_end()));
    }
    match info {
        "unclosed quote" | "invalid indentation in multiline quoted scalar" => {
            at(By::Scanner, text.matches('\n').count(), "found unexpected end of stream")
        }
        "while scanning a plain scalar, found a tab" => {
            at(By::Scanner, line, "found a tab character that violates indentation")
        }
        "simple key expected ':'" => at(By::Scanner, line, "could not find expected ':'"),
        "while parsing node, found unknown anchor" => unknown_anchor(text, error),
        info if info.starts_with("invalid trailing content") => at(
            By::Parser,
            here,
            match mapping {
                Some(true) => "did not find expected key",
                Some(false) => "did not find expected '-' indicator",
                None => "did not find expected <document start>",
            },
        ),
        info => match (WORDS.iter().find(|(ours, ..)| info.starts_with(ours)), info.split_once(", ")) {
            (Some((_, by, theirs)), _) => at(*by, here, theirs),
            (None, Some((context, what))) if context.starts_with("while ") => {
                let scanner = context.starts_with("while scanning") || context.ends_with("quoted scalar");
                // The misspelling is upstream's.
                let what = what.replace("hexadecimal", "hexdecimal");
                at(if scanner { By::Scanner } else { By::Parser }, here, &what)
            }
            _ => at(By::Scanner, here, info),
        },
    }
}

/// Returns Go's message for an incomplete flow collection.
fn expected_in(bracket: &str, before: &str) -> &'static str {
    match bracket.as_bytes().first() {
        _ if before.ends_with(['[', '{', ',']) => "did not find expected node content",
        Some(b'[') => "did not find expected ',' or ']'",
        _ => "did not find expected ',' or '}'",
    }
}

fn unknown_anchor(text: &str, error: &ScanError) -> Error {
    let line = text.lines().nth(error.marker().line().saturating_sub(1)).unwrap_or_default();
    let rest: String = line.chars().skip(error.marker().col().saturating_sub(1)).collect();
    let name = rest.split_once('*').map_or("", |(_, name)| name);
    let end = name.find(|c: char| !(c.is_ascii_alphanumeric() || "_-".contains(c))).unwrap_or(name.len());
    Error::Value(format!("unknown anchor '{}' referenced", &name[..end]))
}
