//! Translates our YAML parser's errors to the messages and line numbers of Go's library.
//!
//! Go omits the number of the first line; its scanner counts lines from 1, its parser from 0.

use granit_parser::ScanError;

use super::YamlError;

/// The stage of Go's library that reports an error: its scanner and its parser count lines differently.
#[derive(Clone, Copy)]
enum ErrorStage {
    Scanner,
    Parser,
}

/// Our parser's message prefixes, with the stage and the message of Go's library.
const WORDS: &[(&str, ErrorStage, &str)] = &[
    ("unexpected character", ErrorStage::Scanner, "found character that cannot start any token"),
    ("tabs disallowed", ErrorStage::Scanner, "found character that cannot start any token"),
    ("unsupported YAML major version", ErrorStage::Parser, "found incompatible YAML document"),
    ("the handle wasn't declared", ErrorStage::Parser, "found undefined tag handle"),
    ("misplaced bracket", ErrorStage::Parser, "did not find expected node content"),
];

/// Formats the prefix `line 3: `, or an empty string for line 0.
pub fn line_prefix(line: usize) -> String {
    if line == 0 { String::new() } else { format!("line {line}: ") }
}

/// Checks that the text has only characters that YAML allows.
pub fn check_characters(text: &str) -> Result<(), YamlError> {
    let allowed = |c: char| match c {
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}' => true,
        c => c == '\u{feff}' || c > '\u{ffff}',
    };
    match text.chars().all(allowed) {
        true => Ok(()),
        false => Err(YamlError::Value("control characters are not allowed".to_owned())),
    }
}

/// Translates a syntax error; `mapping` tells whether the innermost open collection is a mapping.
pub fn translate_syntax_error(text: &str, error: &ScanError, mapping: Option<bool>) -> YamlError {
    let (line, info) = (error.marker().line(), error.info());
    let info: &str = &info;
    let at = |by: ErrorStage, index: usize, message: &str| {
        let line = match by {
            ErrorStage::Scanner if index > 0 => index + 1,
            _ => index,
        };
        YamlError::Syntax { line, message: message.to_owned() }
    };
    let here = line.saturating_sub(1);
    if let Some(bracket) = info.strip_prefix("unclosed bracket '") {
        return at(ErrorStage::Parser, text.lines().count(), expected_message(bracket, text.trim_end()));
    }
    if let Some(bracket) = info.strip_prefix("mismatched bracket '") {
        let start: usize = text.split_inclusive('\n').take(here).map(str::len).sum();
        let close = if bracket.starts_with('[') { '}' } else { ']' };
        let end = text[start..].find(close).map_or(text.len(), |at| start + at);
        return at(ErrorStage::Parser, here, expected_message(bracket, text[..end].trim_end()));
    }
    match info {
        "unclosed quote" | "invalid indentation in multiline quoted scalar" => {
            at(ErrorStage::Scanner, text.matches('\n').count(), "found unexpected end of stream")
        }
        "while scanning a plain scalar, found a tab" => {
            at(ErrorStage::Scanner, line, "found a tab character that violates indentation")
        }
        "simple key expected ':'" => at(ErrorStage::Scanner, line, "could not find expected ':'"),
        "while parsing node, found unknown anchor" => unknown_anchor_error(text, error),
        info if info.starts_with("invalid trailing content") => at(
            ErrorStage::Parser,
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
                at(if scanner { ErrorStage::Scanner } else { ErrorStage::Parser }, here, &what)
            }
            _ => at(ErrorStage::Scanner, here, info),
        },
    }
}

/// Returns Go's message for an incomplete flow collection.
fn expected_message(bracket: &str, before: &str) -> &'static str {
    match bracket.as_bytes().first() {
        _ if before.ends_with(['[', '{', ',']) => "did not find expected node content",
        Some(b'[') => "did not find expected ',' or ']'",
        _ => "did not find expected ',' or '}'",
    }
}

fn unknown_anchor_error(text: &str, error: &ScanError) -> YamlError {
    let line = text.lines().nth(error.marker().line().saturating_sub(1)).unwrap_or_default();
    let rest: String = line.chars().skip(error.marker().col().saturating_sub(1)).collect();
    let name = rest.split_once('*').map_or("", |(_, name)| name);
    let end = name.find(|c: char| !(c.is_ascii_alphanumeric() || "_-".contains(c))).unwrap_or(name.len());
    YamlError::Value(format!("unknown anchor '{}' referenced", &name[..end]))
}
