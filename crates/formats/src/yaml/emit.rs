//! The YAML emitter, with the layout of upstream's library: block style, lists at the indentation of their key, long
//! lines folded, quotes only where a plain scalar would resolve to another value.

use super::{
    natural,
    resolve::{self, Scalar},
};
use crate::{Value, json};

/// Lines longer than this are folded at the next space.
const WIDTH: usize = 80;
const INDENT: usize = 2;
/// Maximum length of a simple key; a longer one is written after a question mark.
const MAX_KEY: usize = 128;

/// Formats a value as a YAML document.
pub fn document(value: &Value) -> String {
    let mut emitter = Emitter { out: String::new(), column: 0, whitespace: true, indention: true };
    emitter.node(value, None, false);
    if emitter.column > 0 {
        emitter.line_break();
    }
    emitter.out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

struct Emitter {
    out: String,
    column: usize,
    /// Whether the last written character is a space.
    whitespace: bool,
    /// Whether the current line has only spaces and indicators.
    indention: bool,
}

impl Emitter {
    /// Emits a node at an indentation; `in_mapping` if it is the value of a key.
    fn node(&mut self, value: &Value, indent: Option<usize>, in_mapping: bool) {
        match value {
            Value::Object(map) if map.is_empty() => self.indicator("{}", true, false, false),
            Value::Array(items) if items.is_empty() => self.indicator("[]", true, false, false),
            Value::Object(map) => {
                let mut entries: Vec<(&String, &Value)> = map.iter().collect();
                entries.sort_by(|(a, _), (b, _)| natural::compare(a, b));
                let indent = indent.map_or(0, |indent| indent + INDENT);
                entries.into_iter().for_each(|(key, value)| self.entry(key, value, indent));
            }
            Value::Array(items) => {
                let compact = in_mapping && !self.indention;
                let indent = indent.map_or(0, |indent| if compact { indent } else { indent + INDENT });
                for item in items {
                    self.indent(indent);
                    self.indicator("-", true, false, true);
                    self.node(item, Some(indent), false);
                }
            }
            Value::String(text) => {
                let style = style(text, false);
                self.scalar(text, style, indent.map_or(INDENT, |indent| indent + INDENT), true);
            }
            Value::Null => self.scalar("null", Style::Plain, 0, false),
            Value::Bool(value) => self.scalar(&value.to_string(), Style::Plain, 0, false),
            Value::Number(number) => self.scalar(&json::go_number(number), Style::Plain, 0, false),
        }
    }

    fn entry(&mut self, key: &str, value: &Value, indent: usize) {
        self.indent(indent);
        if key.len() <= MAX_KEY && !key.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']) {
            self.scalar(key, style(key, true), indent + INDENT, false);
            self.indicator(":", false, false, false);
        } else {
            self.indicator("?", true, false, true);
            self.scalar(key, style(key, false), indent + INDENT, true);
            self.indent(indent);
            self.indicator(":", true, false, true);
        }
        self.node(value, Some(indent), true);
    }

    fn scalar(&mut self, text: &str, style: Style, indent: usize, breaks: bool) {
        match style {
            Style::Plain => self.plain(text, indent, breaks),
            Style::Single => self.single(text, indent, breaks),
            Style::Double => self.double(text, indent, breaks),
            Style::Literal => return self.literal(text, indent),
        }
        self.whitespace = false;
        self.indention = false;
    }

    fn plain(&mut self, text: &str, indent: usize, breaks: bool) {
        if !self.whitespace {
            self.put(' ');
        }
        self.folded(text, indent, breaks, false);
    }

    fn single(&mut self, text: &str, indent: usize, breaks: bool) {
        self.indicator("'", true, false, false);
        self.folded(text, indent, breaks, true);
        self.indicator("'", false, false, false);
    }

    /// Emits a scalar whose lines are folded at single spaces.
    fn folded(&mut self, text: &str, indent: usize, breaks: bool, quoted: bool) {
        let mut after_space = false;
        let mut chars = text.chars().enumerate().peekable();
        while let Some((at, c)) = chars.next() {
            if c != ' ' {
                if c == '\'' && quoted {
                    self.put('\'');
                }
                self.put(c);
                self.indention = false;
                after_space = false;
                continue;
            }
            let inside = !quoted || at > 0 && chars.peek().is_some();
            let followed = chars.peek().is_none_or(|(_, next)| *next != ' ');
            if breaks && !after_space && self.column > WIDTH && inside && followed {
                self.indent(indent);
            } else {
                self.put(' ');
            }
            after_space = true;
        }
    }

    fn double(&mut self, text: &str, indent: usize, breaks: bool) {
        self.indicator("\"", true, false, false);
        let mut after_space = false;
        let mut chars = text.chars().enumerate().peekable();
        while let Some((at, c)) = chars.next() {
            if let Some(escape) = escaped(c) {
                escape.chars().for_each(|c| self.put(c));
                after_space = false;
            } else if c == ' ' && breaks && !after_space && self.column > WIDTH && at > 0 && chars.peek().is_some() {
                self.indent(indent);
                if chars.peek().is_some_and(|(_, next)| *next == ' ') {
                    self.put('\\');
                }
                after_space = true;
            } else {
                self.put(c);
                after_space = c == ' ';
            }
        }
        self.indicator("\"", false, false, false);
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.indicator("|", true, false, false);
        if text.starts_with(|c: char| c == ' ' || is_break(c)) {
            self.indicator("2", false, false, false);
        }
        let mut end = text.chars().rev();
        match (end.next().is_some_and(is_break), end.next().is_none_or(is_break)) {
            (false, _) => self.indicator("-", false, false, false),
            (true, true) => self.indicator("+", false, false, false),
            (true, false) => {}
        }
        self.line_break();
        let mut at_start = true;
        for c in text.chars() {
            if is_break(c) {
                if c == '\n' {
                    self.line_break();
                } else {
                    self.out.push(c);
                    self.column = 0;
                    (self.whitespace, self.indention) = (true, true);
                }
                at_start = true;
                continue;
            }
            if at_start {
                self.indent(indent);
            }
            self.put(c);
            at_start = false;
            self.indention = false;
        }
    }

    fn indent(&mut self, indent: usize) {
        if !self.indention || self.column > indent || self.column == indent && !self.whitespace {
            self.line_break();
        }
        while self.column < indent {
            self.put(' ');
        }
        self.whitespace = true;
        self.indention = true;
    }

    fn indicator(&mut self, text: &str, spaced: bool, is_space: bool, keeps_indention: bool) {
        if spaced && !self.whitespace {
            self.put(' ');
        }
        text.chars().for_each(|c| self.put(c));
        self.whitespace = is_space;
        self.indention &= keeps_indention;
    }

    fn line_break(&mut self) {
        self.out.push('\n');
        self.column = 0;
        (self.whitespace, self.indention) = (true, true);
    }

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }
}

fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

/// Selects a scalar style that preserves the text.
fn style(text: &str, key: bool) -> Style {
    let traits = Traits::of(text);
    if text.contains('\n') {
        return if traits.block && !key { Style::Literal } else { Style::Double };
    }
    if resolve::plain(text) != Scalar::Text || text == "<<" || resolve::base_60(text) {
        return Style::Double;
    }
    match (traits.plain, traits.single) {
        (true, _) => Style::Plain,
        (false, true) => Style::Single,
        (false, false) => Style::Double,
    }
}

/// The scalar styles that a text allows.
struct Traits {
    plain: bool,
    single: bool,
    block: bool,
}

impl Traits {
    fn of(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let blank = |c: Option<&char>| c.is_none_or(|c| *c == ' ' || *c == '\t' || is_break(*c));
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        let (mut special, mut space_break, mut break_space) = (false, false, false);
        for (at, c) in chars.iter().enumerate() {
            let followed = blank(chars.get(at + 1));
            indicators |= match (at, c) {
                (0, '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`') => {
                    true
                }
                (0, '?' | '-') | (_, ':') => followed,
                (_, '#') => at > 0 && blank(chars.get(at - 1)),
                _ => false,
            };
            special |= !printable(*c);
            let before = at.checked_sub(1).map(|at| chars[at]);
            break_space |= *c == ' ' && before.is_some_and(is_break);
            space_break |= is_break(*c) && before == Some(' ');
        }
        let edge = |c: Option<&char>| c.is_some_and(|c| *c == ' ' || is_break(*c));
        let breaks = chars.iter().copied().any(is_break);
        let odd = special || space_break;
        Traits {
            plain: !(indicators || edge(chars.first()) || edge(chars.last()) || break_space || odd || breaks),
            single: !(break_space || odd),
            block: !(chars.last() == Some(&' ') || odd),
        }
    }
}

/// Returns the escape of a character in a double-quoted scalar; `None` if it needs none.
fn escaped(c: char) -> Option<String> {
    let short = match c {
        '\0' => "\\0",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\t' => "\\t",
        '\n' => "\\n",
        '\u{b}' => "\\v",
        '\u{c}' => "\\f",
        '\r' => "\\r",
        '\u{1b}' => "\\e",
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{85}' => "\\N",
        '\u{2028}' => "\\L",
        '\u{2029}' => "\\P",
        c if printable(c) => return None,
        c if (c as u32) <= 0xff => return Some(format!("\\x{:02X}", c as u32)),
        c if (c as u32) <= 0xffff => return Some(format!("\\u{:04X}", c as u32)),
        c => return Some(format!("\\U{:08X}", c as u32)),
    };
    Some(short.to_owned())
}
