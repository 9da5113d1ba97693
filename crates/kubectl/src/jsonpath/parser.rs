//! The parser of templates, with upstream's errors.

use super::JsonPathError;

/// A node of a template.
#[derive(Clone, Debug, PartialEq)]
pub enum PathNode {
    /// The nodes of one action, each applied to the results of the one before.
    List(Vec<PathNode>),
    /// Text.
    Text(String),
    /// A field.
    Field(String),
    /// A slice: start, end, step; and whether the end was derived from the start.
    Array([Option<i64>; 3], bool),
    /// A filter: left, operator, right.
    Filter(Vec<PathNode>, String, Vec<PathNode>),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// All values.
    Wildcard,
    /// The value and all below it.
    Recursive,
    /// The results of several lists.
    Union(Vec<Vec<PathNode>>),
    /// `range` or `end`.
    Identifier(String),
}

struct PathParser {
    input: Vec<char>,
    at: usize,
    root: Vec<PathNode>,
}

fn error<T>(text: impl Into<String>) -> Result<T, JsonPathError> {
    Err(JsonPathError(text.into()))
}

/// Parses a template.
pub fn parse_template(text: &str) -> Result<Vec<PathNode>, JsonPathError> {
    let mut parser = PathParser { input: text.chars().collect(), at: 0, root: Vec::new() };
    while parser.at < parser.input.len() {
        parser.parse_text();
        if parser.peek() == Some('{') {
            parser.at += 1;
            let mut nodes = Vec::new();
            parser.parse_action(&mut nodes)?;
            parser.root.push(PathNode::List(nodes));
        }
    }
    Ok(parser.root)
}

fn parse_action_text(text: &str) -> Result<Vec<PathNode>, JsonPathError> {
    match parse_template(&format!("{{{text}}}"))?.into_iter().next() {
        Some(PathNode::List(nodes)) => Ok(nodes),
        _ => Ok(Vec::new()),
    }
}

fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

