//! The lexer: text and the tokens of actions.

use super::TemplateError;

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub enum TemplateToken {
    /// Text outside actions.
    Text(String),
    /// `{{`
    Left,
    /// `}}`
    Right,
    /// A word: a keyword or a function.
    Word(String),
    /// `.name`
    Field(String),
    /// `$name`
    Variable(String),
    /// A quoted string.
    Text2(String),
    /// A number.
    Number(String),
    /// A character constant.
    Char(i64),
    /// `.`
    Dot,
    /// `|`, `(`, `)`, `,`, `:=`, `=`
    Sign(&'static str),
    /// White space.
    Space,
}

/// A token and its line.
pub type LinedToken = (TemplateToken, usize);

/// Makes an error at a line.
pub fn error_at<T>(line: usize, text: impl std::fmt::Display) -> Result<T, TemplateError> {
    Err(TemplateError(format!("template: output:{line}: {text}")))
}

/// Splits a template into tokens.
pub fn split_tokens(text: &str) -> Result<Vec<LinedToken>, TemplateError> {
    let mut tokens = Vec::new();
    let mut rest = text;
    let mut line = 1;
    let mut trim_next = false;
    loop {
        let Some(at) = rest.find("{{") else {
            push_text(&mut tokens, rest, trim_next, false, line);
            return Ok(tokens);
        };
        let after = &rest[at + 2..];
        let trims = after.starts_with('-') && after[1..].starts_with([' ', '\t', '\n', '\r']);
        push_text(&mut tokens, &rest[..at], trim_next, trims, line);
        line += rest[..at].matches('\n').count();
        let body = if trims { &after[1..] } else { after };
        if body.trim_start().starts_with("/*") {
            let Some(end) = body.find("*/") else { return error_at(line, "unclosed comment") };
            line += body[..end].matches('\n').count();
            let tail = body[end + 2..].trim_start();
            let (tail, trim) = match tail.strip_prefix("-}}") {
                Some(tail) => (tail, true),
                None => match tail.strip_prefix("}}") {
                    Some(tail) => (tail, false),
                    None => return error_at(line, "comment ends before closing delimiter"),
                },
            };
            (rest, trim_next) = (tail, trim);
            continue;
        }
        tokens.push((TemplateToken::Left, line));
        let (used, trim) = split_action(body, &mut line, &mut tokens)?;
        rest = &body[used..];
        trim_next = trim;
    }
}

fn push_text(tokens: &mut Vec<LinedToken>, text: &str, trim_start: bool, trim_end: bool, line: usize) {
    let space = [' ', '\t', '\n', '\r'];
    let text = if trim_start { text.trim_start_matches(space) } else { text };
    let text = if trim_end { text.trim_end_matches(space) } else { text };
    if !text.is_empty() {
        tokens.push((TemplateToken::Text(text.to_owned()), line));
    }
}

/// Splits one action; returns the bytes used and whether the text after it is trimmed.
fn split_action(body: &str, line: &mut usize, tokens: &mut Vec<LinedToken>) -> Result<(usize, bool), TemplateError> {
    let mut at = 0;
    let mut depth = 0usize;
    loop {
        let rest = &body[at..];
        if rest.starts_with("}}") {
            if depth > 0 {
                return error_at(*line, "unclosed left paren");
            }
            tokens.push((TemplateToken::Right, *line));
            return Ok((at + 2, false));
        }
        if rest.starts_with(" -}}") || rest.starts_with("\t-}}") || rest.starts_with("\n-}}") {
            tokens.push((TemplateToken::Right, *line));
            return Ok((at + 4, true));
        }
        let Some(first) = rest.chars().next() else { return error_at(*line, "unclosed action") };
        match first {
            '(' => depth += 1,
            ')' if depth == 0 => return error_at(*line, "unexpected right paren"),
            ')' => depth -= 1,
            _ => {}
        }
        let (token, used) = next_token(rest, first, *line)?;
        *line += rest[..used].matches('\n').count();
        if token == TemplateToken::Space && matches!(tokens.last(), Some((TemplateToken::Space, _))) {
            at += used;
            continue;
        }
        tokens.push((token, *line));
        at += used;
    }
}

fn next_token(rest: &str, first: char, line: usize) -> Result<(TemplateToken, usize), TemplateError> {
    let is_word = |c: char| c == '_' || c.is_alphanumeric();
    let word_end = |from: usize| rest[from..].find(|c: char| !is_word(c)).map_or(rest.len(), |at| at + from);
    Ok(match first {
        ' ' | '\t' | '\r' | '\n' => (TemplateToken::Space, 1),
        '|' => (TemplateToken::Sign("|"), 1),
        '(' => (TemplateToken::Sign("("), 1),
        ')' => (TemplateToken::Sign(")"), 1),
        ',' => (TemplateToken::Sign(","), 1),
        '=' => (TemplateToken::Sign("="), 1),
        ':' if rest.starts_with(":=") => (TemplateToken::Sign(":="), 2),
        ':' => return error_at(line, "expected :="),
        '"' => quoted(rest, line)?,
        '`' => match rest[1..].find('`') {
            Some(end) => (TemplateToken::Text2(rest[1..=end].to_owned()), end + 2),
            None => return error_at(line, "unterminated raw quoted string"),
        },
        '\'' => character(rest, line)?,
        '$' => {
            let end = word_end(1);
            (TemplateToken::Variable(rest[..end].to_owned()), end)
        }
        '.' => {
            let end = word_end(1);
            if end == 1 {
                (TemplateToken::Dot, 1)
            } else if rest[1..].starts_with(|c: char| c.is_ascii_digit()) {
                number(rest)
            } else {
                (TemplateToken::Field(rest[1..end].to_owned()), end)
            }
        }
        c if c == '+' || c == '-' || c.is_ascii_digit() => number(rest),
        c if is_word(c) => {
            let end = word_end(0);
            (TemplateToken::Word(rest[..end].to_owned()), end)
        }
        c => return error_at(line, format!("unrecognized character in action: U+{:04X} '{c}'", c as u32)),
    })
}

fn quoted(rest: &str, line: usize) -> Result<(TemplateToken, usize), TemplateError> {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '\n' => break,
            '\\' if !escaped => escaped = true,
            '"' if !escaped => {
                let Some(text) = crate::jsonpath::unquote_text(&rest[1..at]) else {
                    return error_at(line, format!("invalid syntax: {}", &rest[..=at]));
                };
                return Ok((TemplateToken::Text2(text), at + 1));
            }
            _ => escaped = false,
        }
    }
    error_at(line, "unterminated quoted string")
}

fn character(rest: &str, line: usize) -> Result<(TemplateToken, usize), TemplateError> {
    let end = rest.char_indices().skip(2).find(|(_, c)| *c == '\'').map(|(at, _)| at);
    let text = end.and_then(|end| crate::jsonpath::unquote_text(&rest[1..end]));
    match (end, text.as_deref().and_then(|text| text.chars().next())) {
        (Some(end), Some(c)) => Ok((TemplateToken::Char(i64::from(c as u32)), end + 1)),
        _ => error_at(line, "unterminated character constant"),
    }
}

fn number(rest: &str) -> (TemplateToken, usize) {
    let mut end = usize::from(rest.starts_with(['+', '-']));
    let bytes = rest.as_bytes();
    while let Some(byte) = bytes.get(end) {
        let exponent_sign = (*byte == b'+' || *byte == b'-') && matches!(bytes[end - 1], b'e' | b'E');
        if byte.is_ascii_alphanumeric() || *byte == b'.' || *byte == b'_' || exponent_sign {
            end += 1;
        } else {
            break;
        }
    }
    (TemplateToken::Number(rest[..end].to_owned()), end.max(1))
}
