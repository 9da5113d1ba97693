//! The YAML emitter, with the layout of upstream's library: block style, lists at the indentation of their key, long
//! lines folded, quotes only where a plain scalar would resolve to another value.

use super::{
    key_order,
    resolve::{self, ResolvedScalar},
};
use crate::{Value, json};

/// Lines longer than this are folded at the next space.
const WIDTH: usize = 80;
const INDENT: usize = 2;
/// Maximum length of a simple key; a longer one is written after a question mark.
const MAX_KEY: usize = 128;

/// Formats a value as a YAML document.
pub fn emit_document(value: &Value) -> String {
    let mut emitter = YamlEmitter { out: String::new(), column: 0, whitespace: true, indention: true };
    emitter.emit_node(value, None, false);
    if emitter.column > 0 {
        emitter.write_line_break();
    }
    emitter.out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EmitStyle {
    Plain,
    Single,
    Double,
    Literal,
}

struct YamlEmitter {
    out: String,
    column: usize,
    /// Whether the last written character is a space.
    whitespace: bool,
    /// Whether the current line has only spaces and indicators.
    indention: bool,
}

impl YamlEmitter {
    /// Emits a node at an indentation; `in_mapping` if it is the value of a key.
    fn emit_node(&mut self, value: &Value, indent: Option<usize>, in_mapping: bool) {
        match value {
            Value::Object(map) if map.is_empty() => self.write_indicator("{}", true, false, false),
            Value::Array(items) if items.is_empty() => self.write_indicator("[]", true, false, false),
            Value::Object(map) => {
                let mut entries: Vec<(&String, &Value)> = map.iter().collect();
                entries.sort_by(|(a, _), (b, _)| key_order::compare_keys(a, b));
                let indent = indent.map_or(0, |indent| indent + INDENT);
                entries.into_iter().for_each(|(key, value)| self.emit_entry(key, value, indent));
            }
            Value::Array(items) => {
                let compact = in_mapping && !self.indention;
                let indent = indent.map_or(0, |indent| if compact { indent } else { indent + INDENT });
                for item in items {
                    self.write_indent(indent);
                    self.write_indicator("-", true, false, true);
                    self.emit_node(item, Some(indent), false);
                }
            }
            Value::String(text) => {
                let style = select_style(text, false);
                self.emit_scalar(text, style, indent.map_or(INDENT, |indent| indent + INDENT), true);
            }
            Value::Null => self.emit_scalar("null", EmitStyle::Plain, 0, false),
            Value::Bool(value) => self.emit_scalar(&value.to_string(), EmitStyle::Plain, 0, false),
            Value::Number(number) => self.emit_scalar(&json::go_number(number), EmitStyle::Plain, 0, false),
        }
    }

    fn emit_entry(&mut self, key: &str, value: &Value, indent: usize) {
        self.write_indent(indent);
        if key.len() <= MAX_KEY && !key.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']) {
            self.emit_scalar(key, select_style(key, true), indent + INDENT, false);
            self.write_indicator(":", false, false, false);
        } else {
            self.write_indicator("?", true, false, true);
            self.emit_scalar(key, select_style(key, false), indent + INDENT, true);
            self.write_indent(indent);
            self.write_indicator(":", true, false, true);
        }
        self.emit_node(value, Some(indent), true);
    }

    fn emit_scalar(&mut self, text: &str, style: EmitStyle, indent: usize, breaks: bool) {
        match style {
            EmitStyle::Plain => self.emit_plain(text, indent, breaks),
            EmitStyle::Single => self.emit_single_quoted(text, indent, breaks),
            EmitStyle::Double => self.emit_double_quoted(text, indent, breaks),
            EmitStyle::Literal => return self.emit_literal(text, indent),
        }
        self.whitespace = false;
        self.indention = false;
    }

    fn emit_plain(&mut self, text: &str, indent: usize, breaks: bool) {
        if !self.whitespace {
            self.write_char(' ');
        }
        self.emit_folded(text, indent, breaks, false);
    }

    fn emit_single_quoted(&mut self, text: &str, indent: usize, breaks: bool) {
        self.write_indicator("'", true, false, false);
        self.emit_folded(text, indent, breaks, true);
        self.write_indicator("'", false, false, false);
    }

    /// Emits a scalar whose lines are folded at single spaces.
    fn emit_folded(&mut self, text: &str, indent: usize, breaks: bool, quoted: bool) {
        let mut after_space = false;
        let mut chars = text.chars().enumerate().peekable();
        while let Some((at, c)) = chars.next() {
            if c != ' ' {
                if c == '\'' && quoted {
                    self.write_char('\'');
                }
                self.write_char(c);
                self.indention = false;
                after_space = false;
                continue;
            }
            let inside = !quoted || at > 0 && chars.peek().is_some();
            let followed = chars.peek().is_none_or(|(_, next)| *next != ' ');
            if breaks && !after_space && self.column > WIDTH && inside && followed {
                self.write_indent(indent);
            } else {
                self.write_char(' ');
            }
            after_space = true;
        }
    }

    fn emit_double_quoted(&mut self, text: &str, indent: usize, breaks: bool) {
        self.write_indicator("\"", true, false, false);
        let mut after_space = false;
        let mut chars = text.chars().enumerate().peekable();
        while let Some((at, c)) = chars.next() {
            if let Some(escape) = escape_char(c) {
                escape.chars().for_each(|c| self.write_char(c));
                after_space = false;
            } else if c == ' ' && breaks && !after_space && self.column > WIDTH && at > 0 && chars.peek().is_some() {
                self.write_indent(indent);
                if chars.peek().is_some_and(|(_, next)| *next == ' ') {
                    self.write_char('\\');
                }
                after_space = true;
            } else {
                self.write_char(c);
                after_space = c == ' ';
            }
        }
        self.write_indicator("\"", false, false, false);
    }

    fn emit_literal(&mut self, text: &str, indent: usize) {
        self.write_indicator("|", true, false, false);
        if text.starts_with(|c: char| c == ' ' || is_break(c)) {
            self.write_indicator("2", false, false, false);
        }
        let mut end = text.chars().rev();
        match (end.next().is_some_and(is_break), end.next().is_none_or(is_break)) {
            (false, _) => self.write_indicator("-", false, false, false),
            (true, true) => self.write_indicator("+", false, false, false),
            (true, false) => {}
        }
        self.write_line_break();
        let mut at_start = true;
        for c in text.chars() {
            if is_break(c) {
                if c == '\n' {
                    self.write_line_break();
                } else {
                    self.out.push(c);
                    self.column = 0;
                    (self.whitespace, self.indention) = (true, true);
                }
                at_start = true;
                continue;
            }
            if at_start {
                self.write_indent(indent);
            }
            self.write_char(c);
            at_start = false;
            self.indention = false;
        }
    }

    fn write_indent(&mut self, indent: usize) {
        if !self.indention || self.column > indent || self.column == indent && !self.whitespace {
            self.write_line_break();
        }
        while self.column < indent {
            self.write_char(' ');
        }
        self.whitespace = true;
        self.indention = true;
    }

    fn write_indicator(&mut self, text: &str, spaced: bool, is_space: bool, keeps_indention: bool) {
        if spaced && !self.whitespace {
            self.write_char(' ');
        }
        text.chars().for_each(|c| self.write_char(c));
        self.whitespace = is_space;
        self.indention &= keeps_indention;
    }

    fn write_line_break(&mut self) {
        self.out.push('\n');
        self.column = 0;
        (self.whitespace, self.indention) = (true, true);
    }

    fn write_char(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }
}

fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

/// Selects a scalar style that preserves the text.
fn select_style(text: &str, key: bool) -> EmitStyle {
    let traits = ScalarAnalysis::analyze(text);
    if text.contains('\n') {
        return if traits.block && !key { EmitStyle::Literal } else { EmitStyle::Double };
    }
    if resolve::resolve_plain(text) != ResolvedScalar::Text || text == "<<" || resolve::is_base_60(text) {
        return EmitStyle::Double;
    }
    match (traits.plain, traits.single) {
        (true, _) => EmitStyle::Plain,
        (false, true) => EmitStyle::Single,
        (false, false) => EmitStyle::Double,
    }
}

/// The scalar styles that a text allows.
struct ScalarAnalysis {
    plain: bool,
    single: bool,
    block: bool,
}

impl ScalarAnalysis {
    fn analyze(text: &str) -> Self {
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
            special |= !is_printable(*c);
            let before = at.checked_sub(1).map(|at| chars[at]);
            break_space |= *c == ' ' && before.is_some_and(is_break);
            space_break |= is_break(*c) && before == Some(' ');
        }
        let edge = |c: Option<&char>| c.is_some_and(|c| *c == ' ' || is_break(*c));
        let breaks = chars.iter().copied().any(is_break);
        let odd = special || space_break;
        ScalarAnalysis {
            plain: !(indicators || edge(chars.first()) || edge(chars.last()) || break_space || odd || breaks),
            single: !(break_space || odd),
            block: !(chars.last() == Some(&' ') || odd),
        }
    }
}

/// Returns the escape of a character in a double-quoted scalar; `None` if it needs none.
fn escape_char(c: char) -> Option<String> {
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
        c if is_printable(c) => return None,
        c if (c as u32) <= 0xff => return Some(format!("\\x{:02X}", c as u32)),
        c if (c as u32) <= 0xffff => return Some(format!("\\u{:04X}", c as u32)),
        c => return Some(format!("\\U{:08X}", c as u32)),
    };
    Some(short.to_owned())
}