impl PathParser {
    fn peek(&self) -> Option<char> {
        self.input.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    fn starts_with(&self, prefix: &str) -> bool {
        prefix.chars().enumerate().all(|(at, c)| self.input.get(self.at + at) == Some(&c))
    }

    fn parse_text(&mut self) {
        let start = self.at;
        while self.peek().is_some_and(|c| c != '{') {
            self.at += 1;
        }
        if self.at > start {
            self.root.push(PathNode::Text(self.input[start..self.at].iter().collect()));
        }
    }

    fn parse_action(&mut self, nodes: &mut Vec<PathNode>) -> Result<(), JsonPathError> {
        loop {
            if self.starts_with("}") {
                self.at += 1;
                return Ok(());
            }
            if self.starts_with("[?(") {
                self.parse_filter(nodes)?;
                continue;
            }
            if self.starts_with("..") {
                self.parse_recursive(nodes)?;
                continue;
            }
            match self.next() {
                None | Some('\r' | '\n') => return error("unclosed action"),
                Some(' ' | '@' | '$') => {}
                Some('[') => self.parse_array(nodes)?,
                Some(quote @ ('"' | '\'')) => self.parse_quote(nodes, quote)?,
                Some('.') => self.parse_field(nodes),
                Some(c) if c == '+' || c == '-' || c.is_ascii_digit() => {
                    self.at -= 1;
                    self.parse_number(nodes)?;
                }
                Some(c) if c == '_' || c.is_alphanumeric() => {
                    self.at -= 1;
                    self.parse_identifier(nodes);
                }
                Some(c) => return error(format!("unrecognized character in action: U+{:04X} '{c}'", c as u32)),
            }
        }
    }

    fn parse_identifier(&mut self, nodes: &mut Vec<PathNode>) {
        let start = self.at;
        while self.peek().is_some_and(|c| !is_terminator(c)) {
            self.at += 1;
        }
        let word: String = self.input[start..self.at].iter().collect();
        nodes.push(match word.as_str() {
            "true" => PathNode::Bool(true),
            "false" => PathNode::Bool(false),
            _ => PathNode::Identifier(word),
        });
    }

    fn parse_recursive(&mut self, nodes: &mut Vec<PathNode>) -> Result<(), JsonPathError> {
        if nodes.last() == Some(&PathNode::Recursive) {
            return error("invalid multiple recursive descent");
        }
        self.at += 2;
        nodes.push(PathNode::Recursive);
        if self.peek().is_some_and(|c| c == '_' || c.is_alphanumeric()) {
            self.parse_field(nodes);
        }
        Ok(())
    }

    fn parse_number(&mut self, nodes: &mut Vec<PathNode>) -> Result<(), JsonPathError> {
        let start = self.at;
        self.at += 1;
        while self.peek().is_some_and(|c| c == '.' || c.is_ascii_digit()) {
            self.at += 1;
        }
        let text: String = self.input[start..self.at].iter().collect();
        let number = text.parse().map(PathNode::Int).or_else(|_| text.parse().map(PathNode::Float));
        nodes.push(number.map_err(|_| JsonPathError(format!("cannot parse number {text}")))?);
        Ok(())
    }

    fn parse_field(&mut self, nodes: &mut Vec<PathNode>) {
        let mut name = String::new();
        while let Some(c) = self.peek().filter(|c| !is_terminator(*c)) {
            self.at += 1;
            if c == '\\' {
                name.extend(self.next());
            } else {
                name.push(c);
            }
        }
        nodes.push(if name == "*" { PathNode::Wildcard } else { PathNode::Field(name) });
    }

    fn parse_quote(&mut self, nodes: &mut Vec<PathNode>, quote: char) -> Result<(), JsonPathError> {
        let start = self.at - 1;
        loop {
            match self.next() {
                None | Some('\n') => return error("unterminated quoted string"),
                Some(c) if c == quote && self.input.get(self.at.wrapping_sub(2)) != Some(&'\\') => break,
                Some(_) => {}
            }
        }
        let quoted: String = self.input[start..self.at].iter().collect();
        let inner: String = self.input[start + 1..self.at - 1].iter().collect();
        let text = unquote_text(&inner)
            .ok_or_else(|| JsonPathError(format!("unquote string {quoted} error invalid syntax")))?;
        nodes.push(PathNode::Text(text));
        Ok(())
    }

    fn parse_array(&mut self, nodes: &mut Vec<PathNode>) -> Result<(), JsonPathError> {
        let start = self.at;
        loop {
            match self.next() {
                None | Some('\n') => return error("unterminated array"),
                Some(']') => break,
                Some(_) => {}
            }
        }
        let text: String = self.input[start..self.at - 1].iter().collect();
        let text = if text == "*" { ":".to_owned() } else { text };
        let parts: Vec<&str> = text.split(',').collect();
        if parts.len() > 1 {
            let union: Result<Vec<_>, _> =
                parts.iter().map(|part| parse_action_text(&format!("[{}]", part.trim_matches(' ')))).collect();
            nodes.push(PathNode::Union(union?));
            return Ok(());
        }
        let key = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
        if let Some(key) = key.filter(|key| !key.contains('\'')) {
            nodes.extend(parse_action_text(&format!(".{key}"))?);
            return Ok(());
        }
        nodes.push(parse_slice(&text)?);
        Ok(())
    }

    fn parse_filter(&mut self, nodes: &mut Vec<PathNode>) -> Result<(), JsonPathError> {
        self.at += 3;
        let start = self.at;
        let (mut begun, mut ended, mut pair) = (false, false, ' ');
        loop {
            match self.next() {
                None | Some('\n') => return error("unterminated filter"),
                Some(c @ ('"' | '\'')) => {
                    if !begun {
                        (begun, pair) = (true, c);
                    } else if self.input.get(self.at.wrapping_sub(2)) != Some(&'\\') && c == pair {
                        ended = true;
                    }
                }
                Some(')') if begun == ended => break,
                Some(_) => {}
            }
        }
        let text: String = self.input[start..self.at - 1].iter().collect();
        if self.next() != Some(']') {
            return error("unclosed array expect ]");
        }
        nodes.push(parse_condition(&text)?);
        Ok(())
    }
}

/// Parses `left operator right`, or a path that must exist.
fn parse_condition(text: &str) -> Result<PathNode, JsonPathError> {
    let is_operator = |c: char| "!<>=".contains(c);
    let start = text.find(is_operator).filter(|at| *at > 0);
    let end = start.map(|start| start + text[start..].chars().take_while(|c| is_operator(*c)).count());
    match (start, end) {
        (Some(start), Some(end)) if end < text.len() => {
            let (left, right) = (parse_action_text(&text[..start])?, parse_action_text(&text[end..])?);
            Ok(PathNode::Filter(left, text[start..end].to_owned(), right))
        }
        _ => Ok(PathNode::Filter(parse_action_text(text)?, "exists".to_owned(), Vec::new())),
    }
}

fn parse_slice(text: &str) -> Result<PathNode, JsonPathError> {
    let parts: Vec<&str> = text.split(':').collect();
    let invalid = || JsonPathError(format!("invalid array index {text}"));
    if parts.len() > 3 {
        return Err(invalid());
    }
    let mut values = [None; 3];
    for (at, part) in parts.iter().enumerate() {
        if !part.is_empty() {
            values[at] = Some(part.parse::<i64>().map_err(|_| invalid())?);
        }
    }
    let derived = parts.len() == 1;
    if derived {
        let start = values[0].ok_or_else(invalid)?;
        values[1] = Some(start + 1);
    }
    Ok(PathNode::Array(values, derived))
}

/// Resolves the escapes of a quoted string.
pub fn unquote_text(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let code = |characters: &mut std::str::Chars, length: usize| -> Option<char> {
            let digits: String = characters.by_ref().take(length).collect();
            char::from_u32(u32::from_str_radix(&digits, 16).ok()?)
        };
        out.push(match characters.next()? {
            'x' => code(&mut characters, 2)?,
            'u' => code(&mut characters, 4)?,
            'U' => code(&mut characters, 8)?,
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            simple @ ('\\' | '"' | '\'') => simple,
            _ => return None,
        });
    }
    Some(out)
}
