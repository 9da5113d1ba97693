//! Values formatted as Go does: in messages, with `%v` and `%q`, and as JSON with Go's escaping.

use crate::Value;

/// Returns Go's name for the JSON type of a value.
pub fn value_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Formats a value as Go's `%v` does.
pub fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_value).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: Vec<String> = map.iter().map(|(name, value)| format!("{name}:{}", go_value(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
        scalar => scalar.to_string(),
    }
}

/// Formats a number as Go's `%v` does.
pub fn go_number(number: &serde_json::Number) -> String {
    number.as_f64().filter(|_| number.is_f64()).map_or_else(|| number.to_string(), go_float)
}

/// Formats a float as Go's `%v` does, in its shortest form.
pub fn go_float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(-4..6) => value.to_string(),
        Ok(exponent) => format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
        Err(_) => scientific,
    }
}

/// Returns the Go type that an untyped value decodes to.
pub fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Escapes `<`, `>` and `&` in JSON, as Go's encoder does.
pub fn escape_html(text: String) -> String {
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    let text = text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    text.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// Quotes a string as Go's `%q` does.
pub fn go_quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0b' => out.push_str("\\v"),
            '\x0c' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Indents compact JSON as Go's `json.Indent` does.
pub fn indent_json(compact: &str) -> String {
    let (mut out, mut depth, mut quoted, mut escaped) = (String::new(), 0usize, false, false);
    let mut characters = compact.chars().peekable();
    while let Some(character) = characters.next() {
        if quoted {
            out.push(character);
            quoted = escaped || character != '"';
            escaped = character == '\\' && !escaped;
            continue;
        }
        let next = characters.peek().copied();
        match character {
            '{' | '[' if matches!(next, Some('}' | ']')) => {
                out.push(character);
                out.extend(characters.next());
            }
            '{' | '[' => {
                depth += 1;
                out.push(character);
                push_line(&mut out, depth);
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                push_line(&mut out, depth);
                out.push(character);
            }
            ',' => {
                out.push(',');
                push_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            character => {
                quoted = character == '"';
                out.push(character);
            }
        }
    }
    out
}

fn push_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', depth));
}
