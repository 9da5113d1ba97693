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

/// A token as errors name it: keywords in angle brackets, everything else quoted and cut.
pub fn describe_token(token: Option<&TemplateToken>) -> String {
    const KEYWORDS: [&str; 11] =
        ["block", "break", "continue", "define", "else", "end", "if", "range", "nil", "template", "with"];
    let text = match token {
        None => return "EOF".to_owned(),
        Some(TemplateToken::Word(word)) if KEYWORDS.contains(&word.as_str()) => return format!("<{word}>"),
        Some(TemplateToken::Dot) => return "<.>".to_owned(),
        Some(TemplateToken::Word(text) | TemplateToken::Variable(text) | TemplateToken::Number(text)) => text.clone(),
        Some(TemplateToken::Text(text)) => text.clone(),
        Some(TemplateToken::Text2(text)) => api::json::go_quote(text),
        Some(TemplateToken::Field(name)) => format!(".{name}"),
        Some(TemplateToken::Char(code)) => {
            format!("'{}'", u32::try_from(*code).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER))
        }
        Some(TemplateToken::Sign(sign)) => (*sign).to_owned(),
        Some(TemplateToken::Left) => "{{".to_owned(),
        Some(TemplateToken::Right) => "}}".to_owned(),
        Some(TemplateToken::Space) => " ".to_owned(),
    };
    if text.chars().count() > 10 {
        return format!("{}...", api::json::go_quote(&text.chars().take(10).collect::<String>()));
    }
    api::json::go_quote(&text)
}

/// A place in a template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TemplatePosition {
    /// The line, from 1.
    pub line: usize,
    /// The byte in the line, from 0.
    pub column: usize,
}

impl TemplatePosition {
    /// The position of a part of a text.
    fn of(text: &str, part: &str) -> Self {
        let offset = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len());
        let before = &text[..offset];
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        TemplatePosition { line: before.matches('\n').count() + 1, column: offset - start }
    }
}

/// A token and its place.
pub type PlacedToken = (TemplateToken, TemplatePosition);

/// Makes an error at a line.
pub fn error_at<T>(line: usize, text: impl std::fmt::Display) -> Result<T, TemplateError> {
    Err(TemplateError(format!("template: output:{line}: {text}")))
}

/// Splits a template into tokens.
pub fn split_tokens(text: &str) -> Result<Vec<PlacedToken>, TemplateError> {
    let mut tokens = Vec::new();
    let mut rest = text;
    let mut line = 1;
    let mut trim_next = false;
    loop {
        let Some(at) = rest.find("{{") else {
            push_text(&mut tokens, text, rest, (trim_next, false));
            return Ok(tokens);
        };
        let after = &rest[at + 2..];
        let trims = after.starts_with('-') && after[1..].starts_with([' ', '\t', '\n', '\r']);
        push_text(&mut tokens, text, &rest[..at], (trim_next, trims));
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
        tokens.push((TemplateToken::Left, TemplatePosition::of(text, after)));
        let (used, trim) = split_action(text, body, &mut line, &mut tokens)?;
        rest = &body[used..];
        trim_next = trim;
    }
}

fn push_text(tokens: &mut Vec<PlacedToken>, whole: &str, text: &str, (trim_start, trim_end): (bool, bool)) {
    let space = [' ', '\t', '\n', '\r'];
    let text = if trim_start { text.trim_start_matches(space) } else { text };
    let text = if trim_end { text.trim_end_matches(space) } else { text };
    if !text.is_empty() {
        tokens.push((TemplateToken::Text(text.to_owned()), TemplatePosition::of(whole, text)));
    }
}

/// Splits one action; returns the bytes used and whether the text after it is trimmed.
fn split_action(
    whole: &str,
    body: &str,
    line: &mut usize,
    tokens: &mut Vec<PlacedToken>,
) -> Result<(usize, bool), TemplateError> {
    let mut at = 0;
    let mut depth = 0usize;
    loop {
        let rest = &body[at..];
        let place = TemplatePosition::of(whole, rest);
        if rest.starts_with("}}") {
            if depth > 0 {
                return error_at(*line, "unclosed left paren");
            }
            tokens.push((TemplateToken::Right, place));
            return Ok((at + 2, false));
        }
        if rest.starts_with(" -}}") || rest.starts_with("\t-}}") || rest.starts_with("\n-}}") {
            tokens.push((TemplateToken::Right, place));
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
        tokens.push((token, place));
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
            check_end(&rest[end..], line)?;
            (TemplateToken::Variable(rest[..end].to_owned()), end)
        }
        '.' => {
            let end = word_end(1);
            if end == 1 {
                (TemplateToken::Dot, 1)
            } else if rest[1..].starts_with(|c: char| c.is_ascii_digit()) {
                number(rest)
            } else {
                check_end(&rest[end..], line)?;
                (TemplateToken::Field(rest[1..end].to_owned()), end)
            }
        }
        c if c == '+' || c == '-' || c.is_ascii_digit() => number(rest),
        c if is_word(c) => {
            let end = word_end(0);
            check_end(&rest[end..], line)?;
            (TemplateToken::Word(rest[..end].to_owned()), end)
        }
        c => return error_at(line, format!("unrecognized character in action: U+{:04X} '{c}'", c as u32)),
    })
}

/// Refuses characters that cannot follow a name.
fn check_end(after: &str, line: usize) -> Result<(), TemplateError> {
    match after.chars().next() {
        Some(c) if !after.starts_with("}}") && !" \t\r\n.,|:()=".contains(c) => {
            error_at(line, format!("bad character U+{:04X} '{c}'", c as u32))
        }
        _ => Ok(()),
    }
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
